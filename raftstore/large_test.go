package raftstore

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"weida/fsync/memfs"
	"weida/segment"
)

func bodyFiles(r *rig) (n int) {
	for _, f := range r.disk.Files() {
		if strings.HasSuffix(f, ".body") {
			n++
		}
	}
	return n
}

// writeBody streams a body in pieces.
func writeBody(t *testing.T, g Group, body []byte) BodyWriter {
	t.Helper()
	w, err := g.NewBody(int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	for piece := range slices.Chunk(body, 10_000) {
		if _, err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(segment.DigestOf(body)); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestLargeBody(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	g := r.open(1, m)
	body := bytes.Repeat([]byte("0123456789"), 40_000)
	w := writeBody(t, g, body)
	tag := m.must(put("small", "s"), Item{Command: []byte("plarge"), HasBody: true, Large: w}, put("more", "m"))
	w.Abort() // a proposal holds it
	r.settle()
	m.appended(tag)
	w.Abort() // an entry names it
	if m.read("large") != string(body) || m.read("small") != "s" || m.read("more") != "m" {
		t.Fatal("bodies differ")
	}
	if _, err := m.propose(Item{Command: []byte("ptwice"), HasBody: true, Large: w}); !errors.Is(err, ErrBody) {
		t.Fatalf("a body proposed twice: %v", err)
	}
	if m.now().Flushed != 1 {
		t.Fatalf("marks %+v", m.now())
	}
	r.powerCut(memfs.KeepNone, nil)
	again := newKV(t, "a again")
	r.open(1, again)
	if again.read("large") != string(body) {
		t.Fatal("the flushed body is lost")
	}
	r.stop()
}

// Flushed covers the large body's file and its name, not only the log.
func TestLargeBodyNotFlushedBeforeItsFile(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	g := r.open(1, m)
	m.must(note("make the segment"))
	r.settle()
	body := bytes.Repeat([]byte("x"), 200_000)
	m.must(Item{Command: []byte("plarge"), HasBody: true, Large: writeBody(t, g, body)})
	r.run()
	if m.now().Written != 2 || m.now().Flushed != 1 {
		t.Fatalf("marks %+v before a flush", m.now())
	}
	r.settle()
	if m.now().Flushed != 2 {
		t.Fatalf("marks %+v", m.now())
	}
	r.powerCut(memfs.KeepNone, nil)
	again := newKV(t, "a again")
	r.open(1, again)
	if again.read("large") != string(body) {
		t.Fatal("the flushed body is lost")
	}
	r.stop()
}

func TestLargeBodyRefused(t *testing.T) {
	r := newRig(t)
	m, other := newKV(t, "a"), newKV(t, "b")
	g := r.open(1, m)
	r.open(2, other)
	body := bytes.Repeat([]byte("x"), 100_000)

	open, err := g.NewBody(int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.propose(Item{Command: []byte("pk"), HasBody: true, Large: open}); !errors.Is(err, ErrBody) {
		t.Fatalf("unfinished: %v", err)
	}
	open.Abort()

	w := writeBody(t, g, body)
	if _, err := other.propose(Item{Command: []byte("pk"), HasBody: true, Large: w}); !errors.Is(err, ErrBody) {
		t.Fatalf("of another group: %v", err)
	}
	w2 := writeBody(t, g, body)
	twice := []Item{{Command: []byte("p1"), HasBody: true, Large: w2}, {Command: []byte("p2"), HasBody: true, Large: w2}}
	if _, err := m.propose(twice...); !errors.Is(err, ErrBody) {
		t.Fatalf("twice in a batch: %v", err)
	}
	wrong, err := g.NewBody(int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := wrong.Finish(Digest{1}); err == nil {
		t.Fatal("a wrong digest was accepted")
	}
	if _, err := m.propose(Item{Command: []byte("pk"), HasBody: true, Large: wrong}); !errors.Is(err, ErrBody) {
		t.Fatalf("void: %v", err)
	}
	tag := m.must(Item{Command: []byte("pk"), HasBody: true, Large: w}) // refusals gave it back
	r.settle()
	m.appended(tag)
	w2.Abort()
	if n := bodyFiles(r); n != 1 {
		t.Fatalf("%d body files, want 1: %v", n, r.disk.Files())
	}
	r.stop()
}

// A refused proposal gives its body back: it can be proposed again.
func TestLargeBodyAfterDiskFull(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	g := r.open(1, m)
	body := bytes.Repeat([]byte("x"), 100_000)
	w := writeBody(t, g, body)
	r.disk.SetCapacity(r.disk.Used())
	tag := m.must(Item{Command: []byte("pk"), HasBody: true, Large: w})
	r.settle()
	m.refused(tag, ErrDiskFull)
	if _, err := g.NewBody(1 << 20); err == nil {
		// Space is taken while bytes come, so the refusal may come with them.
		t.Log("NewBody itself took no space")
	}
	r.disk.SetCapacity(0)
	again := m.must(Item{Command: []byte("pk"), HasBody: true, Large: w})
	r.settle()
	m.appended(again)
	if m.read("k") != string(body) {
		t.Fatal("body differs")
	}
	r.stop()
}

// A body that no entry names is gone after the next open, and its ref is never given out again.
func TestUnnamedBodyGoes(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	g := r.open(1, m)
	m.must(note("x"))
	r.settle()
	w := writeBody(t, g, bytes.Repeat([]byte("x"), 100_000))
	ref := w.Ref()
	r.settle()
	r.kill()
	again := newKV(t, "a again")
	g = r.open(1, again)
	again.must(note("an entry of the new term"))
	r.settle()
	if n := bodyFiles(r); n != 0 {
		t.Fatalf("%d body files are left: %v", n, r.disk.Files())
	}
	next, err := g.NewBody(100_000)
	if err != nil {
		t.Fatal(err)
	}
	if !ref.Less(next.Ref()) {
		t.Fatalf("ref %v after %v", next.Ref(), ref)
	}
	next.Abort()
	r.stop()
}
