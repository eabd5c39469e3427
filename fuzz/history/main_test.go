package main

import (
	"errors"
	"strings"
	"testing"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
)

// A kept history is judged, and a contradiction is printed with the lines that show it.
func TestJudge(t *testing.T) {
	dir := t.TempDir()
	w, err := history.NewWriter(dir, "p", nil)
	if err != nil {
		t.Fatal(err)
	}
	q := history.Queue{Name: "q", UID: 7}
	m := history.Message{Producer: "p", Seq: 1, Digest: history.DigestOf(nil)}
	e := history.Of(wire.Stored(wire.Flushed))
	w.Note(&history.Publish{Ref: w.Ref(), Queue: q, Message: m, Want: e})
	w.Note(&history.Answer{Ref: 1, Outcome: client.OK, Evidence: e, Committed: true, Term: 1})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := judge(&b, dir, history.Options{}); err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	w.Note(&history.Audit{Queue: q})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := judge(&b, dir, history.Options{}); !errors.Is(err, errBroken) {
		t.Fatalf("%v\n%s", err, &b)
	}
	for _, want := range []string{
		"Q2  nothing confirmed is lost", "BROKEN 1", "lost of queue q (uid 7), producer p: whole 1",
		"Q2: message p/1 of queue q (uid 7) was confirmed", "p.jsonl:1: {", "p.jsonl:2: {", "p.jsonl:3: {",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it says nothing of %q:\n%s", want, &b)
		}
	}
	if err := judge(&b, t.TempDir(), history.Options{}); err == nil || errors.Is(err, errBroken) {
		t.Errorf("no history at all is judged: %v", err)
	}
}
