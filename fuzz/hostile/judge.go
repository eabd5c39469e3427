package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weida/broker/admin"
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

// What a node may hold in an attack of the default size, whatever the attacker does.
const (
	connsMax = 256 + 8   // of the attacker's key, and the good client's
	filesMax = 320       // the HTTP side takes 256 connections
	rssMax   = 384 << 20 // bytes
)

// ratioMax is how many times longer another client's p99 may be; calmMax how far it may wander by itself for that to
// say something.
const (
	ratioMax = 2.0
	calmMax  = 1.5
)

// above says what is not back near the level before.
func (p *played) above() []error {
	b, l := p.before.most, p.last
	return errorsOf(p.held(), higher("memory in use", b.Live, l.Live, liveSlack),
		higher("memory of the process", b.RSS, l.RSS, rssSlack))
}

// held is what of that no collection frees.
func (p *played) held() []error {
	b, l := p.before.most, p.last
	return errorsOf(nil, higher("goroutines", b.Goroutines, l.Goroutines, goroutinesSlack),
		higher("files", b.Files, l.Files, filesSlack), higher("connections", b.Conns, l.Conns, 0))
}

func higher(what string, before, after, slack int64) error {
	if after <= before+slack {
		return nil
	}
	return fmt.Errorf("%s did not come back: %d before, %d after it, and %d at most in it", what, before, after, slack)
}

// errorsOf appends those that are errors.
func errorsOf(list []error, more ...error) []error {
	return append(list, slices.DeleteFunc(more, func(err error) bool { return err == nil })...)
}

// judge adds what is wrong besides times.
func (p *played) judge() {
	p.problems = append(p.problems, p.above()...)
	for _, b := range p.tally.Broken {
		p.problems = append(p.problems, fmt.Errorf("a limit did not hold: %s", b))
	}
	limit := func(what string, n, most int64) {
		if n > most {
			p.problems = append(p.problems, fmt.Errorf("a limit did not hold: %d %s, at most %d", n, what, most))
		}
	}
	limit("connections", p.during.most.Conns, connsMax)
	limit("files", p.during.most.Files, filesMax)
	limit("bytes of memory", p.during.most.RSS, rssMax)
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
	// What was sent when the attack was over may be there without its answer having been read.
	sent, counted := p.tally.Did[messagesSent]
	if confirmed := p.tally.Did[messagesConfirmed]; counted && (l.In > sent || l.In < confirmed) {
		p.problems = append(p.problems, fmt.Errorf("%d messages are in the queue's books, %d were sent and %d confirmed",
			l.In, sent, confirmed))
	}
}

// row is one attack over all passes.
type row struct {
	Attack string `json:"attack"`
	What   string `json:"what"`
	// Before is of all times of the run without an attack, During of this attack in all passes, where nobody else used
	// the machine: the median of their quantiles, since a disk that stalls once in a run is nobody's attack.
	Passes        int   `json:"passes"`
	Quiet         int   `json:"quiet_passes"`
	PublishBefore times `json:"publish_before"`
	PublishDuring times `json:"publish_during"`
	DeliverBefore times `json:"deliver_before"`
	DeliverDuring times `json:"deliver_during"`
	// The ratios are During by Before, 0 without any. EachPublish are those of the quiet passes, sorted.
	PublishRatio float64   `json:"publish_p99_ratio"`
	DeliverRatio float64   `json:"deliver_p99_ratio"`
	EachPublish  []float64 `json:"publish_p99_ratio_passes"`

	Calm             levels   `json:"before"`
	Most             levels   `json:"at_most"`
	After            levels   `json:"after"`
	CPUBefore        float64  `json:"cpu_before"` // processors that the node took
	CPUDuring        float64  `json:"cpu_during"`
	BackSeconds      float64  `json:"back_seconds"` // the longest
	Newcomers        int      `json:"newcomers"`
	NewcomersRefused int      `json:"newcomers_refused"`
	Tally            tally    `json:"attacker"`
	Problems         []string `json:"problems"`
	Slow             []string `json:"slow"` // what took more than ratioMax times as long
}

// rows sums the passes up, in the order of the attacks, when the good client has every answer.
func (r *run) rows() []row {
	var quiet []window
	for _, p := range r.list {
		if p.before.quiet() {
			quiet = append(quiet, p.before.window)
		}
	}
	before := r.good.middles(quiet)
	var list []row
	for _, a := range r.o.attacks {
		w := row{Attack: a.name, What: a.what, Tally: newTally()}
		var attacked []window
		for _, p := range r.list {
			if p.attack.name != a.name {
				continue
			}
			if w.Passes++; p.during.quiet() {
				attacked = append(attacked, p.during.window)
			}
			w.add(p)
		}
		if w.Passes == 0 {
			continue
		}
		w.Quiet = len(attacked)
		during := r.good.middles(attacked)
		w.PublishBefore, w.DeliverBefore = before[0], before[1]
		w.PublishDuring, w.DeliverDuring = during[0], during[1]
		w.PublishRatio = ratio(w.PublishDuring, w.PublishBefore)
		w.DeliverRatio = ratio(w.DeliverDuring, w.DeliverBefore)
		for _, x := range attacked {
			w.EachPublish = append(w.EachPublish, ratio(quantiles(r.good.within(x).published), w.PublishBefore))
		}
		slices.Sort(w.EachPublish)
		for _, want := range a.want {
			if w.Tally.Refusals[want] == 0 {
				w.Problems = append(w.Problems, "nobody was refused with "+want)
			}
		}
		list = append(list, w)
	}
	return list
}

// add counts one pass in.
func (w *row) add(p *played) {
	w.Calm.over(p.before.most)
	w.Most.over(p.during.most)
	w.After.over(p.after)
	w.CPUBefore, w.CPUDuring = max(w.CPUBefore, p.before.used), max(w.CPUDuring, p.during.used)
	w.BackSeconds = max(w.BackSeconds, p.back.Seconds())
	w.Newcomers, w.NewcomersRefused = w.Newcomers+p.newcomers, w.NewcomersRefused+p.refused
	w.Tally.add(p.tally)
	for _, err := range p.problems {
		w.Problems = append(w.Problems, err.Error())
	}
}

// middles are the medians of the quantiles of windows, of publishes and of deliveries.
func (g *good) middles(list []window) (m [2]times) {
	var each [2][]times
	for _, w := range list {
		s := g.within(w)
		each[0], each[1] = append(each[0], quantiles(s.published)), append(each[1], quantiles(s.delivered))
	}
	for i := range m {
		for _, t := range each[i] {
			m[i].Count += t.Count
			m[i].Most = max(m[i].Most, t.Most)
		}
		m[i].P50 = middle(each[i], func(t times) time.Duration { return t.P50 })
		m[i].P99 = middle(each[i], func(t times) time.Duration { return t.P99 })
	}
	return m
}

func middle(list []times, of func(times) time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	var s []time.Duration
	for _, t := range list {
		s = append(s, of(t))
	}
	slices.Sort(s)
	return s[len(s)/2]
}

func ratio(during, before times) float64 {
	if before.P99 == 0 {
		return 0
	}
	return float64(during.P99) / float64(before.P99)
}

// judgeTimes notes what took too long, and says why times say little, "" if they say what they should. The rows that
// are no attacks are measures.
func judgeTimes(rows []row) (doubt string) {
	var loud []string
	for _, w := range rows {
		if m := max(w.PublishRatio, w.DeliverRatio); w.Attack == "calm" && w.Quiet > 0 && m > calmMax {
			return fmt.Sprintf("times are not judged: without an attack the p99 wandered by a factor of %.1f; "+
				"try again on a quieter machine, or with more passes", m)
		}
		if w.Quiet == 0 || w.PublishBefore.Count == 0 {
			loud = append(loud, w.Attack)
		}
	}
	for i := range rows {
		if a := rows[i].Attack; a != "calm" && a != "burn" {
			rows[i].tooSlow()
		}
	}
	if len(loud) > 0 {
		return "times are not judged where others used the machine in all passes: " + strings.Join(loud, ", ")
	}
	return ""
}

// tooSlow notes what took too long.
func (w *row) tooSlow() {
	for _, x := range []struct {
		what  string
		ratio float64
	}{{"publishes", w.PublishRatio}, {"deliveries", w.DeliverRatio}} {
		if x.ratio > ratioMax {
			w.Slow = append(w.Slow, fmt.Sprintf("the p99 of %s is %.1f times what it is without", x.what, x.ratio))
		}
	}
}
