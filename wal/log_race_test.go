package wal

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"weida/segment"
)

// TestReadersBesideOwner reads bodies on several goroutines while the owner appends, rolls, seals and
// trims on real files, its jobs on another goroutine: a body is right, or absent once it was released.
// Every 40th stays for ever, and is copied forward.
func TestReadersBesideOwner(t *testing.T) {
	smallSegments(t, 32<<10)
	s := realStore(t, t.TempDir())
	s.o.SegmentBytes = 32 << 10
	l, err := s.OpenLog(testGroup)
	must(t, err)
	var last, released atomic.Uint64
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for k := range uint64(3) {
		readers.Go(func() {
			rng := newRand(k)
			for {
				select {
				case <-stop:
					return
				default:
					readOne(t, l, rng, last.Load(), &released)
				}
			}
		})
	}
	var job chan error
	for i := segment.Index(1); i <= 600; i++ {
		for {
			err := l.Append(oneEntry(i, 1, uint64(i), 300))
			if err == nil {
				break
			}
			if !errors.Is(err, ErrNotReady) {
				t.Fatal(err)
			}
			l.RequestFlush() // what the job waits for
			if job = startJob(l, job); job != nil {
				must(t, <-job)
				job = nil
			}
			must(t, l.Advance())
		}
		l.Retain(segment.BodyRef{Term: 1, Seq: uint64(i)})
		last.Store(uint64(i))
		l.RequestFlush()
		must(t, l.Advance())
		if job = startJob(l, job); job != nil {
			select {
			case err := <-job:
				must(t, err)
				job = nil
				must(t, l.Advance())
			default:
			}
		}
		if i%160 == 0 {
			if job != nil { // one slow piece of work at a time
				must(t, <-job)
				job = nil
				must(t, l.Advance())
			}
			takeSnapshot(t, l, i, &released)
		}
	}
	if job != nil {
		must(t, <-job)
		must(t, l.Advance())
	}
	for job = startJob(l, nil); job != nil; job = startJob(l, nil) {
		must(t, <-job)
		must(t, l.Advance())
	}
	close(stop)
	readers.Wait()
	if first := l.First(); first == 1 {
		t.Error("nothing was trimmed")
	}
	if l.holderOf(segment.BodyRef{Term: 1, Seq: 40}) < 5 {
		t.Error("nothing was compacted")
	}
	must(t, s.Close())
}

// startJob begins the next job unless one is running.
func startJob(l *Log, running chan error) chan error {
	if running != nil {
		return running
	}
	j := l.Job()
	if j == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- j.Run() }()
	return done
}

func takeSnapshot(t *testing.T, l *Log, i segment.Index, released *atomic.Uint64) {
	t.Helper()
	w, err := l.NewSnapshot(Mark{1, i})
	must(t, err)
	must(t, w.Commit())
	must(t, l.Advance())
	from := released.Swap(uint64(i))
	for seq := from + 1; seq <= uint64(i); seq++ {
		if !stays(seq) {
			l.Release(segment.BodyRef{Term: 1, Seq: seq})
		}
	}
	l.Trim()
}

func stays(seq uint64) bool { return seq%40 == 0 }

func readOne(t *testing.T, l *Log, rng *rand.Rand, last uint64, released *atomic.Uint64) {
	if last == 0 {
		return
	}
	seq := 1 + rng.Uint64N(last)
	err := checkOne(l, commitOf(segment.BodyRef{Term: 1, Seq: seq}, 300, false))
	if err != nil && (!errors.Is(err, ErrAbsent) || seq > released.Load() || stays(seq)) {
		t.Errorf("body %d: %v", seq, err)
	}
	l.Stats()
}

// holderOf is the segment in which the newest copy of a body stands.
func (l *Log) holderOf(ref segment.BodyRef) segment.Number {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, err := l.holderLocked(ref); err == nil && s != nil {
		return s.file.Segment
	}
	return 0
}
