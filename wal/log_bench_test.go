package wal

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"weida/fsync"
	"weida/segment"
)

// realStore opens a store on real files. stop ends it as a kill does: nothing is flushed, no marker.
func realStore(t testing.TB, dir string) *Store {
	t.Helper()
	fs := fsync.OS()
	must(t, fsync.MkdirAll(fs, dir))
	root, err := fs.OpenDir(dir)
	must(t, err)
	fl := fsync.NewFlusher(fsync.Options{Root: root})
	fl.Start()
	boot, err := fsync.BootID(dir)
	must(t, err)
	s, err := OpenStore(fs, filepath.Join(dir, "data"), Options{Flusher: fl, Boot: segment.Boot(boot)})
	must(t, err)
	t.Cleanup(func() {
		if err := fl.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fill appends entries [1, n] of one body of size bytes, per to a batch.
func fill(l *Log, n, per, size int) error {
	w := &life{log: l}
	body := payload(segment.BodyRef{}, size)
	digest := segment.DigestOf(body)
	var data []byte
	for i := 0; i < n; {
		a := &Append{}
		var commits []segment.Commit
		for range min(per, n-i) {
			i++
			ref := segment.BodyRef{Term: 1, Seq: uint64(i)}
			a.Bodies = append(a.Bodies, Body{ref, body})
			commits = append(commits, segment.Commit{Ref: ref, Length: int64(size), Digest: digest})
		}
		data = segment.AppendData(data[:0], commits, nil)
		a.Entries = []segment.Entry{{Index: l.Last().Index + 1, Term: 1, Data: data}}
		if err := w.append(a); err != nil {
			return err
		}
	}
	return nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemoryPerMessage: at most 16 bytes of heap per stored message, all in, in segments that are not
// sealed; a sealed one has far less.
func TestMemoryPerMessage(t *testing.T) {
	const messages = 60_000
	s := realStore(t, t.TempDir())
	l, err := s.OpenLog(testGroup)
	must(t, err)
	before := heap()
	must(t, fill(l, messages, 64, 256))
	per := float64(int64(heap())-int64(before)) / messages
	t.Logf("%.2f bytes of heap per message in %d segments", per, l.Stats().Segments)
	if per > 16 {
		t.Errorf("%.1f bytes of heap per message, at most 16", per)
	}
	runtime.KeepAlive(l)
	must(t, s.Close())
}

// TestReopenMany opens groups of 1000 messages of 256 bytes each after a process that stopped without
// a word: 1000 groups with WEIDA_FULL=1, fewer without.
func TestReopenMany(t *testing.T) {
	groups := segment.GroupID(20)
	if secondCrash() == 1 {
		groups = 1000
	}
	dir := t.TempDir()
	s := realStore(t, dir)
	for g := segment.GroupID(1); g <= groups; g++ {
		l, err := s.OpenLog(g)
		must(t, err)
		must(t, fill(l, 1000, 20, 256))
	}
	must(t, s.Abandon())
	took := testing.Benchmark(func(b *testing.B) {
		if b.N > 1 {
			return
		}
		s = realStore(t, dir)
		var wait sync.WaitGroup
		for k := range segment.GroupID(8) {
			wait.Go(func() {
				for g := k + 1; g <= groups; g += 8 {
					l, err := s.OpenLog(g)
					if err != nil || l.Flushed().Index != 50 {
						t.Errorf("group %d: %v", g, err)
					}
				}
			})
		}
		wait.Wait()
	})
	t.Logf("%d groups opened in %v", groups, took.T)
	must(t, s.Close())
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 4096} {
		for _, per := range []int{1, 16} {
			b.Run(fmt.Sprintf("%dB-%d", size, per), func(b *testing.B) {
				s := realStore(b, b.TempDir())
				l, err := s.OpenLog(testGroup)
				must(b, err)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				must(b, fill(l, b.N, per, size))
			})
		}
	}
}

func BenchmarkOpenBody(b *testing.B) {
	s := realStore(b, b.TempDir())
	l, err := s.OpenLog(testGroup)
	must(b, err)
	const n = 20_000
	must(b, fill(l, n, 16, 256))
	digest := segment.DigestOf(payload(segment.BodyRef{}, 256))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		ref := segment.BodyRef{Term: 1, Seq: uint64(i*7919%n) + 1}
		r, err := l.OpenBody(segment.Commit{Ref: ref, Length: 256, Digest: digest})
		if err != nil {
			b.Fatal(err)
		}
		must(b, r.Close())
	}
}

// BenchmarkReadInOrder reads as a queue is consumed.
func BenchmarkReadInOrder(b *testing.B) {
	s := realStore(b, b.TempDir())
	l, err := s.OpenLog(testGroup)
	must(b, err)
	const n = 20_000
	must(b, fill(l, n, 16, 256))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		ref := segment.BodyRef{Term: 1, Seq: uint64(i%n) + 1}
		r, err := l.OpenBody(segment.Commit{Ref: ref, Length: -1})
		if err != nil {
			b.Fatal(err)
		}
		must(b, r.Close())
	}
}

func BenchmarkEntries(b *testing.B) {
	s := realStore(b, b.TempDir())
	l, err := s.OpenLog(testGroup)
	must(b, err)
	const n = 20_000
	must(b, fill(l, n, 1, 256))
	b.ResetTimer()
	for b.Loop() {
		for i := segment.Index(1); i <= n; {
			list, err := l.Entries(i, n+1, 1<<20)
			must(b, err)
			i += segment.Index(len(list))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}

// BenchmarkRetain retains every body of a log of many segments, in order, as a restart does.
func BenchmarkRetain(b *testing.B) {
	smallSegments(b, 512<<10)
	s := realStore(b, b.TempDir())
	s.o.SegmentBytes = 512 << 10
	l, err := s.OpenLog(testGroup)
	must(b, err)
	const n = 300_000
	must(b, fill(l, n, 64, 256))
	must(b, (&life{log: l, fl: s.o.Flusher}).jobs())
	b.ReportMetric(float64(l.Stats().Segments), "segments")
	b.ReportAllocs()
	for b.Loop() {
		l.ReleaseAll()
		for seq := range uint64(n) {
			l.Retain(segment.BodyRef{Term: 1, Seq: seq + 1})
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/body")
	runtime.KeepAlive(l)
}
