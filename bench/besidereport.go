package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// beside is one queue's latency while another one is well and while it is in trouble.
type beside struct {
	What     string  `json:"what"`
	Replicas int     `json:"replicas"`
	Want     string  `json:"want"`
	Bytes    int     `json:"bytes"`
	Rate     float64 `json:"rate"` // messages a second

	Phases    []phaseRow `json:"phases"`
	Confirmed comparison `json:"confirmed"`
	Delivered comparison `json:"delivered"`

	PeakRSS   int64 `json:"peak_rss"`  // bytes, of the node that had most
	Elections int64 `json:"elections"` // terms that the control group and the queue that is watched went through
}

// phaseRow is a stretch of the run, in order.
type phaseRow struct {
	Trouble   bool    `json:"trouble"`
	Seconds   float64 `json:"seconds"`
	Messages  int     `json:"messages"`
	Confirmed tailOf  `json:"confirmed"`
	Delivered tailOf  `json:"delivered"`
}

// tailOf are quantiles of a phase in microseconds.
type tailOf struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// comparison is what the trouble costs.
type comparison struct {
	Well    tailOf `json:"well"`    // of all messages of all phases without
	Trouble tailOf `json:"trouble"` // and with
	// Ratio is the p99 of each phase of trouble by that of the messages of the two phases around it. Noise is the larger
	// p99 by the smaller of two phases without trouble that follow each other: what the machine does by itself.
	Ratio sample `json:"ratio"`
	Noise sample `json:"noise"`
}

func tail(list []time.Duration) tailOf {
	s := slices.Clone(list)
	slices.Sort(s)
	return tailOf{micros(quantile(s, 0.5)), micros(quantile(s, 0.99)), micros(quantile(s, 1))}
}

// summary sums the run up when every message has been answered.
func (b *besideRun) summary() (*beside, error) {
	r := &beside{
		What: b.o.what, Replicas: b.o.replicas, Want: b.o.want, Bytes: b.o.bytes, Rate: b.o.rate, Elections: b.changed,
	}
	var confirmed, delivered [][]time.Duration
	for _, p := range b.phases {
		c, d := b.watched.between(p.from, p.to)
		if len(c) == 0 {
			return nil, fmt.Errorf("no message was due in a phase of %v; try a longer one", p.to.Sub(p.from))
		}
		confirmed, delivered = append(confirmed, c), append(delivered, d)
		r.Phases = append(r.Phases, phaseRow{
			Trouble: p.trouble, Seconds: p.to.Sub(p.from).Seconds(), Messages: len(c), Confirmed: tail(c), Delivered: tail(d),
		})
	}
	r.Confirmed, r.Delivered = b.compare(confirmed), b.compare(delivered)
	for _, pid := range b.nodes.pids() {
		size, err := peakSize(fmt.Sprint(pid))
		if err != nil {
			return nil, err
		}
		r.PeakRSS = max(r.PeakRSS, size)
	}
	return r, nil
}

// compare compares phases, which are by turns without trouble and with it, without at both ends.
func (b *besideRun) compare(list [][]time.Duration) (c comparison) {
	var all [2][]time.Duration
	var ratios, noise []float64
	for i, p := range list {
		if !b.phases[i].trouble {
			all[0] = append(all[0], p...)
			continue
		}
		all[1] = append(all[1], p...)
		before, after := list[i-1], list[i+1]
		ratios = append(ratios, tail(p).P99/tail(slices.Concat(before, after)).P99)
		x := tail(before).P99 / tail(after).P99
		noise = append(noise, math.Max(x, 1/x))
	}
	return comparison{Well: tail(all[0]), Trouble: tail(all[1]), Ratio: summarize(ratios), Noise: summarize(noise)}
}

func (r *report) besideTable(w io.Writer) {
	b := r.Beside
	if b == nil {
		return
	}
	fmt.Fprintf(w, "\n%s, %s, %d B, %.0f/s, another queue: %s\t\tconfirmed p50 µs\tp99\tmax\tdelivered p50\tp99\tmax\t\n",
		plural(b.Replicas, "replica"), b.Want, b.Bytes, b.Rate, b.What)
	row := func(name, size string, c, d tailOf) {
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", name, size, c.P50, c.P99, c.Max, d.P50, d.P99, d.Max)
	}
	name := map[bool]string{false: "well", true: b.What}
	for _, p := range b.Phases {
		row(name[p.Trouble], fmt.Sprintf("%.1f s", p.Seconds), p.Confirmed, p.Delivered)
	}
	row("all well", "", b.Confirmed.Well, b.Delivered.Well)
	row("all "+b.What, "", b.Confirmed.Trouble, b.Delivered.Trouble)
	for _, x := range []struct {
		name string
		c, d sample
	}{
		{"p99, " + b.What + " by well", b.Confirmed.Ratio, b.Delivered.Ratio},
		{"p99, well by well", b.Confirmed.Noise, b.Delivered.Noise},
	} {
		fmt.Fprintf(w, "%s\t\t\t%.2f\t%.2f-%.2f\t\t%.2f\t%.2f-%.2f\t\n", x.name, x.c.Median, x.c.Min, x.c.Max,
			x.d.Median, x.d.Min, x.d.Max)
	}
	fmt.Fprintf(w, "peak RSS %s, elections %d\t\t\t\t\t\t\t\t\n", mib(b.PeakRSS), b.Elections)
}

// judgeBeside compares the run with what one queue may cost another.
func (r *report) judgeBeside() {
	b := r.Beside
	limit := ratioMax[b.What]
	if limit == 0 {
		return
	}
	atMost := func(what string, got, want float64) {
		r.Gates = append(r.Gates, gate{what, fmt.Sprintf("at most %.1f", want), got, got <= want})
	}
	atMost("p99 until confirmed, another queue "+b.What+", times undisturbed", b.Confirmed.Ratio.Median, limit)
	atMost("p99 until delivered, another queue "+b.What+", times undisturbed", b.Delivered.Ratio.Median, limit)
	if b.What == "large" {
		atMost("elections", float64(b.Elections), 0)
		r.below("MiB of RSS at the peak", float64(b.PeakRSS)/(1<<20), 192)
	}
}
