package history

import (
	"slices"
	"testing"

	"weida/broker/wire"
)

// A queue with one replica shows what it has written; the power takes it, and a session that goes on sees its offsets
// again, in a higher term. Without a cut, and in one term, first deliveries rise.
func TestOffsetsAreGivenAgain(t *testing.T) {
	for _, c := range []struct {
		cut  bool
		term uint64
		good bool
	}{{true, 2, true}, {false, 2, false}, {true, 1, false}} {
		s := &script{}
		s.ref++
		s.note(&Change{Ref: s.ref, Name: scripted.Name, Do: Apply, Replicas: 1, Durability: "flushed"})
		s.note(&Changed{Ref: s.ref, Fate: Done, UID: scripted.UID})
		s.stored(1, 6, c.term, wire.Stored(wire.Flushed))
		first := s.lines[len(s.lines)-1]
		s.lines = s.lines[:len(s.lines)-1]
		s.ref++
		s.note(&Publish{Ref: s.ref, Queue: scripted, Message: sentBy("p", 2), Want: Of(wire.Stored(wire.Flushed))})
		s.note(&Deliver{Queue: scripted, Session: "s", Attempt: 1, Stored: Stored{8, 1, sentBy("p", 2)}})
		if c.cut {
			s.fault(PowerCut, true, "n1")
		}
		s.note(first.Event)
		s.note(&Deliver{Queue: scripted, Session: "s", Attempt: 1, Stored: Stored{6, c.term, sentBy("p", 1)}})
		if got := !slices.Contains(s.broken(), string(DeliveryOrder)); got != c.good {
			t.Errorf("cut %v, term %d: in order is %v", c.cut, c.term, got)
		}
	}
}

// What one replica had written and not flushed was committed; the power took it, and its entries are given again. Of
// several replicas, and without a cut, an entry that was committed stays.
func TestEntriesAreGivenAgain(t *testing.T) {
	for _, c := range []struct {
		replicas int
		cut      bool
		good     bool
	}{{1, true, true}, {1, false, false}, {3, true, false}} {
		s := &script{}
		s.ref++
		s.note(&Change{Ref: s.ref, Name: scripted.Name, Do: Apply, Replicas: c.replicas, Durability: "flushed"})
		s.note(&Changed{Ref: s.ref, Fate: Done, UID: scripted.UID})
		dump := func(term uint64, at DumpAt) {
			s.note(&Dump{Node: "n1", Group: scripted.UID, At: at})
			s.note(&Entry{Node: "n1", Group: scripted.UID, Index: 1, Term: term, Sum: DigestOf([]byte{byte(term)})})
			s.note(&DumpEnd{Node: "n1", Group: scripted.UID, Last: 1, Commit: 1})
		}
		dump(1, AtKill)
		if c.cut {
			s.fault(PowerCut, true, "n1")
		}
		dump(2, AtPowerCut)
		if got := !slices.Contains(s.broken(), string(Agreement)); got != c.good {
			t.Errorf("%d replicas, cut %v: replicas agree is %v", c.replicas, c.cut, got)
		}
	}
}

// A queue with one replica moves: on its way it has two, which confirm, and then one again, on another disk. What two
// confirmed without such a change has to be on two.
func TestMovedQueueHasFewerDisks(t *testing.T) {
	for _, moves := range []bool{true, false} {
		s := &script{}
		apply := func(ref uint64) {
			s.note(&Change{Ref: ref, Name: scripted.Name, Do: Apply, Replicas: 1, Durability: "flushed"})
		}
		done := func(ref uint64) { s.note(&Changed{Ref: ref, Fate: Done, UID: scripted.UID}) }
		apply(100)
		done(100)
		if moves {
			apply(101)
		}
		s.stored(1, 0, 1, wire.Replicated(2, wire.Flushed))
		if moves {
			done(101)
		}
		s.dump("n1", AtStop, 1)
		s.dump("n2", AtStop)
		if got := slices.Contains(s.broken(), string(Held)); got == moves {
			t.Errorf("it moves: %v; two disks are missed: %v", moves, got)
		}
	}
}
