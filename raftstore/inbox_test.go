package raftstore

import (
	"errors"
	"testing"
)

func TestInboxBound(t *testing.T) {
	p := func(items, size int) proposal { return proposal{batch: &Batch{Items: make([]Item, items)}, size: size} }
	var in inbox
	const maxMessages, maxBytes = 4, 100
	put := func(q proposal) error { return in.put(q, maxMessages, maxBytes) }
	for _, q := range []proposal{p(1, 40), p(2, 60)} {
		if err := put(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(p(1, 1)); !errors.Is(err, ErrFull) {
		t.Fatalf("above the bytes: %v", err)
	}
	pending := in.take(nil)
	if err := put(p(1, 1)); !errors.Is(err, ErrFull) {
		t.Fatalf("taken is not yet answered: %v", err)
	}
	in.answered(pending[0])
	if err := put(p(3, 1)); !errors.Is(err, ErrFull) {
		t.Fatalf("above the messages: %v", err)
	}
	if err := put(p(1, 1)); err != nil {
		t.Fatal(err)
	}
	pending = in.take(pending)
	if len(pending) != 3 || in.waiting() != 2 {
		t.Fatalf("%d pending, %d waiting", len(pending), in.waiting())
	}
	in.answered(pending[1])
	in.answered(pending[2])
	if err := put(p(9, 1000)); err != nil {
		t.Fatalf("one batch alone is always taken: %v", err)
	}
	why := errors.New("why")
	in.close(why)
	in.close(ErrStopped)
	if err := put(p(1, 1)); !errors.Is(err, why) {
		t.Fatalf("closed: %v", err)
	}
}
