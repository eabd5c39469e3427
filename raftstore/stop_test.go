package raftstore

import (
	"errors"
	"testing"

	"weida/fsync/memfs"
)

// Stop refuses what was not written, flushes what was, and calls the machine no more.
func TestStop(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	g := r.open(1, m)
	written := m.must(put("k", "v"))
	r.run()
	waits := m.must(note("never written"))
	g.Stop()
	m.appended(written)
	m.refused(waits, ErrStopped)
	m.complete()
	if now := m.now(); now.Flushed != 1 || now.Written != 1 {
		t.Fatalf("marks %+v after an orderly stop", now)
	}
	if _, err := m.propose(note("late")); !errors.Is(err, ErrStopped) {
		t.Fatalf("after the stop: %v", err)
	}
	if _, err := g.NewBody(1 << 20); !errors.Is(err, ErrStopped) {
		t.Fatalf("after the stop: %v", err)
	}
	g.Stop() // again: no harm
	told := len(m.marks)
	r.settle()
	if len(m.marks) != told {
		t.Fatal("the machine was called after Stop")
	}

	next := newKV(t, "a, second life") // the place is free again
	r.open(1, next)
	if next.read("k") != "v" || next.term <= m.term {
		t.Fatalf("term %d after %d", next.term, m.term)
	}
	r.stop()
}

func TestHostStop(t *testing.T) {
	r := newRig(t)
	var all []*kv
	for g := range GroupID(5) {
		m := newKV(t, "m")
		r.open(g+1, m)
		m.must(note("x"))
		all = append(all, m)
	}
	r.run()
	r.stop()
	for _, m := range all {
		m.complete()
		if m.now().Flushed != 1 {
			t.Fatalf("marks %+v", m.now())
		}
	}
	if _, err := r.host.OpenOwner(9, newKV(t, "late"), OwnerOptions{Create: true}); !errors.Is(err, ErrStopped) {
		t.Fatalf("open after stop: %v", err)
	}
}

func TestOpenOwnerRefuses(t *testing.T) {
	r := newRig(t)
	if _, err := r.host.OpenOwner(7, newKV(t, "x"), OwnerOptions{}); !errors.Is(err, ErrNoSuchGroup) {
		t.Fatalf("absent: %v", err)
	}
	if _, err := r.host.OpenOwner(7, newKV(t, "x"), OwnerOptions{Create: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.host.OpenOwner(7, newKV(t, "x"), OwnerOptions{Create: true}); !errors.Is(err, ErrOpen) {
		t.Fatalf("twice: %v", err)
	}
	r.stop()
	r.boot()
	if _, err := r.host.OpenOwner(7, newKV(t, "x"), OwnerOptions{}); err != nil {
		t.Fatalf("it is there: %v", err)
	}
	r.stop()
}

func TestReconfigureRefused(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	if err := r.open(1, m).Reconfigure(Change{}); !errors.Is(err, ErrNoGroup) {
		t.Fatal(err)
	}
	r.stop()
}

// A machine that is being replayed can't propose: its group is not on its shard yet.
func TestNoProposalsWhileOpening(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	m.must(note("x"))
	r.settle()
	r.kill()
	again := newKV(t, "a again")
	refused := 0
	again.onApply = func(Index, []Item) {
		if _, err := again.propose(note("too early")); errors.Is(err, errOpening) {
			refused++
		}
	}
	r.open(1, again)
	r.settle()
	if refused != 1 || again.lastI != 1 {
		t.Fatalf("%d refused, %d applied", refused, again.lastI)
	}
	again.onApply = nil
	tag := again.must(note("now"))
	r.settle()
	again.appended(tag)
	r.stop()
}

// Another life of the process never gives out a ref or a (term, index) of an earlier one, whatever was
// flushed (T-3).
func TestEpochRises(t *testing.T) {
	r := newRig(t)
	var last Term
	refs := map[BodyRef]bool{}
	for life := range 6 {
		m := newKV(t, "a")
		r.open(1, m)
		if m.term <= last {
			t.Fatalf("life %d: epoch %d after %d", life, m.term, last)
		}
		last = m.term
		m.must(put("k", "v"))
		r.run() // written, not flushed: the power cut takes it
		ref := m.state["k"].Body.Ref
		if refs[ref] {
			t.Fatalf("life %d: ref %v again", life, ref)
		}
		refs[ref] = true
		if life%2 == 0 {
			r.powerCut(memfs.KeepNone, nil)
		} else {
			r.kill()
		}
	}
}
