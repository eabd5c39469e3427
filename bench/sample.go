package main

import (
	"slices"
	"time"
)

// sample is the median of a few measurements with its extremes.
type sample struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

func summarize(values []float64) sample {
	if len(values) == 0 {
		panic("bug: bench: summary of nothing")
	}
	v := slices.Clone(values)
	slices.Sort(v)
	mid := v[len(v)/2]
	if len(v)%2 == 0 {
		mid = (v[len(v)/2-1] + mid) / 2
	}
	return sample{Median: mid, Min: v[0], Max: v[len(v)-1], N: len(v)}
}

// quantile is the smallest value that at least the share q of the sorted values do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	at := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
