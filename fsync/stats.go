package fsync

import (
	"math/bits"
	"slices"
	"time"
)

// Stats are the counters of a Flusher since it was made.
type Stats struct {
	FilesRounds uint64 // shared rounds that flushed file by file
	WholeRounds uint64 // shared rounds of one SyncFS
	AloneRounds uint64 // flushes of one late target
	Syncs       uint64 // flushes of files and directories by themselves that succeeded
	Marks       uint64 // marks advanced
	Errors      uint64 // failed calls
	Poisoned    uint64 // targets poisoned
	Late        int    // targets flushed alone now
	// RoundTime counts shared rounds by duration; bucket i holds those below 64 µs << i.
	RoundTime Histogram
	// RoundFiles counts shared rounds by number of dirty files; bucket i holds those below 1 << i.
	RoundFiles Histogram
}

// Histogram counts values in buckets whose limits double. The last bucket has no limit.
type Histogram struct {
	Buckets [20]uint64
	Count   uint64
	Sum     uint64 // in nanoseconds for durations
}

const roundTimeUnit = 64 * time.Microsecond

func (h *Histogram) add(v, unit uint64) {
	h.Buckets[min(bits.Len64(v/unit), len(h.Buckets)-1)]++
	h.Count++
	h.Sum += v
}

// Stats returns a copy of the counters.
func (f *Flusher) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Late = f.late
	return s
}

func (f *Flusher) count(advanced bool) {
	if !advanced {
		return
	}
	f.mu.Lock()
	f.stats.Marks++
	f.mu.Unlock()
}

func (f *Flusher) countRound(r *round) {
	took := max(f.o.Now().Sub(r.began), 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.apart:
		f.stats.AloneRounds++
		return
	case r.strategy == Whole:
		f.stats.WholeRounds++
	default:
		f.stats.FilesRounds++
	}
	f.stats.RoundTime.add(uint64(took), uint64(roundTimeUnit))
	f.stats.RoundFiles.add(uint64(r.files), 1)
}

// Quantile returns an upper bound of the smallest value that at least the share q of all values do
// not exceed, in multiples of the first bucket's limit; 0 if nothing was counted.
func (h *Histogram) Quantile(q float64) uint64 {
	rank := uint64(q * float64(h.Count))
	var sum uint64
	at := slices.IndexFunc(h.Buckets[:], func(n uint64) bool {
		sum += n
		return sum > 0 && sum >= rank
	})
	if at < 0 {
		return 0
	}
	return 1 << at
}
