package flushprobe

import (
	"errors"
	"math"
	"slices"
	"time"

	"weida/fsync"
)

// The defaults of Options.
const (
	SizeDefault   = 4096 // bytes
	WritesDefault = 300
)

// Options say how much is measured. The zero value is 300 writes of 4 KiB.
type Options struct {
	// Size of one write in bytes; 4096 if zero.
	Size int
	// Writes is how many there are, each with its flush; 300 if zero.
	Writes int
	// Each is called before the first write with 0 and then behind each one with their number; an error ends the
	// measurement, and Run returns it. Nil goes on to the end.
	Each func(done int) error
}

// Result is what was measured.
type Result struct {
	Took  []time.Duration // of each write with its flush, the shortest first
	Total time.Duration   // of all of them
}

// Quantile is the duration that the share q of all writes did not exceed, 0 where nothing was measured.
func (r *Result) Quantile(q float64) time.Duration {
	if len(r.Took) == 0 {
		return 0
	}
	at := int(math.Ceil(q*float64(len(r.Took)))) - 1
	return r.Took[min(max(at, 0), len(r.Took)-1)]
}

// Run makes the file path, which must not be there, writes to it and removes it.
func Run(files fsync.FS, path string, o Options) (r Result, err error) {
	if o.Size == 0 {
		o.Size = SizeDefault
	}
	if o.Writes == 0 {
		o.Writes = WritesDefault
	}
	if o.Each == nil {
		o.Each = func(int) error { return nil }
	}
	f, err := files.Create(path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close(), files.Remove(path)) }()
	if err := f.Allocate(0, int64(o.Writes)*int64(o.Size)); err != nil {
		return r, err
	}
	if err := f.Sync(); err != nil {
		return r, err
	}
	defer func() { slices.Sort(r.Took) }()
	block := make([]byte, o.Size)
	for i := range o.Writes {
		if err := o.Each(i); err != nil {
			return r, err
		}
		block[0] = byte(i + 1)
		began := time.Now()
		if _, err := f.WriteAt(block, int64(i)*int64(o.Size)); err != nil {
			return r, err
		}
		if err := f.Sync(); err != nil {
			return r, err
		}
		took := time.Since(began)
		r.Took = append(r.Took, took)
		r.Total += took
	}
	return r, o.Each(o.Writes)
}
