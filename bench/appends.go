package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"weida/fsync"
)

// The ways of appending, by the names they have in tables.
const (
	storeWay    = "wal"
	plainWay    = "append + fdatasync, a goroutine per log"
	plainWayPA  = "the same, preallocated files"
	togetherWay = "write to all, one syncfs, no log"
)

const appendBytes = 256

// benchAppends lets n writers append to a log each, every one waiting for its message to be flushed before the next, on
// the store and in two plain ways: files that grow, and files whose blocks are reserved and written over. A third way
// has no writers and no log: one goroutine writes to all files and flushes them with one call, which shows how much of
// the distance is the file system's. The four take turns.
func benchAppends(dir string, n int, sz sizes) (rows []appendRow, err error) {
	dir = filepath.Join(dir, fmt.Sprintf("appends-%d", n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	r, err := openStore(dir, "store")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close(), os.RemoveAll(dir)) }()
	fleet, err := newFleet(r, n, appendBytes)
	if err != nil {
		return nil, err
	}
	growing, err := newPlain(filepath.Join(dir, "growing"), n, 0)
	if err != nil {
		return nil, err
	}
	reserved, err := newPlain(filepath.Join(dir, "reserved"), n, max(1<<20, plainAllocate/int64(n)))
	if err != nil {
		return nil, err
	}
	together, err := newPlain(filepath.Join(dir, "together"), n, max(1<<20, plainAllocate/int64(n)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, growing.close(), reserved.close(), together.close()) }()
	ways := []struct {
		name string
		run  func(time.Duration) (float64, error)
	}{
		{plainWay, growing.run},
		{plainWayPA, reserved.run},
		{togetherWay, together.runTogether},
		{storeWay, func(d time.Duration) (float64, error) { return fleet.run(d, r.flusher.Failed()) }},
	}
	d := time.Duration(sz.appendMillis) * time.Millisecond
	rates := make([][]float64, len(ways))
	for s := range sz.samples + 1 {
		for i, w := range ways {
			rate, err := w.run(d)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			if s > 0 { // the first is warm-up
				rates[i] = append(rates[i], rate)
			}
		}
	}
	for i, w := range ways {
		rows = append(rows, appendRow{Groups: n, Bytes: appendBytes, Way: w.name, Rate: summarize(rates[i])})
	}
	for i := range rows {
		rows[i].Plain = rows[i].Rate.Median / rows[0].Rate.Median
		rows[i].Reserved = rows[i].Rate.Median / rows[1].Rate.Median
	}
	return rows, nil
}

// run returns flushed messages per second, all writers together. What is in flight at the end is waited for and counts
// with the time that took.
func (fl *logFleet) run(d time.Duration, failed <-chan struct{}) (rate float64, err error) {
	began := time.Now()
	end := began.Add(d)
	count := 0
	for {
		ending := !time.Now().Before(end)
		n, err := fl.step(ending)
		if err != nil {
			return 0, err
		}
		count += n
		if ending && !fl.busy() {
			return float64(count) / time.Since(began).Seconds(), nil
		}
		if err := fl.wait(failed); err != nil {
			return 0, err
		}
	}
}

// plainLogs are files with a goroutine each that writes and calls fdatasync.
type plainLogs struct {
	dir   string
	files []fsync.File
	pos   []int64
}

// plainAllocate bounds what all files of a plain way reserve, but for 1 MiB each.
const plainAllocate = 64 << 20

func newPlain(dir string, n int, reserve int64) (*plainLogs, error) {
	if err := fsync.OS().Mkdir(dir); err != nil {
		return nil, err
	}
	p := &plainLogs{dir: dir, pos: make([]int64, n)}
	for i := range n {
		f, err := fsync.OS().Create(filepath.Join(dir, fmt.Sprintf("%04d", i)))
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
		if reserve == 0 {
			continue
		}
		if err := f.Allocate(0, reserve); err != nil {
			return nil, err
		}
	}
	d, err := fsync.OS().OpenDir(dir)
	if err != nil {
		return nil, err
	}
	return p, errors.Join(d.SyncFS(), d.Close())
}

func (p *plainLogs) run(d time.Duration) (float64, error) {
	began := time.Now()
	end := began.Add(d)
	var count atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, len(p.files))
	for i, f := range p.files {
		wg.Go(func() {
			buf := make([]byte, appendBytes)
			for time.Now().Before(end) {
				buf[0] = byte(p.pos[i]>>8) | 1
				_, errs[i] = f.WriteAt(buf, p.pos[i])
				p.pos[i] += appendBytes
				if errs[i] == nil {
					errs[i] = f.Sync()
				}
				if errs[i] != nil {
					return
				}
				count.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(count.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

// runTogether writes to all files from one goroutine and then flushes them with one call, again and again.
func (p *plainLogs) runTogether(d time.Duration) (rate float64, err error) {
	root, err := fsync.OS().OpenDir(p.dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	buf := make([]byte, appendBytes)
	count := 0
	began := time.Now()
	for time.Since(began) < d {
		for i, f := range p.files {
			buf[0] = byte(p.pos[i]>>8) | 1
			if _, err := f.WriteAt(buf, p.pos[i]); err != nil {
				return 0, err
			}
			p.pos[i] += appendBytes
		}
		if err := root.SyncFS(); err != nil {
			return 0, err
		}
		count += len(p.files)
	}
	return float64(count) / time.Since(began).Seconds(), nil
}

func (p *plainLogs) close() error {
	var errs []error
	for _, f := range p.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
