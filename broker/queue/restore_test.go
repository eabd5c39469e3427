package queue

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
)

// rich is a state that has something of everything.
//
//	offset  0 accepted · 1 open, a · 2 returned · 3 ready, p:3 · 4 purged · 5 large · 6 ready, gone · 7, 8, 9 ready
func rich() *State {
	s := &State{}
	for _, c := range []Command{
		{Kind: Configure, MaxMessages: 100, MaxBytes: 1 << 40},
		{Kind: Register, Producer: "p", Identity: [32]byte{1}},
		{Kind: Register, Producer: "gone"},
		{Kind: PublishFrom, Slot: 1, Seq: 1, Body: Ref{1, 1}, Length: 10},
		{Kind: PublishFrom, Slot: 1, Seq: 2, Body: Ref{1, 2}, Length: 10},
		{Kind: Publish, Body: Ref{1, 3}, Length: 20},
		{Kind: Attach, Subscription: "a", Session: 1, Limit: 3},
		{Kind: Settle, Subscription: "a", Offset: 0, Attempt: 1, Term: 1, Verb: Accept},
		{Kind: Settle, Subscription: "a", Offset: 2, Attempt: 1, Term: 1, Verb: Release},
		{Kind: PublishFrom, Slot: 1, Seq: 3, Low: 2, Body: Ref{2, 1}, Length: 30},
		{Kind: Attach, Subscription: "b", Session: 2, Limit: 0},
	} {
		s.Apply(c, nil)
	}
	s.next, s.counts.Purged = 5, 1 // message 4
	for _, c := range []Command{
		{Kind: Publish, Body: Ref{2, 2}, Length: 1 << 20, Large: &Large{Length: 1 << 20, Digest: [16]byte{1, 2}}},
		{Kind: PublishFrom, Slot: 2, Seq: 1, Body: Ref{2, 4}, Length: 30},
		{Kind: Retire, Producer: "gone"},
		{Kind: Publish, Body: Ref{2, 5}, Length: 40},
		{Kind: Publish, Body: Ref{2, 6}, Length: 40},
		{Kind: Publish, Body: Ref{2, 7}, Length: 40},
	} {
		s.Apply(c, nil)
	}
	return s
}

// The bytes of a snapshot: they change only with the version.
func TestSnapshotBytes(t *testing.T) {
	want := []string{
		"02", "0a03", "01000101", "64", "808080808020", "02", "00", "00", // numbers, not closed
		"02", "01000170" + "01" + strings.Repeat("00", 31) + "0202" + "02010101" + "03010302", // producer p
		"02" + "01" + "04676f6e65",                            // producer gone
		"fb" + "01" + "01" + "01" + "04" + "0a" + "01" + "04", // message 1: term 1, ref 2, 10 bytes, slot 1, seq 2
		"e1" + "14" + "00" + "05",                             // message 2
		"f9" + "01" + "01" + "02" + "1e" + "01" + "06",        // message 3: term 2
	}
	got := hex.EncodeToString(rich().Snapshot())
	if !strings.HasPrefix(got, strings.Join(want, "")) {
		t.Errorf("got  %s\nwant %s…", got, strings.Join(want, " "))
	}
}

// TestRestoreInPieces: wherever the bytes are cut, they give the same state, or none if they end there.
func TestRestoreInPieces(t *testing.T) {
	b := rich().Snapshot()
	for n := range len(b) {
		var r Restorer
		if err := r.Write(b[:n]); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if _, err := Restore(b[:n]); err == nil || !strings.Contains(err.Error(), "cut short") {
			t.Errorf("%d bytes of %d: %v", n, len(b), err)
		}
		if err := r.Write(b[n:]); err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		s, err := r.Finish()
		if err != nil || !bytes.Equal(s.Snapshot(), b) {
			t.Fatalf("cut at %d: another state, %v", n, err)
		}
		if _, err := r.Finish(); err == nil {
			t.Fatal("one state twice")
		}
	}
	if _, err := Restore(append(b, 0)); err == nil || !strings.Contains(err.Error(), "left over") {
		t.Errorf("a byte more: %v", err)
	}
	var r Restorer
	if err := r.Write([]byte{9}); err == nil || r.Write(b) == nil {
		t.Error("goes on after an error")
	}
	if _, err := r.Finish(); err == nil {
		t.Error("a state after an error")
	}
	r = Restorer{}
	if err := r.Write(append(b, 0)); err == nil {
		t.Error("a byte more is taken")
	}
	if _, err := r.Finish(); err == nil {
		t.Error("a state although there was a byte more")
	}
}

// TestPiecesAreBounded: the writer's memory does not follow the state's size, and it stops when told.
func TestPiecesAreBounded(t *testing.T) {
	s := &State{}
	for i := range uint64(100_000) {
		s.Apply(Command{Kind: Publish, Body: Ref{1, i + 1}, Length: int64(i % 7)}, nil)
	}
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 1 << 30}, nil)
	var largest, count, total int
	s.View().Pieces(func(b []byte) bool {
		largest, count, total = max(largest, len(b)), count+1, total+len(b)
		return true
	})
	if largest > pieceBytes+200 || total != len(s.Snapshot()) {
		t.Errorf("%d bytes in %d pieces of up to %d", total, count, largest)
	}
	for stop := range count {
		n := 0
		s.View().Pieces(func([]byte) bool { n++; return n <= stop })
		if n != stop+1 {
			t.Fatalf("told to stop at piece %d, went on to %d", stop, n)
		}
	}
}

// TestRestoreBesideALargeBody: a large body has its ref early, so refs may go on across the place that it left.
func TestRestoreBesideALargeBody(t *testing.T) {
	q := newTable(t)
	for _, c := range []Command{
		{Kind: Publish, Body: Ref{1, 2}},
		{Kind: Publish, Body: Ref{1, 1}, Large: &Large{}},
		{Kind: Publish, Body: Ref{1, 3}},
		{Kind: Attach, Subscription: "a", Session: 1, Limit: 3},
	} {
		q.s.Apply(c, nil)
	}
	q.do(Command{Kind: Settle, Subscription: "a", Offset: 1, Attempt: 1, Term: 1, Verb: Accept},
		Effect{Kind: Settled, Offset: 1, Attempt: 1}, Effect{Kind: Freed, Ref: Ref{1, 1}, Count: 1})
}

// stretchesOf are a state's messages as its snapshot has them.
func stretchesOf(s *State) (list []stretch) {
	s.present.stretches(0, func(offset, n uint64, m message) bool {
		list = append(list, stretch{offset, n, m})
		return true
	})
	return list
}

// encode is Snapshot with other messages, which no set of messages has to hold.
func encode(s *State, list []stretch) []byte {
	w := &pieces{}
	w.yield = func(b []byte) bool { panic("more than a piece") }
	w.head(s)
	w.producers(s)
	var last stretch
	for _, x := range list {
		w.b = x.append(w.b, &last)
		last = x
	}
	w.b = append(w.b, 0)
	w.returned(s)
	w.subs(s)
	return w.b
}

// TestRestoreRefuses breaks each rule that every state keeps, once.
func TestRestoreRefuses(t *testing.T) {
	p := func(s *State) *producer { return s.producer(1) }
	for _, c := range []struct {
		want string
		harm func(*State)
	}{
		{"beyond the end", func(s *State) { s.next = offsetMax + 1 }},
		{"beyond the end", func(s *State) { s.cursor = s.next + 1 }},
		{"more went out", func(s *State) { s.counts.Accepted = s.next + 1 }},
		{"more went out", func(s *State) { s.counts.Rejected = s.next + 1 }},
		{"more went out", func(s *State) { s.counts.Purged = s.next + 1 }},
		{"than a queue has", func(s *State) { s.turn = SubscriptionsMax }},
		{"than a queue has", func(s *State) { s.slotsUsed = 1 }},
		{"than a queue has", func(s *State) { s.slotsUsed = offsetMax + 1 }},
		{"what came in is not", func(s *State) { s.next++ }},
		{"what came in is not", func(s *State) { s.counts.Accepted++ }},
		{"what came in is not", func(s *State) { s.counts.Rejected++ }},
		{"what came in is not", func(s *State) { s.counts.Purged-- }},
		{"more messages were settled than assigned", func(s *State) { s.counts.Accepted, s.counts.Purged = 2, 0 }},
		{"an assigned message is neither", func(s *State) { s.cursor = 4 }},
		{"an assigned message is neither", func(s *State) { s.returned.clear() }},

		{"a producer's slot", func(s *State) { s.slotsUsed = 3; s.producers.put(0, &producer{id: "x", low: 1}) }},
		{"a producer's slot", func(s *State) { s.slotsUsed = 3; s.producers.put(4, &producer{id: "x", low: 1}) }},
		{"an id of its own", func(s *State) { p(s).id = "" }},
		{"an id of its own", func(s *State) { s.slotsUsed = 3; s.producers.put(3, &producer{id: "p", low: 1}) }},
		{"a producer beyond", func(s *State) { p(s).low = 0 }},
		{"a producer beyond", func(s *State) { p(s).low = seqMax + 1 }},
		{"a producer beyond", func(s *State) { p(s).known = make([]outcomes, SequencesMax+1) }},
		{"a retired producer without", func(s *State) {
			s.slotsUsed = 3
			s.producers.put(3, &producer{id: "x", retired: true})
		}},
		{"an outcome of a sequence that", func(s *State) { p(s).known[0].count = 0 }},
		{"an outcome of a sequence that", func(s *State) { p(s).known[0].seq = 1 }},
		{"an outcome of a sequence that", func(s *State) { p(s).known[1].seq = 2 + SequencesMax }},
		{"an outcome of a sequence that", func(s *State) { p(s).known[1].count = SequencesMax }},
		{"an outcome of a sequence that", func(s *State) { p(s).known[1].count = math.MaxUint64 }},
		{"outcome beyond the end", func(s *State) { p(s).known[1].offset = s.next }},
		{"outcome beyond the end", func(s *State) { p(s).known[1].offset = s.next + 1 }},
		{"outcome beyond the end", func(s *State) { p(s).known[1].count, p(s).known[1].offset = 2, s.next-1 }},
		{"overlap or are not joined", func(s *State) { p(s).known[1].seq = 2 }},
		{"overlap or are not joined", func(s *State) { p(s).known[0].count = 2 }},
		{"overlap or are not joined", func(s *State) { p(s).known[1].offset, p(s).known[1].term = 2, 1 }},
		{"several sequences that are one", func(s *State) { p(s).known[1].offset = 1 }},
		{"terms that fall", func(s *State) {
			p(s).low, p(s).known = 1, append([]outcomes{{1, 1, 0, 3}}, p(s).known...)
		}},
		{"an outcome that is another", func(s *State) { p(s).known[1].offset = 2 }},
		{"an outcome that is another", func(s *State) { p(s).known[1].term = 3 }},
		{"an outcome that is another", func(s *State) { p(s).known[1].seq = 4 }},
		{"an outcome that is another", func(s *State) { s.slotsUsed = 3; give(s, 3) }},
		{"whose sequence is not remembered", func(s *State) { p(s).known = p(s).known[:1] }},
		{"whose sequence is not remembered", func(s *State) { p(s).known[1].offset, p(s).known[1].term = 4, 2 }},

		{"a returned message: it was never", func(s *State) { s.returned.put(3, 1) }},
		{"a returned message: its attempts", func(s *State) { s.returned.put(2, 0) }},
		{"a returned message: its attempts", func(s *State) { s.returned.put(2, offsetMax+1) }},
		{"a returned message: it is not present", func(s *State) { s.returned.put(0, 1) }},
		{"an open delivery: it was never", func(s *State) { s.subs[0].open.put(3, 1) }},
		{"an open delivery: its attempts", func(s *State) { s.subs[0].open.put(1, 0) }},
		{"an open delivery: it is not present", func(s *State) { s.subs[0].open.put(0, 1) }},
		{"open and returned", func(s *State) {
			s.returned.clear()
			s.returned.put(1, 1)
		}},
		{"two deliveries", func(s *State) {
			s.returned.clear()
			s.subs[1].limit, s.subs[1].delivered = 1, 1
			s.subs[1].open.put(1, 1)
		}},
		{"beyond its credit", func(s *State) { s.subs[0].delivered = 4 }},
		{"more open deliveries", func(s *State) { s.subs[0].delivered = 0 }},
		{"more open deliveries", func(s *State) { s.subs[0].session = 0 }},
		{"two subscriptions of one id", func(s *State) { s.subs[1].id = "a" }},
		{"the turn of", func(s *State) { s.turn = 2 }},
		{"more subscriptions", func(s *State) {
			for i := range SubscriptionsMax - 1 {
				s.subs = append(s.subs, &subscription{id: fmt.Sprint(i)})
			}
		}},
	} {
		s := rich()
		if _, err := Restore(s.Snapshot()); err != nil {
			t.Fatal(err)
		}
		c.harm(s)
		back, err := Restore(s.Snapshot())
		if err == nil || !strings.Contains(err.Error(), c.want) || back != nil {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}

// give moves message 3 to another producer, without telling anybody.
func give(s *State, slot uint64) {
	s.producers.put(slot, &producer{gen: s.producers.gen, id: "x", low: 9, present: 1})
	var left messages
	s.present.stretches(0, func(offset, n uint64, m message) bool {
		if offset == 3 {
			m.slot = slot
		}
		left.addRun(offset, n, m)
		return true
	})
	s.present = left
}

// TestRestoreRefusesMessages breaks the rules of the list of messages.
func TestRestoreRefusesMessages(t *testing.T) {
	for _, c := range []struct {
		want string
		harm func([]stretch) []stretch
	}{
		{"overlap or lie beyond", func(l []stretch) []stretch { l[3].offset = 2; return l }},
		{"overlap or lie beyond", func(l []stretch) []stretch { l[5].n = 4; return l }},
		{"overlap or lie beyond", func(l []stretch) []stretch { l[5].n = math.MaxUint64; return l }},
		{"overlap or lie beyond", func(l []stretch) []stretch { l[5].offset = 10; return l }},
		{"overlap or lie beyond", func(l []stretch) []stretch { l[5].offset = 11; return l }},
		{"not joined", func(l []stretch) []stretch {
			a, b := l[5], l[5]
			a.n, b.offset, b.n, b.m = 1, b.offset+1, 2, b.m.shift(1)
			return append(l[:5], a, b)
		}},
		{"refs that do not rise", func(l []stretch) []stretch { l[5].m.ref.Seq = math.MaxUint64 - 1; return l }},
		{"refs that do not rise", func(l []stretch) []stretch { l[4].m.ref.Seq = math.MaxUint64; return l }},
		{"refs that do not rise", func(l []stretch) []stretch { l[5].m.ref.Seq = l[4].m.ref.Seq; return l }},
		{"a term that does not rise", func(l []stretch) []stretch { l[5].m.ref.Term = 1; return l }},
		{"one large body", func(l []stretch) []stretch { l[5].m.large = &Large{}; return l }},
		{"more bytes", func(l []stretch) []stretch { l[4].m.length = math.MaxInt64 + 1; return l }},
		{"more bytes", func(l []stretch) []stretch { l[5].m.length = math.MaxInt64; return l }},
		{"a sequence without", func(l []stretch) []stretch { l[0].m.seq = 0; return l }},
		{"a sequence without", func(l []stretch) []stretch { l[1].m.seq = 1; return l }},
		{"of a producer that nobody", func(l []stretch) []stretch { l[4].m.slot = 3; return l }},
		{"a sequence beyond", func(l []stretch) []stretch { l[4].m.seq = seqMax + 2; return l }},
		{"a sequence beyond", func(l []stretch) []stretch { l[5].m.slot, l[5].m.seq = 2, seqMax; return l }},
	} {
		s := rich()
		list := stretchesOf(s)
		if !bytes.Equal(encode(s, list), s.Snapshot()) {
			t.Fatal("encode is not Snapshot")
		}
		if _, err := Restore(encode(s, c.harm(list))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}

// TestRestoreRefusesBytes breaks the encoding: each state has one snapshot.
func TestRestoreRefusesBytes(t *testing.T) {
	// An empty queue of one message, by hand.
	head, tail := "02"+"0100"+"00000000"+"000000000000", "00"+"00"+"00"
	whole := head + "39" + "01" + "01" + "02" + "0a" + tail // term 1, ref 1, 10 bytes
	for _, c := range []struct{ bytes, want string }{
		{whole, ""},
		{"01" + whole[2:], "version 1"},
		{"03" + whole[2:], "version 3"},
		{"02" + "0100" + "00000000" + "000000000200" + whole[len(head):], "neither"},
		{head + "02" + tail, "an undefined flag"},
		{head + "3b" + "00" + "01" + "01" + "02" + "0a" + tail, "a difference that is none"}, // no gap
		{head + "3d" + "00" + "01" + "01" + "02" + "0a" + tail, "a difference that is none"}, // one message
		{head + "39" + "01" + "01" + "00" + "0a" + tail, "a difference that is none"},        // ref 0
		{head + "39" + "01" + "01" + "02" + "00" + tail, "a difference that is none"},        // no bytes
		{head + "79" + "01" + "01" + "02" + "0a" + "00" + tail, "a difference that is none"}, // no producer
		{head + "b9" + "01" + "01" + "02" + "0a" + "00" + tail, "a difference that is none"}, // no sequence
		{"02" + "0100" + "00000000" + "0000" + "a19c01" + "00" + "00" + "a19c01", "producers than a queue has"},
		{head + "39" + "00" + "02" + "0a" + tail, "an undefined flag"},
		{head + "39" + "04" + "02" + "0a" + tail, "an undefined flag"},
		{head + "39" + "01" + "00" + "02" + "0a" + tail, "a term that does not rise"},
		{head + "39" + "01" + "8100" + "02" + "0a" + tail, "longer than it has to be"},
		{head + "39" + "01" + "ffffffffffffffffff02" + "02" + "0a" + tail, "beyond 64 bits"},
		{head + "39" + "01" + "01" + "02" + "0a" + "00" + "00" + "01" + "41" + strings.Repeat("61", 65), "beyond its bound"},
		{strings.Replace(whole, "0100", "0101", 1), "neither open nor returned"},
		{"02" + "0100" + "00000001" + whole[14:], "a release of"},
		{"02" + "0101" + whole[6:len(whole)-4] + "02" + "0001" + "0001", "the offset does not rise"},
		{
			"02" + "0202" + whole[6:len(head)] + "3d" + "01" + "01" + "01" + "02" + "0a" + "00" +
				"02" + "0101" + "ffffffffffffffffff01" + "01", "the offset does not rise",
		},
		{whole[:len(whole)-2] + "01" + "0161" + "00" + "01" + "01" + "00", "never assigned a message"},
		{head + "39" + "01" + "01" + "02" + "0a" + "00" + "01" + "ffffffffffffffffff01" + "01", "never assigned"},
	} {
		raw, err := hex.DecodeString(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Restore(raw)
		if c.want == "" && (err != nil || !bytes.Equal(s.Snapshot(), raw)) {
			t.Errorf("%s: %v", c.bytes, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: want %q, got %v", c.bytes, c.want, err)
		}
	}
}

// TestRestoreAllocatesLittle: numbers that promise much do not make it allocate.
func TestRestoreAllocatesLittle(t *testing.T) {
	for _, raw := range []string{
		"02" + "ffffffffffffffff3f" + "00" + "00000000" + "0000" + "a09c01" + "00" + "00" + "a09c01",
		"02" + "0100" + "00000000" + "0000" + "00" + "00" + "00" + "00" + "39010102" + "0a" + "00" + "ffffffffffffffff7f",
		"02" + "0100" + "00000000" + "0000" + "00" + "00" + "00" + "00" + "3901010" + "20a" + "00" + "00" + "8008",
	} {
		b, err := hex.DecodeString(raw)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Restore(b); err == nil || !strings.Contains(err.Error(), "cut short") {
			t.Errorf("%s: %v", raw, err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%s: %d bytes allocated", raw, n)
		}
	}
	// As many messages of one kind as can be are one run: this test ends.
	const most = 1 << 55
	s := &State{}
	s.present.addRun(0, most, message{ref: Ref{1, 1}})
	s.next = most
	back, err := Restore(s.Snapshot())
	if err != nil || back.Counts().Ready != most {
		t.Fatal(err)
	}
	if e := back.Apply(Command{Kind: Purge}, nil); len(e) != 2 || e[1].Count != most {
		t.Errorf("%+v", e)
	}
}
