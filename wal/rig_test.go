package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
)

const testGroup segment.GroupID = 7

// seeded is a source of salts that tests can repeat.
type seeded struct{ r *rand.Rand }

func (s seeded) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.r.Uint32())
	}
	return len(p), nil
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x5eed)) }

// smallSegments lets a test roll often.
func smallSegments(t testing.TB, n int64) {
	was := segmentBytesMin
	segmentBytesMin = n
	t.Cleanup(func() { segmentBytesMin = was })
}

// life is one process: a store with one log on some file system.
type life struct {
	fl     *fsync.Flusher
	store  *Store
	log    *Log
	events []Event
}

type lifeOptions struct {
	seed     uint64
	strategy fsync.Strategy
	segBytes int64
	boot     [16]byte
}

func openLife(fs fsync.FS, o lifeOptions) (*life, error) {
	l := &life{}
	if err := fsync.MkdirAll(fs, "/node"); err != nil {
		return nil, err
	}
	root, err := fs.OpenDir("/")
	if err != nil {
		return nil, err
	}
	l.fl = fsync.NewFlusher(fsync.Options{Root: root, Strategy: o.strategy})
	l.store, err = OpenStore(fs, "/node/data", Options{
		Flusher: l.fl, Boot: segment.Boot(o.boot), SegmentBytes: o.segBytes, FirstBytes: 4096,
		Rand:  seeded{newRand(o.seed)},
		Event: func(e Event) { l.events = append(l.events, e) },
	})
	if err != nil {
		return nil, err
	}
	l.log, err = l.store.OpenLog(testGroup)
	if err != nil {
		return nil, errors.Join(err, l.store.Abandon())
	}
	if end, flushed := l.log.End(), l.log.FlushedEnd(); flushed.Less(end) {
		return nil, fmt.Errorf("an opened log ends at %v and is flushed up to %v", end, flushed)
	}
	return l, nil
}

// mustLife opens a life that has no reason to fail.
func mustLife(t testing.TB, fs *memfs.FS, o lifeOptions) *life {
	t.Helper()
	o.boot = fs.BootID()
	l, err := openLife(fs, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l
}

func (l *life) event(kind string) bool {
	for _, e := range l.events {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

// jobs runs everything that is slow, as a stepped owner does.
func (l *life) jobs() error {
	for {
		j := l.log.Job()
		if j == nil {
			return nil
		}
		if err := j.Run(); err != nil {
			return errors.Join(err, l.log.Advance())
		}
		if err := l.log.Advance(); err != nil {
			return err
		}
	}
}

// append appends, doing the jobs it asks for.
func (l *life) append(a *Append) error {
	for range 3 {
		err := l.log.Append(a)
		if !errors.Is(err, ErrNotReady) {
			return err
		}
		if err := l.jobs(); err != nil {
			return err
		}
	}
	return errors.New("an append was never ready")
}

// flush makes everything appended durable.
func (l *life) flush() error {
	l.log.RequestFlush()
	for l.fl.Step() {
	}
	return l.log.Advance()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// payload returns the body of a ref, n bytes: what it holds follows from what it is called. It must not
// be changed.
func payload(ref segment.BodyRef, n int) []byte {
	start := (uint64(ref.Term)*7919 + ref.Seq*104729) % uint64(len(noise)-payloadMax)
	return noise[start : start+uint64(n)]
}

const payloadMax = 1 << 20

var noise = func() []byte {
	r := newRand(1)
	b := make([]byte, 3<<20)
	for i := 0; i < len(b); i += 8 {
		le.PutUint64(b[i:], r.Uint64())
	}
	return b
}()

func commitOf(ref segment.BodyRef, n int, large bool) segment.Commit {
	return segment.Commit{Ref: ref, Length: int64(n), Digest: segment.DigestOf(payload(ref, n)), Large: large}
}

// oneEntry is an entry of one inline body of n bytes.
func oneEntry(i segment.Index, term segment.Term, seq uint64, n int) *Append {
	ref := segment.BodyRef{Term: term, Seq: seq}
	data := segment.AppendData(nil, []segment.Commit{commitOf(ref, n, false)}, fmt.Appendf(nil, "cmd %d.%d", term, i))
	return &Append{
		Bodies:  []Body{{Ref: ref, Payload: payload(ref, n)}},
		Entries: []segment.Entry{{Index: i, Term: term, Data: data}},
	}
}

func readAll(t testing.TB, l *Log, c segment.Commit) []byte {
	t.Helper()
	r, err := l.OpenBody(c)
	must(t, err)
	b, err := io.ReadAll(r)
	must(t, err)
	must(t, r.Close())
	return b
}

// checkEntries reads every entry and body of the log that oneEntry made.
func checkEntries(t testing.TB, l *Log) {
	t.Helper()
	list, err := l.Entries(l.First(), l.Last().Index+1, 1<<40)
	must(t, err)
	next := l.First()
	for _, e := range list {
		if e.Index != next {
			t.Fatalf("entry %d where %d was due", e.Index, next)
		}
		next++
		term, err := l.Term(e.Index)
		must(t, err)
		if term != e.Term {
			t.Fatalf("Term(%d) = %d, the entry has %d", e.Index, term, e.Term)
		}
		commits, _, err := segment.ParseData(e.Data)
		must(t, err)
		for _, c := range commits {
			if got := readAll(t, l, c); !bytes.Equal(got, payload(c.Ref, int(c.Length))) {
				t.Fatalf("body %v is another", c.Ref)
			}
		}
	}
	if next != l.Last().Index+1 {
		t.Fatalf("entries end at %d, the log at %d", next-1, l.Last().Index)
	}
}

func newStepped(root fsync.Dir) *fsync.Flusher { return fsync.NewFlusher(fsync.Options{Root: root}) }
