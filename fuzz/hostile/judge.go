package main

import (
	"fmt"
	"slices"

	"weida/broker/admin"
	"weida/broker/endpoint"
	"weida/broker/queue"
)

// What a node may hold more after an attack than before it. Both are looked at while others use the node: a scrape, a
// flush and a collection each have goroutines and files of their own for a moment.
const (
	goroutinesSlack = 12
	filesSlack      = 6
	liveSlack       = 8 << 20  // bytes
	rssSlack        = 64 << 20 // bytes: what a collection freed goes back to the system bit by bit
)

// ratioMax is how many times longer another client's p99 may be.
const ratioMax = 2.0

// above says what is not back near the level before.
func (p *played) above() []error {
	var list []error
	check := func(what string, before, after, slack int64) {
		if after > before+slack {
			list = append(list, fmt.Errorf("%s did not come back: %d before, %d after it, and %d at most in it",
				what, before, after, slack))
		}
	}
	check("goroutines", p.calm.Goroutines, p.after.Goroutines, goroutinesSlack)
	check("files", p.calm.Files, p.after.Files, filesSlack)
	check("connections", p.calm.Conns, p.after.Conns, 0)
	check("memory in use", p.calm.Live, p.after.Live, liveSlack)
	check("memory of the process", p.calm.RSS, p.after.RSS, rssSlack)
	return list
}

// judge adds what is wrong besides times.
func (p *played) judge() {
	p.problems = append(p.problems, p.above()...)
	for _, b := range p.tally.Broken {
		p.problems = append(p.problems, fmt.Errorf("a limit did not hold: %s", b))
	}
	if p.most.Conns > endpoint.ConnectionsDefault {
		p.problems = append(p.problems, fmt.Errorf("a limit did not hold: %d connections, at most %d", p.most.Conns,
			endpoint.ConnectionsDefault))
	}
	if p.refused > 0 && !p.attack.fills {
		p.problems = append(p.problems, fmt.Errorf("%d of %d newcomers did not get in", p.refused, p.newcomers))
	}
}

// checkBooks compares a queue's books with its limits, and with what was put in.
func (p *played) checkBooks(l *admin.Live) {
	limit := func(what string, n, most int) {
		if n > most {
			p.problems = append(p.problems, fmt.Errorf("a limit did not hold: %d %s, at most %d", n, what, most))
		}
	}
	limit("producers", l.Producers, queue.ProducersMax)
	limit("subscriptions", l.Subscriptions, queue.SubscriptionsMax)
	if out := l.Accepted + l.Rejected + l.Purged; l.In != l.Ready+l.Unsettled+out {
		p.problems = append(p.problems, fmt.Errorf("%d messages went in, %d are there and %d went out", l.In,
			l.Ready+l.Unsettled, out))
	}
	if sent, counted := p.tally.Did[messagesSent]; counted && l.In != sent {
		p.problems = append(p.problems, fmt.Errorf("%d messages are in the queue's books, and %d were sent", l.In, sent))
	}
}

// row is one attack over all passes.
type row struct {
	Attack string `json:"attack"`
	What   string `json:"what"`
	// Before and During are the medians over the passes; the ratios are each pass's own, from low to high.
	PublishBefore times     `json:"publish_before"`
	PublishDuring times     `json:"publish_during"`
	DeliverBefore times     `json:"deliver_before"`
	DeliverDuring times     `json:"deliver_during"`
	PublishRatios []float64 `json:"publish_p99_ratios"`
	DeliverRatios []float64 `json:"deliver_p99_ratios"`

	Calm, Most, After levels
	CPUBefore         float64  `json:"cpu_before"` // processors that the node took
	CPUDuring         float64  `json:"cpu_during"`
	BackSeconds       float64  `json:"back_seconds"` // the longest
	Newcomers         int      `json:"newcomers"`
	NewcomersRefused  int      `json:"newcomers_refused"`
	Tally             tally    `json:"attacker"`
	Problems          []string `json:"problems"`
}

// rows sums the passes up, in the order of the attacks, when the good client has every answer.
func (r *run) rows() []row {
	var list []row
	for _, a := range r.o.attacks {
		w := row{Attack: a.name, What: a.what, Tally: newTally()}
		var before, during [2][]times
		for _, p := range r.list {
			if p.attack.name == a.name {
				r.sum(&w, p, &before, &during)
			}
		}
		w.PublishBefore, w.DeliverBefore = middle(before[0]), middle(before[1])
		w.PublishDuring, w.DeliverDuring = middle(during[0]), middle(during[1])
		slices.Sort(w.PublishRatios)
		slices.Sort(w.DeliverRatios)
		if len(w.PublishRatios) == 0 {
			continue // not played
		}
		for _, want := range a.want {
			if w.Tally.Refusals[want] == 0 {
				w.Problems = append(w.Problems, "nobody was refused with "+want)
			}
		}
		list = append(list, w)
	}
	return list
}

func (r *run) sum(w *row, p *played, before, during *[2][]times) {
	pb, db := r.good.within(p.before)
	pd, dd := r.good.within(p.during)
	before[0], before[1] = append(before[0], pb), append(before[1], db)
	during[0], during[1] = append(during[0], pd), append(during[1], dd)
	w.PublishRatios = append(w.PublishRatios, ratio(pd, pb))
	w.DeliverRatios = append(w.DeliverRatios, ratio(dd, db))
	w.Calm.over(p.calm)
	w.Most.over(p.most)
	w.After.over(p.after)
	w.CPUBefore, w.CPUDuring = max(w.CPUBefore, p.usedCalm), max(w.CPUDuring, p.usedDuring)
	w.BackSeconds = max(w.BackSeconds, p.back.Seconds())
	w.Newcomers, w.NewcomersRefused = w.Newcomers+p.newcomers, w.NewcomersRefused+p.refused
	w.Tally.add(p.tally)
	for _, err := range p.problems {
		w.Problems = append(w.Problems, err.Error())
	}
}

func ratio(during, before times) float64 {
	if before.P99 == 0 {
		return 0
	}
	return float64(during.P99) / float64(before.P99)
}

// middle takes the median of each figure.
func middle(list []times) (m times) {
	if len(list) == 0 {
		return m
	}
	s := slices.Clone(list)
	at := len(s) / 2
	slices.SortFunc(s, func(a, b times) int { return int(a.P50 - b.P50) })
	m.P50 = s[at].P50
	slices.SortFunc(s, func(a, b times) int { return int(a.P99 - b.P99) })
	m.P99 = s[at].P99
	slices.SortFunc(s, func(a, b times) int { return int(a.Most - b.Most) })
	m.Most = s[at].Most
	for _, t := range list {
		m.Count += t.Count
	}
	return m
}

// median of what is in order.
func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

// tooSlow says what took too long. The rows that are no attacks are not judged.
func (w *row) tooSlow() []string {
	if w.Attack == "calm" || w.Attack == "burn" {
		return nil
	}
	var list []string
	for _, x := range []struct {
		what   string
		ratios []float64
	}{{"publishes", w.PublishRatios}, {"deliveries", w.DeliverRatios}} {
		if m := median(x.ratios); m > ratioMax {
			list = append(list, fmt.Sprintf("the good client's p99 of %s is %.1f times what it was", x.what, m))
		}
	}
	return list
}
