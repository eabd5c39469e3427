package raftstore

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"weida/segment"
	"weida/wal"
)

// fetchLog is a log with bodies 2.1 to 2.5 and a large one, 2.6, all named by entry 1.
func fetchLog(t *testing.T) (*rig, *wal.Log, []segment.Commit) {
	t.Helper()
	r := newRig(t)
	log, err := r.store.OpenLog(1)
	if err != nil {
		t.Fatal(err)
	}
	log.SetWaker(r.host.shards[0])
	var commits []segment.Commit
	app := wal.Append{}
	for i := range uint64(5) {
		c := commitOf(bref(2, 1+i), 1000)
		commits = append(commits, c)
		app.Bodies = append(app.Bodies, wal.Body{Ref: c.Ref, Payload: fill(c.Ref, 1000)})
	}
	big := commitOf(bref(2, 6), 100_000)
	big.Large = true
	commits = append(commits, big)
	f, err := log.NewBody(big.Ref, big.Length)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(fill(big.Ref, 100_000)); err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(big.Digest); err != nil {
		t.Fatal(err)
	}
	app.Large = append(app.Large, f)
	app.Entries = []segment.Entry{*entryOf(1, 2, commits...)}
	for err = log.Append(&app); errors.Is(err, wal.ErrNotReady); err = log.Append(&app) {
		if err := log.Job().Run(); err != nil {
			t.Fatal(err)
		}
		if err := log.Advance(); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(log.Close(), r.store.Close()); err != nil {
			t.Error(err)
		}
	})
	return r, log, commits
}

func kindsOf(t *testing.T, frames [][]byte) (bodies []BodyRef, settled, absent []BodyRef, at Index) {
	t.Helper()
	for _, b := range frames {
		p, err := decodePayload(b)
		if err != nil {
			t.Fatal(err)
		}
		switch p.kind {
		case bodyFrame:
			if !bytes.Equal(p.bytes, fill(p.body.Ref, len(p.bytes))) {
				t.Fatalf("body %v is another", p.body.Ref)
			}
			bodies = append(bodies, p.body.Ref)
		case settledFrame:
			settled, at = append(settled, p.refs...), p.settle
		case absentFrame:
			absent = append(absent, p.refs...)
		case wantFrame:
			t.Fatal("an answer that asks")
		}
	}
	return bodies, settled, absent, at
}

func TestFetch(t *testing.T) {
	_, log, commits := fetchLog(t)
	gone, later, never := commitOf(bref(2, 9), 10), commitOf(bref(3, 1), 10), commitOf(bref(3, 7), 10)
	wrong := commits[4]
	wrong.Digest[0] ^= 1
	waits := commitOf(bref(3, 2), 10)
	job := fetchJob{to: 7}
	for _, c := range commits[:4] {
		job.wants = append(job.wants, want{Index: 1, Body: c})
	}
	job.wants[3] = want{Index: 1, Body: segment.Commit{Ref: commits[3].Ref}, Loose: true}
	job.wants = append(job.wants, want{Index: 1, Body: wrong}, want{Index: 1, Body: commits[5]},
		want{Index: 1, Body: gone}, want{Index: 9, Body: later}, want{Index: 12, Body: never}, want{Index: 5, Body: waits},
		want{Index: 3, Body: segment.Commit{Ref: bref(2, 30)}, Loose: true},
		// The snapshot's entry is in the log, and of another term than a body that the snapshot holds.
		want{Index: 1, Body: segment.Commit{Ref: bref(1, 3), Length: 90_000, Large: true}, Loose: true})
	found := job.run(log)
	if len(found.large) != 1 || found.large[0] != commits[5] || len(found.rest) != 0 {
		t.Fatalf("large %+v", found.large)
	}
	s := standing{
		leads: true, settled: 8, applied: 8, last: 10,
		term: func(i Index) (Term, bool) { return map[Index]Term{1: 2, 9: 3, 10: 3}[i], i == 1 || i == 9 || i == 10 },
		held: func(r BodyRef) ([]byte, Digest, bool) {
			return fill(r, 10), segment.DigestOf(fill(r, 10)), r == waits.Ref
		},
	}
	bodies, settled, absent, at := kindsOf(t, found.answers(&s))
	here := []BodyRef{commits[0].Ref, commits[1].Ref, commits[2].Ref, commits[3].Ref, waits.Ref}
	if !slices.Equal(bodies, here) {
		t.Fatalf("bodies %v, want %v", bodies, here)
	}
	if !slices.Equal(settled, []BodyRef{gone.Ref, later.Ref, bref(2, 30), bref(1, 3)}) || at != 8 {
		t.Fatalf("settled %v as of %d", settled, at)
	}
	if !slices.Equal(absent, []BodyRef{never.Ref, wrong.Ref}) {
		t.Fatalf("absent %v", absent)
	}

	// One that does not lead never says settled: its tombstones may be of a later index than it has applied.
	s.leads = false
	_, settled, absent, _ = kindsOf(t, job.run(log).answers(&s))
	if len(settled) != 0 || len(absent) != 6 {
		t.Fatalf("settled %v, absent %v at a follower", settled, absent)
	}
	// A leader that has not applied an entry of its term vouches with the end of its log.
	s.leads, s.settled = true, 0
	if _, _, _, at = kindsOf(t, job.run(log).answers(&s)); at != 10 {
		t.Fatalf("settled as of %d", at)
	}
	// An entry of another term at that index is another entry.
	other := fetchJob{wants: []want{{Index: 9, Body: commitOf(bref(2, 40), 5)}}}
	if _, settled, absent, _ = kindsOf(t, other.run(log).answers(&s)); len(settled) != 0 || len(absent) != 1 {
		t.Fatalf("settled %v, absent %v", settled, absent)
	}
}

func TestFetchBounds(t *testing.T) {
	_, log, commits := fetchLog(t)
	var f fetcher
	for range fetchQueueMax {
		if !f.take(1, nil) {
			t.Fatal("dropped below the bound")
		}
	}
	if f.take(1, nil) {
		t.Fatal("no bound")
	}
	if _, ok := f.next(); !ok {
		t.Fatal("nothing to do")
	}
	if _, ok := f.next(); ok {
		t.Fatal("two jobs of one group")
	}
	var job fetchJob
	for range 2000 {
		job.wants = append(job.wants, want{Index: 1, Body: commits[0]})
	}
	found := job.run(log)
	if len(found.rest) == 0 || len(found.frames)+len(found.rest) != 2000 {
		t.Fatalf("%d frames, %d left", len(found.frames), len(found.rest))
	}
}
