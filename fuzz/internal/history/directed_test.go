package history

import (
	"fmt"
	"strings"
	"testing"

	"weida/broker/client"
	"weida/broker/wire"
)

// script is a history that is written down by hand: one producer, one queue, every call with its answer.
type script struct {
	lines []Line
	ref   uint64
}

func (s *script) note(e Event) {
	s.lines = append(s.lines, Line{T: Time(len(s.lines) + 1), Client: "c", Event: e})
}

func sentBy(producer string, seq uint64) Message {
	return Message{producer, seq, 1, DigestOf(fmt.Appendf(nil, "%s/%d", producer, seq))}
}

var scripted = Queue{"q", 7}

// stored publishes message seq of p, which is confirmed at an offset.
func (s *script) stored(seq, offset, term uint64, e wire.Evidence) {
	s.ref++
	s.note(&Publish{Ref: s.ref, Queue: scripted, Message: sentBy("p", seq), Want: Of(e)})
	s.note(&Answer{Ref: s.ref, Outcome: client.OK, Evidence: Of(e), Committed: true, Offset: offset, Term: term})
}

func (s *script) fault(k FaultKind, over bool, nodes ...string) {
	s.ref++
	s.note(&Fault{Ref: s.ref, Fault: k, Nodes: nodes})
	if over {
		s.note(&FaultDone{Ref: s.ref})
	}
}

// looked shows messages of p at offsets that are one below their sequences.
func (s *script) looked(seqs ...uint64) {
	e := &Audit{Queue: scripted}
	for _, seq := range seqs {
		e.Messages = append(e.Messages, Stored{seq - 1, 1, sentBy("p", seq)})
	}
	s.note(e)
}

func (s *script) dump(node string, at DumpAt, seqs ...uint64) {
	s.note(&Dump{Node: node, Group: 7, At: at})
	for _, seq := range seqs {
		s.note(&Entry{
			Node: node, Group: 7, Index: seq, Term: 1, Sum: DigestOf(fmt.Append(nil, seq)),
			Adds: []Stored{{seq - 1, 1, sentBy("p", seq)}},
		})
	}
	s.note(&DumpEnd{Node: node, Group: 7})
}

func (s *script) broken() (list []string) {
	r := judge(s.lines, 30)
	for _, x := range rules {
		if x.Rule != Liveness && r.Rules[x.Rule].Broken > 0 {
			list = append(list, string(x.Rule))
		}
	}
	return list
}

// What evidence may cost is decided by evidence and faults alone (nats-server 7564: what was confirmed as flushed is
// there after all nodes lost power, and of what was only written it is said exactly what is gone).
func TestWhatFaultsMayCost(t *testing.T) {
	written, flushed := wire.Stored(wire.Written), wire.Stored(wire.Flushed)
	two, twoFlushed := wire.Replicated(2, wire.Written), wire.Replicated(2, wire.Flushed)
	cut := func(s *script) { s.fault(PowerCut, true, "n1") }
	cuts := func(s *script) { s.fault(PowerCut, true, "n1", "n2", "n3") }
	for _, c := range []struct {
		name  string
		e     wire.Evidence
		fault func(*script)
		want  string
	}{
		{"NothingHappened", written, func(*script) {}, "Q2"},
		{"WrittenAfterAKill", written, func(s *script) { s.fault(Kill, true, "n1") }, "Q2"},
		{"WrittenAfterAPowerCut", written, cut, ""},
		{"FlushedAfterAPowerCut", flushed, cut, "Q2"},
		{"FlushedAfterALostDisk", flushed, func(s *script) { s.fault(DiskLost, true, "n1") }, ""},
		{"TwoWrittenAfterOneCut", two, cut, "Q2"},
		{"TwoWrittenAfterAllWereCut", two, cuts, "Q2b"},
		{"TwoWrittenAndTold", two, func(s *script) { cuts(s); s.note(&Lost{scripted, 2, 3}) }, ""},
		{"TwoWrittenAndToldOfOthers", two, func(s *script) { cuts(s); s.note(&Lost{scripted, 0, 2}) }, "Q2b"},
		{"TwoFlushedAfterAllWereCut", twoFlushed, cuts, "Q2"},
		{"TwoFlushedAfterOneDamage", twoFlushed, func(s *script) { s.fault(DiskFault, false, "n2") }, "Q2"},
		{"TwoFlushedAfterDamagesInTurn", twoFlushed, func(s *script) {
			s.fault(DiskFault, true, "n1")
			s.fault(DiskFault, true, "n2")
		}, "Q2"},
		{"TwoFlushedAfterDamagesAtATime", twoFlushed, func(s *script) {
			s.fault(DiskFault, false, "n1")
			s.fault(DiskFault, true, "n2")
			s.note(&Lost{scripted, 2, 3})
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			s.stored(1, 0, 1, c.e)
			s.stored(2, 1, 1, c.e)
			s.stored(3, 2, 1, c.e)
			c.fault(s)
			s.stored(4, 3, 1, c.e)
			s.looked(1, 2, 4)
			if got := strings.Join(s.broken(), " "); got != c.want {
				t.Errorf("broken are %q, want %q\n%s", got, c.want, judge(s.lines, -1).Table())
			}
		})
	}
}

// A fault from before a message costs it nothing, and one that is not over may.
func TestFaultsOfBefore(t *testing.T) {
	s := &script{}
	s.fault(PowerCut, true, "n1")
	s.stored(1, 0, 1, wire.Stored(wire.Written))
	s.looked()
	if got := s.broken(); len(got) != 1 || got[0] != "Q2" {
		t.Errorf("a cut of before: %v", got)
	}
	s = &script{}
	s.fault(PowerCut, false, "n1")
	s.stored(1, 0, 1, wire.Stored(wire.Written))
	s.looked()
	if got := s.broken(); len(got) != 0 {
		t.Errorf("a cut under way: %v", got)
	}
}

// The kind of a loss names the bug.
func TestPartsOfLosses(t *testing.T) {
	for _, c := range []struct {
		there []uint64
		want  map[Part]int
	}{
		{[]uint64{1, 2, 3, 4, 5}, nil},
		{[]uint64{3, 4, 5}, map[Part]int{Prefix: 2}},
		{[]uint64{1, 2, 3}, map[Part]int{Suffix: 2}},
		{[]uint64{1, 5}, map[Part]int{Middle: 3}},
		{[]uint64{2, 4}, map[Part]int{Prefix: 1, Middle: 1, Suffix: 1}},
		{nil, map[Part]int{Whole: 5}},
	} {
		s := &script{}
		for seq := range uint64(5) {
			s.stored(seq+1, seq, 1, wire.Stored(wire.Flushed))
		}
		s.looked(c.there...)
		r := judge(s.lines, -1)
		var got map[Part]int
		for _, l := range r.Lost {
			got = l.Parts
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("there are %v: %v, want %v", c.there, got, c.want)
		}
		if lost := 5 - len(c.there); r.Rules[Loss].Broken != lost {
			t.Errorf("%d are lost, and %d said so", lost, r.Rules[Loss].Broken)
		}
	}
}

// Evidence is compared with disks: images after a power cut hold what was flushed, those after a kill what was written,
// and neither is asked for what was confirmed later.
func TestEvidenceAgainstDisks(t *testing.T) {
	for _, c := range []struct {
		name string
		e    wire.Evidence
		at   DumpAt
		on   int
		want string
	}{
		{"TwoOfTwo", wire.Replicated(2, wire.Flushed), AtPowerCut, 2, ""},
		{"OneTooMany", wire.Replicated(3, wire.Flushed), AtPowerCut, 2, "Q8b"},
		{"WrittenIsNotAsked", wire.Replicated(3, wire.Written), AtPowerCut, 2, ""},
		{"WrittenAfterAKill", wire.Replicated(3, wire.Written), AtKill, 2, "Q8b"},
		{"AllAfterAKill", wire.Replicated(3, wire.Written), AtKill, 3, ""},
		{"AtAStop", wire.Replicated(3, wire.Flushed), AtStop, 2, "Q8b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			s.note(&Change{Ref: 100, Name: "q", Do: Create, Replicas: 3, Durability: "flushed"})
			s.note(&Changed{Ref: 100, Fate: Done, UID: 7})
			s.stored(1, 0, 1, wire.Replicated(2, wire.Flushed))
			s.stored(2, 1, 1, c.e)
			for i := range 3 {
				seqs := []uint64{1}
				if i < c.on {
					seqs = append(seqs, 2)
				}
				s.dump(fmt.Sprint("n", i+1), c.at, seqs...)
			}
			s.stored(3, 2, 1, wire.Replicated(3, wire.Flushed))
			if got := strings.Join(s.broken(), " "); got != c.want {
				t.Errorf("broken are %q, want %q", got, c.want)
			}
		})
	}
}

// A snapshot holds what it says, and what was taken out before it.
func TestEvidenceInSnapshots(t *testing.T) {
	for _, c := range []struct {
		held []Run
		want string
	}{{[]Run{{0, 1}}, ""}, {[]Run{{1, 5}}, "Q8b"}, {nil, "Q8b"}} {
		s := &script{}
		s.stored(1, 0, 1, wire.Stored(wire.Flushed))
		s.note(&Dump{Node: "n1", Group: 7, At: AtStop, Base: 9, Next: 6, Held: c.held})
		s.note(&DumpEnd{Node: "n1", Group: 7, Last: 9, Next: 6})
		if got := strings.Join(s.broken(), " "); got != c.want {
			t.Errorf("%v: broken are %q, want %q", c.held, got, c.want)
		}
	}
}

// Results that each rule for itself allows, and that no one order explains.
func TestNoOrder(t *testing.T) {
	e := wire.Replicated(2, wire.Flushed)
	reversed := func(s *script) {
		for i, p := range []string{"p", "r"} { // one after the other, and stored the other way round
			s.ref++
			s.note(&Publish{Ref: s.ref, Queue: scripted, Message: sentBy(p, 1), Want: Of(e)})
			s.note(&Answer{
				Ref: s.ref, Outcome: client.OK, Evidence: Of(e), Committed: true, Offset: uint64(1 - i), Term: 1,
			})
		}
	}
	deleted := func(s *script) {
		s.stored(1, 0, 1, e)
		s.note(&Change{Ref: 100, Name: "q", Do: Delete})
		s.note(&Changed{Ref: 100, Fate: Done, UID: 7})
		s.stored(2, 1, 1, e)
	}
	beside := func(s *script) { // the deletion may have come behind it
		s.note(&Change{Ref: 100, Name: "q", Do: Delete})
		s.stored(1, 0, 1, e)
		s.note(&Changed{Ref: 100, Fate: Done, UID: 7})
	}
	hole := func(s *script) { s.stored(1, 1, 1, e) }
	perhaps := func(s *script) { // what has no answer fills the hole
		s.note(&Publish{Ref: 100, Queue: scripted, Message: sentBy("r", 1), Want: Of(e)})
		s.stored(1, 1, 1, e)
	}
	for name, c := range map[string]struct {
		do   func(*script)
		want string
	}{
		"Reversed": {reversed, "Q12"}, "AfterDeletion": {deleted, "Q12"}, "BesideDeletion": {beside, ""},
		"Hole": {hole, "Q12"}, "Perhaps": {perhaps, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{}
			c.do(s)
			if got := strings.Join(s.broken(), " "); got != c.want {
				t.Errorf("broken are %q, want %q", got, c.want)
			}
		})
	}
}
