package client

import (
	"time"

	"weida/broker/wire"
)

// unanswered is a message that has no answer yet.
type unanswered struct {
	start    time.Time
	size     int64 // inline bytes
	want     wire.Want
	cause    error // why its body was not sent whole, if it was not
	answered bool
	done     func(Result)
}

// window holds the messages with sequences [low, next): from the lowest without an answer on. An answer
// may come out of turn; its place is free once all before it have theirs, so that low bounds what a
// broker has to remember.
type window struct {
	slots     []unanswered // by sequence, modulo its length
	low, next uint64
	size      int64 // inline bytes of [low, next) without an answer
	sizeMax   int64
}

func newWindow(messages int, bytes int64) window {
	return window{slots: make([]unanswered, messages), low: 1, next: 1, sizeMax: bytes}
}

// room says whether a message fits. One that is larger than the whole window goes alone.
func (w *window) room(size int64) bool {
	return w.next-w.low < uint64(len(w.slots)) && (w.size == 0 || w.size+size <= w.sizeMax)
}

// add takes a message in, for which there must be room, and returns its sequence.
func (w *window) add(u unanswered) uint64 {
	if w.next-w.low >= uint64(len(w.slots)) {
		panic("bug: client: no room in the window")
	}
	seq := w.next
	w.slots[seq%uint64(len(w.slots))] = u
	w.size += u.size
	w.next++
	return seq
}

// get returns the message of that sequence if it waits for an answer, or nil.
func (w *window) get(seq uint64) *unanswered {
	if seq < w.low || seq >= w.next {
		return nil
	}
	if u := &w.slots[seq%uint64(len(w.slots))]; !u.answered {
		return u
	}
	return nil
}

// release frees the places of messages [first, limit), which have been answered.
func (w *window) release(first, limit uint64) {
	for seq := first; seq < limit; seq++ {
		w.size -= w.slots[seq%uint64(len(w.slots))].size
		w.slots[seq%uint64(len(w.slots))] = unanswered{answered: true}
	}
	for w.low < w.next && w.slots[w.low%uint64(len(w.slots))].done == nil {
		w.low++
	}
}
