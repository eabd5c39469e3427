package raftstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weida/segment"
)

// One round writes everything that waits as one entry; written, applied and told in the same round,
// flushed in a later one.
func TestRoundCoalescesProposals(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	if m.role != Owner || m.term == 0 || m.now().Term != m.term {
		t.Fatalf("role %v, term %d, marks %+v", m.role, m.term, m.now())
	}
	a := m.must(put("k1", "one"), note("x"))
	b := m.must(put("k2", "two"))
	c := m.must(del("k1"))
	if len(m.answers) != 0 {
		t.Fatal("answered outside a round")
	}
	r.run()
	if i := m.appended(a); i != 1 || m.appended(b) != i || m.appended(c) != i {
		t.Fatalf("answers %+v, want one entry", m.answers)
	}
	if got := strings.Join(m.applied, " "); got != "pk1 nx pk2 dk1" {
		t.Fatalf("applied %q", got)
	}
	want := Marks{Term: m.term, Written: 1, Flushed: 0, Committed: 1, Applied: 1}
	if m.now() != want {
		t.Fatalf("marks %+v, want %+v", m.now(), want)
	}
	m.complete() // buffers came back at written
	if got := m.read("k2"); got != "two" {
		t.Fatalf("body %q", got)
	}
	r.settle()
	want.Flushed = 1
	if m.now() != want {
		t.Fatalf("marks %+v, want %+v", m.now(), want)
	}
	if st := m.group.Status(); st.Marks != want || st.Role != Owner || st.ReadOnly != nil || st.Inbox != 0 {
		t.Fatalf("status %+v", st)
	}
	r.stop()
}

// A batch that asks for it has an entry of its own, in its turn and in the same round.
func TestRoundLeavesAlone(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	alone := func(item Item) uint64 {
		m.nextTag++
		tag := m.nextTag
		m.asked[tag], m.lines[tag] = true, []string{string(item.Command)}
		err := m.group.Propose(&Batch{Tag: tag, Items: []Item{item}, Alone: true, Free: func() {
			m.free(tag, []Item{item})
		}})
		if err != nil {
			t.Fatal(err)
		}
		return tag
	}
	tags := []uint64{m.must(note("a")), m.must(note("b")), alone(note("c")), alone(note("d")), m.must(note("e"))}
	r.run()
	for i, want := range []Index{1, 1, 2, 3, 4} {
		if got := m.appended(tags[i]); got != want {
			t.Errorf("batch %d is entry %d, want %d", i, got, want)
		}
	}
	if got := strings.Join(m.applied, " "); got != "na nb nc nd ne" {
		t.Errorf("applied %q", got)
	}
	r.stop()
}

// A round's items are split into entries of one write each, in order, and no proposal is torn apart.
func TestRoundSplitsAtOneWrite(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	var tags []uint64
	for i := range 10 {
		tags = append(tags, m.must(put(fmt.Sprint("k", i), strings.Repeat(string(rune('a'+i)), segment.InlineMax))))
	}
	r.settle()
	for i, tag := range tags {
		if got, want := m.appended(tag), Index(1+i/3); got != want {
			t.Errorf("proposal %d in entry %d, want %d", i, got, want)
		}
	}
	for i := range 10 {
		if got := m.read(fmt.Sprint("k", i)); got != strings.Repeat(string(rune('a'+i)), segment.InlineMax) {
			t.Errorf("body %d is wrong", i)
		}
	}
	m.complete()
	r.stop()
}

// One group's full inbox is written over several rounds; another group's proposal is in the first.
func TestRoundBudget(t *testing.T) {
	r := newRig(t)
	big, small := newKV(t, "big"), newKV(t, "small")
	r.open(2, big)
	r.open(4, small) // the same shard
	r.settle()
	big.must(note("make the segment"))
	small.must(note("make the segment"))
	r.settle()
	for i := range 100 {
		big.must(put(fmt.Sprint("k", i), strings.Repeat("x", segment.InlineMax)))
	}
	tag := small.must(note("quick"))
	r.host.Step()
	small.appended(tag)
	written := int(big.now().Written-1) * 3 * segment.InlineMax
	if written == 0 || written > roundBytesGroup+MaxBatchBytes {
		t.Fatalf("about %d bytes in one round", written)
	}
	r.settle()
	big.complete()
	if big.now().Flushed != 1+34 {
		t.Fatalf("marks %+v", big.now())
	}
	r.stop()
}

// Groups for which a round had no room left are first in the next: nobody starves.
func TestRoundIsFair(t *testing.T) {
	r := newRigWith(t, HostOptions{Shards: 1})
	var all []*kv
	for g := range GroupID(10) {
		m := newKV(t, fmt.Sprint("g", g+1))
		r.open(g+1, m)
		m.must(note("make the segment"))
		all = append(all, m)
	}
	r.settle()
	for _, m := range all {
		for i := range 100 {
			m.must(put(fmt.Sprint("k", i), strings.Repeat("x", segment.InlineMax)))
		}
	}
	r.host.Step()
	first := 0
	for _, m := range all {
		first += int(m.now().Written-1) * 3 * segment.InlineMax
	}
	if first == 0 || first > roundBytesShard+roundBytesGroup {
		t.Errorf("%d bytes in one round", first)
	}
	for range 2 { // 10 MiB of 4 MiB a round
		r.host.Step()
	}
	for _, m := range all {
		if m.now().Written == 1 {
			t.Errorf("%s has waited three rounds", m.name)
		}
	}
	r.settle()
	r.stop()
}

// The inbox is bounded by messages and bytes; what was refused was not taken, and room comes back when
// proposals are written (W-75).
func TestProposeFull(t *testing.T) {
	r := newRigWith(t, HostOptions{Shards: 1, InboxMessages: 3})
	m := newKV(t, "a")
	r.open(1, m)
	m.must(note("1"), note("2"))
	m.must(note("3"))
	if _, err := m.propose(note("4")); !errors.Is(err, ErrFull) {
		t.Fatalf("beyond the bound: %v", err)
	}
	r.run()
	m.must(note("5"), note("6"), note("7"))
	if n := m.group.Status().Inbox; n != 1 {
		t.Fatalf("%d proposals wait, want 1", n)
	}
	r.run()
	m.complete()
	if got := strings.Join(m.applied, " "); got != "n1 n2 n3 n5 n6 n7" {
		t.Fatalf("applied %q", got)
	}
	r.stop()
}

func TestProposeFullOfBytes(t *testing.T) {
	r := newRigWith(t, HostOptions{Shards: 1, InboxBytes: 1})
	m := newKV(t, "a")
	r.open(1, m)
	for range 3 {
		m.must(put("k", strings.Repeat("x", segment.InlineMax)))
	}
	if _, err := m.propose(put("k", strings.Repeat("x", segment.InlineMax))); !errors.Is(err, ErrFull) {
		t.Fatalf("the bound is one batch: %v", err)
	}
	r.run()
	m.complete()
	r.stop()
}

func TestProposeTooLarge(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	for name, items := range map[string][]Item{
		"inline body": {put("k", strings.Repeat("x", segment.InlineMax+1))},
		"batch":       {note(strings.Repeat("x", MaxBatchBytes))},
	} {
		if _, err := m.propose(items...); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	tag := m.must(note(strings.Repeat("x", MaxBatchBytes-itemOverhead-1)))
	r.run()
	m.appended(tag)
	m.complete()
	r.stop()
}

// A log that is not ready holds its group's proposals back, without an answer, until its job is done.
func TestNotReadyWaits(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	r.run()
	tag := m.must(note("first"))
	s := r.host.shardOf(1)
	for range 3 { // rounds without jobs
		s.round()
		if _, ok := m.answers[tag]; ok {
			t.Fatal("answered before the log had a segment")
		}
	}
	later := m.must(note("second"))
	r.run()
	if m.appended(tag) != 1 || m.appended(later) != 1 {
		t.Fatalf("answers %+v", m.answers)
	}
	r.stop()
}

// The machine may propose from its callbacks; the proposal is part of a later round.
func TestProposeFromApply(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	m.onApply = func(i Index, _ []Item) {
		if i < 5 {
			m.must(note(fmt.Sprint("after", i)))
		}
	}
	r.open(1, m)
	m.must(note("start"))
	r.settle()
	if got := strings.Join(m.applied, " "); got != "nstart nafter1 nafter2 nafter3 nafter4" {
		t.Fatalf("applied %q", got)
	}
	m.complete()
	r.stop()
}

// A round that follows no event does nothing: idle groups cost nothing.
func TestIdleRound(t *testing.T) {
	r := newRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	m.must(note("x"))
	r.settle()
	if r.host.Step() {
		t.Fatal("worked without work")
	}
	r.stop()
}
