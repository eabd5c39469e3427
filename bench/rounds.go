package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"weida/fsync"
)

// roundRow is one strategy making a number of dirty files durable.
type roundRow struct {
	Groups   int    `json:"groups"`
	Bytes    int    `json:"bytes"`
	Strategy string `json:"strategy"`
	Time     sample `json:"us"`
	// Plain and Parallel are how many times as fast this is as one fdatasync after the other, and as 64 at a time.
	Plain    float64 `json:"times_plain"`
	Parallel float64 `json:"times_parallel"`
}

// The baselines, by the names they have in tables.
const (
	onePlain     = "fdatasync one by one"
	oneParallel  = "fdatasync, 64 goroutines"
	flusherAuto  = "Flusher auto"
	oneElsewhere = "fdatasync on another goroutine"
)

// way is one strategy: how the files that were just written become durable.
type way struct {
	name  string
	flush func() error
	close func() error
}

// dirtyFiles are preallocated files that are appended to in step.
type dirtyFiles struct {
	dir   string
	files []fsync.File
	pos   int64
}

// benchRounds appends size bytes to each of n files and times how long each strategy takes to make them durable. The
// strategies take turns, so that a disk that changes its mood does so for all.
func benchRounds(dir string, n, size, samples int) ([]roundRow, error) {
	per := roundsPerSample(n)
	df, err := makeFiles(filepath.Join(dir, fmt.Sprintf("rounds-%d-%d", n, size)), n, size, (samples+1)*per)
	if err != nil {
		return nil, err
	}
	ways, err := df.ways()
	if err != nil {
		return nil, err
	}
	times := make([][]float64, len(ways))
	for s := range samples + 1 {
		for w := range ways {
			took, err := df.time(ways[w].flush, size, per)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", ways[w].name, err)
			}
			if s > 0 { // the first is warm-up
				times[w] = append(times[w], micros(took))
			}
		}
	}
	var errs []error
	for _, w := range ways {
		errs = append(errs, w.close())
	}
	return roundRows(n, size, ways, times), errors.Join(append(errs, df.remove())...)
}

// roundsPerSample spreads a sample over several rounds where one is short.
func roundsPerSample(n int) int {
	switch {
	case n <= 1:
		return 40
	case n <= 16:
		return 10
	case n <= 128:
		return 4
	}
	return 1
}

func makeFiles(dir string, n, size, rounds int) (*dirtyFiles, error) {
	if err := fsync.OS().Mkdir(dir); err != nil {
		return nil, err
	}
	df := &dirtyFiles{dir: dir}
	const strategies = 6
	for i := range n {
		f, err := fsync.OS().Create(df.name(i))
		if err != nil {
			return nil, err
		}
		df.files = append(df.files, f)
		if err := f.Allocate(0, int64(rounds*strategies*size)); err != nil {
			return nil, err
		}
	}
	d, err := fsync.OS().OpenDir(dir)
	if err != nil {
		return nil, err
	}
	return df, errors.Join(d.SyncFS(), d.Close())
}

func (df *dirtyFiles) name(i int) string { return filepath.Join(df.dir, fmt.Sprintf("%04d", i)) }

func (df *dirtyFiles) remove() error {
	var errs []error
	for i, f := range df.files {
		errs = append(errs, f.Close(), fsync.OS().Remove(df.name(i)))
	}
	return errors.Join(append(errs, fsync.OS().Remove(df.dir))...)
}

// time is the mean of several rounds; writing is not part of it.
func (df *dirtyFiles) time(flush func() error, size, rounds int) (time.Duration, error) {
	buf := make([]byte, size)
	var sum time.Duration
	for range rounds {
		for i := range buf {
			buf[i] = byte(df.pos>>8) | 1
		}
		for _, f := range df.files {
			if _, err := f.WriteAt(buf, df.pos); err != nil {
				return 0, err
			}
		}
		df.pos += int64(size)
		began := time.Now()
		if err := flush(); err != nil {
			return 0, err
		}
		sum += time.Since(began)
	}
	return sum / time.Duration(rounds), nil
}

func (df *dirtyFiles) ways() ([]way, error) {
	none := func() error { return nil }
	list := []way{{onePlain, df.oneByOne, none}, {oneParallel, df.parallel, none}}
	if len(df.files) == 1 {
		flush, stop := df.elsewhere()
		list = append(list, way{oneElsewhere, flush, stop})
	}
	for _, s := range []struct {
		name     string
		strategy fsync.Strategy
	}{{flusherAuto, fsync.Auto}, {"Flusher files", fsync.Files}, {"Flusher whole", fsync.Whole}} {
		root, err := fsync.OS().OpenDir(df.dir)
		if err != nil {
			return nil, err
		}
		f := fsync.NewFlusher(fsync.Options{Root: root, Strategy: s.strategy})
		f.Start()
		list = append(list, way{s.name, df.flusher(f), f.Close})
	}
	return list, nil
}

func (df *dirtyFiles) oneByOne() error {
	for _, f := range df.files {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// elsewhere flushes on another goroutine, one by one: what a Flusher cannot do without, so that whoever asks for a
// flush need not wait for it.
func (df *dirtyFiles) elsewhere() (flush, stop func() error) {
	ask, answer := make(chan struct{}), make(chan error)
	go func() {
		for range ask {
			answer <- df.oneByOne()
		}
	}()
	flush = func() error {
		ask <- struct{}{}
		return <-answer
	}
	stop = func() error {
		close(ask)
		return nil
	}
	return flush, stop
}

// parallel is what a careful program does without a Flusher: at most 64 calls at a time.
func (df *dirtyFiles) parallel() error {
	var next atomic.Int64
	var wg sync.WaitGroup
	workers := min(64, len(df.files))
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(df.files) {
					return
				}
				errs[w] = df.files[i].Sync()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// bell is a Waker that a goroutine can wait for.
type bell chan struct{}

func (b bell) Wake() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// flusher requests a flush of every file through its own target, as the owner of many logs does, and waits for the
// last mark. The first request starts a round at once; the others share the next.
func (df *dirtyFiles) flusher(f *fsync.Flusher) func() error {
	waker := &ringer{bell: make(bell, 1)}
	targets := make([]*fsync.Target, len(df.files))
	for i := range targets {
		targets[i] = f.NewTarget(df.name(i), waker)
	}
	mark := uint64(0)
	return func() error {
		mark++
		for i, t := range targets {
			t.Dirty(df.files[i])
			t.Request(mark)
		}
		for done := 0; done < len(targets); {
			if t := targets[done]; t.Flushed() >= mark {
				done++
			} else if err := errors.Join(t.Err(), f.Err()); err != nil {
				return err
			} else {
				<-waker.bell
			}
		}
		return nil
	}
}

// ringer makes a bell comparable, as a Waker has to be.
type ringer struct{ bell }

func roundRows(n, size int, ways []way, times [][]float64) []roundRow {
	rows := make([]roundRow, len(ways))
	median := make(map[string]float64)
	for i, w := range ways {
		rows[i] = roundRow{Groups: n, Bytes: size, Strategy: w.name, Time: summarize(times[i])}
		median[w.name] = rows[i].Time.Median
	}
	for i := range rows {
		rows[i].Plain = median[onePlain] / rows[i].Time.Median
		rows[i].Parallel = median[oneParallel] / rows[i].Time.Median
	}
	return rows
}
