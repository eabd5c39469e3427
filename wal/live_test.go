package wal

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"weida/segment"
)

// slowHolder is holderLocked without anything remembered.
func (l *Log) slowHolder(t *testing.T, ref segment.BodyRef) *seg {
	for _, s := range slices.Backward(l.segs) {
		must(t, l.loadRefsLocked(s))
		if s.bodies > 0 && s.refs.has(ref) {
			return s
		}
	}
	return nil
}

// TestHolderRandom asks for bodies in order, from many places, while bodies come, come again, are copied
// and go: what is remembered of the last lookup never shows. WEIDA_SEED repeats a run.
func TestHolderRandom(t *testing.T) {
	seed := seedOf(t)
	t.Logf("seed %d", seed)
	rng := newRand(seed)
	s := newShop(t, 8<<10)
	next := segment.BodyRef{Term: 1, Seq: 1}
	ask := func(n int) {
		for range n {
			s.log.mu.Lock()
			got, err := s.log.holderLocked(next)
			want := s.log.slowHolder(t, next)
			s.log.mu.Unlock()
			must(t, err)
			if got != want {
				t.Fatalf("body %v: found %+v, want %+v", next, got, want)
			}
			next.Seq++
		}
	}
	for range 60 * runsOf(t, 10) {
		switch rng.IntN(8) {
		case 0, 1, 2:
			s.take(1+rng.IntN(20), 1+rng.IntN(400), rng.IntN(12))
		case 3:
			if len(s.log.segs) > 0 && s.log.segs[0].bodies > 0 {
				next = s.log.segs[0].minRef
				ask(1)
			}
			if rng.IntN(3) == 0 {
				s.settle()
			} else {
				must(t, s.jobs())
			}
		case 4:
			for ref := range s.live {
				if rng.IntN(3) == 0 {
					s.release(ref)
				}
			}
		case 5: // it comes again
			ref := segment.BodyRef{Term: 1, Seq: 1 + rng.Uint64N(uint64(s.next))}
			if ref.Seq < uint64(s.next) {
				must(t, s.append(&Append{Bodies: []Body{{ref, payload(ref, 100)}}}))
			}
			if _, ok := s.live[ref]; ok {
				s.live[ref] = 100
			}
		default:
			next.Seq = 1 + rng.Uint64N(uint64(s.next)+5)
			ask(1 + rng.IntN(100))
			continue
		}
		next.Seq = max(1, next.Seq-1) // the last one again
		ask(1)
	}
	s.check()
	must(t, s.store.Close())
}

// TestDroppedIsForgotten asks for a body right before its segment goes: it is not here afterwards, and no
// entry may name it.
func TestDroppedIsForgotten(t *testing.T) {
	s := newShop(t, 8<<10)
	s.take(60, 256, 0)
	c := commitOf(segment.BodyRef{Term: 1, Seq: 1}, 256, false)
	must(t, s.jobs())
	if ok, err := s.log.Holds(c); err != nil || !ok {
		t.Fatal("the body is not here", err)
	}
	s.settle()
	if ok, err := s.log.Holds(c); err != nil || ok {
		t.Errorf("the body is still here: %v", err)
	}
	if s.log.Retain(c.Ref) {
		t.Error("a body that was dropped was retained")
	}
	data := segment.AppendData(nil, []segment.Commit{c}, nil)
	err := s.append(&Append{Entries: []segment.Entry{{Index: s.next, Term: 1, Data: data}}})
	if !errors.Is(err, ErrAbsent) {
		t.Errorf("an entry names a body that was dropped: %v", err)
	}
	must(t, s.store.Close())
}

// TestMemoryPerLive: however the live bodies lie, each costs at most 16 bytes of heap; in order, nothing.
func TestMemoryPerLive(t *testing.T) {
	const messages = 120_000
	s := realStore(t, t.TempDir())
	l, err := s.OpenLog(testGroup)
	must(t, err)
	must(t, fill(l, messages, 64, 256))
	before := heap()
	for seq := range uint64(messages) {
		l.Retain(segment.BodyRef{Term: 1, Seq: seq + 1})
	}
	if per := float64(int64(heap())-int64(before)) / messages; per > 0.1 {
		t.Errorf("%.2f bytes for a body of which all others are live too", per)
	}
	for seq := uint64(1); seq <= messages; seq += 2 {
		l.Release(segment.BodyRef{Term: 1, Seq: seq})
	}
	per := float64(int64(heap())-int64(before)) / (messages / 2)
	t.Logf("%.2f bytes of heap for each live body when every second is settled", per)
	if per > 16 {
		t.Errorf("%.1f bytes for a live body, at most 16", per)
	}
	runtime.KeepAlive(l)
	must(t, s.Close())
}
