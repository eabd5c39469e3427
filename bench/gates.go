package main

import "fmt"

// judge compares the run with the targets that the store is built to.
func (r *report) judge() {
	for _, row := range r.Rounds {
		if row.Strategy != flusherAuto {
			continue
		}
		what := fmt.Sprintf("rounds, %d dirty of %d B, times as fast as ", row.Groups, row.Bytes)
		switch row.Groups {
		case 1:
			r.atLeast(what+"fdatasync", row.Plain, 1/1.15)
		case 128:
			r.atLeast(what+"64 goroutines", row.Parallel, 3)
		case 1000:
			r.atLeast(what+"64 goroutines", row.Parallel, 2)
		}
	}
	for _, row := range r.Appends {
		if row.Way == storeWay && row.Groups >= 128 {
			r.atLeast(fmt.Sprintf("appends/s, %d logs, times plain", row.Groups), row.Plain, 4)
		}
	}
	if m := r.Memory; m != nil {
		r.below(fmt.Sprintf("MiB more RSS for %d idle groups", m.Groups), float64(m.RSSMany-m.RSSOne)/(1<<20), 32)
		r.below(fmt.Sprintf("MiB of disk for %d idle groups", m.Groups), float64(m.DiskMany)/(1<<20), 100)
	}
	if o := r.Reopen; o != nil {
		r.below("seconds to reopen after kill -9", o.Seconds.Median, 3)
	}
}

func (r *report) atLeast(what string, got, want float64) {
	r.Gates = append(r.Gates, gate{what, fmt.Sprintf("at least %.2f", want), got, got >= want})
}

func (r *report) below(what string, got, limit float64) {
	r.Gates = append(r.Gates, gate{what, fmt.Sprintf("below %.0f", limit), got, got < limit})
}
