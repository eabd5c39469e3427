package client

import (
	"time"

	"weida/broker/wire"
)

// place says what is known of one sequence of the window.
type place uint8

const (
	free    place = iota // never sent, or resolved
	waiting              // no answer yet, or its done has not returned yet
	gap                  // answered, but it is not in the queue for certain: it may be sent again
)

// unanswered is a message that has no answer yet.
type unanswered struct {
	place place
	start time.Time
	want  wire.Want
	// within is Message.Within as frames have it
	within uint64
	body   []byte // of a small message; the memory stays for the next message of the slot
	large  *bulk  // of a large one
	done   func(Result)

	stream uint64 // number of the stream that it was last written to; 0 is none
	// doubt is why it may be stored, or wire.OK: a stream before ended without its answer, or a first time, of the same
	// sequence, ended as indeterminate
	doubt wire.Code
	held  bool // it ends as a gap
}

// spareMax is how many bytes of memory a slot keeps for its next message.
const spareMax = 4 << 10

// window holds the messages with sequences [low, high): from the lowest that is not resolved on. An
// answer may come out of turn; its place is free once all before it have theirs, so that low bounds
// what a broker has to remember. Gaps hold low as long as nobody needs their place.
type window struct {
	slots     []unanswered // by sequence, modulo its length
	low, high uint64
	next      uint64 // the sequence of a message that names none; never below high
	fresh     bool   // nothing was added yet: the first message may be older than next
	size      int64  // bytes of small messages that wait or whose done runs
	count     int    // of messages that wait or whose done runs
	sizeMax   int64

	queued      []uint64 // ring of messages to be written, in order; as long as slots
	first       int      // of queued
	queuedCount int
}

func newWindow(messages int, bytes int64, next uint64) window {
	return window{
		slots: make([]unanswered, messages), low: next, high: next, next: next, fresh: true, sizeMax: bytes,
		queued: make([]uint64, messages),
	}
}

func (w *window) at(seq uint64) *unanswered { return &w.slots[seq%uint64(len(w.slots))] }

// room says whether the message fits, giving gaps up for it if it must. A message larger than the
// whole window goes alone.
func (w *window) room(seq uint64, size int64) bool {
	if w.size > 0 && w.size+size > w.sizeMax {
		return false
	}
	for w.low < w.high && seq >= w.low+uint64(len(w.slots)) {
		if w.at(w.low).place != gap {
			return false
		}
		w.at(w.low).place = free
		w.trim()
	}
	return true
}

// refusal says why a sequence cannot be sent, or nil. Its place is not taken by another message while
// the sender has the order token.
func (w *window) refusal(seq uint64) *wire.Error {
	switch {
	case seq >= w.high || w.fresh:
		return nil
	case seq < w.low:
		return &wire.Error{Code: wire.SequenceRetired, Detail: "What is older than the window was given up"}
	}
	switch w.at(seq).place {
	case waiting:
		return &wire.Error{Code: wire.BadSequence, Detail: "The sequence is under way"}
	case free:
		return &wire.Error{Code: wire.BadSequence, Detail: "The sequence was answered, or passed over"}
	default: // a gap, which may be filled
		return nil
	}
}

// add takes a message in, for which there must be room, and puts it last among those to be written. The doubt about a
// gap that it fills is about the message, too.
func (w *window) add(seq uint64, start time.Time, body []byte, done func(Result)) *unanswered {
	if w.fresh || w.low == w.high && seq >= w.high {
		w.fresh = false
		w.low, w.high = seq, seq
	}
	u := w.at(seq)
	if seq < w.low || seq >= w.low+uint64(len(w.slots)) || seq < w.high && u.place != gap {
		panic("bug: client: no room in the window")
	}
	doubt := wire.OK
	if u.place == gap {
		doubt = u.doubt
	}
	*u = unanswered{place: waiting, start: start, done: done, body: append(u.body[:0], body...), doubt: doubt}
	w.size += int64(len(body))
	w.count++
	w.high = max(w.high, seq+1)
	w.next = max(w.next, w.high)
	w.push(seq)
	return u
}

func (w *window) push(seq uint64) {
	w.queued[(w.first+w.queuedCount)%len(w.queued)] = seq
	w.queuedCount++
}

// head is the message to be written next, or nil. One that was answered meanwhile is skipped.
func (w *window) head() (uint64, *unanswered) {
	for w.queuedCount > 0 {
		seq := w.queued[w.first]
		if u := w.get(seq); u != nil {
			return seq, u
		}
		w.pop()
	}
	return 0, nil
}

func (w *window) pop() {
	w.first = (w.first + 1) % len(w.queued)
	w.queuedCount--
}

// rewrite makes every message that waits one to be written, in order of sequence.
func (w *window) rewrite() {
	w.first, w.queuedCount = 0, 0
	for seq := w.low; seq < w.high; seq++ {
		if w.at(seq).place == waiting {
			w.push(seq)
		}
	}
}

// get returns the message of that sequence if it waits for an answer, or nil.
func (w *window) get(seq uint64) *unanswered {
	if seq < w.low || seq >= w.high {
		return nil
	}
	if u := w.at(seq); u.place == waiting {
		return u
	}
	return nil
}

// release ends a message whose done has returned.
func (w *window) release(seq uint64) {
	u := w.at(seq)
	w.size -= int64(len(u.body))
	w.count--
	left := unanswered{body: u.body[:0]}
	if cap(left.body) > spareMax {
		left.body = nil
	}
	if u.held {
		left.place, left.doubt = gap, u.doubt
	}
	*u = left
}

// busy says whether a message below limit waits, or its done runs.
func (w *window) busy(limit uint64) bool {
	if w.count == 0 {
		return false
	}
	for seq := w.low; seq < min(limit, w.high); seq++ {
		if w.at(seq).place == waiting {
			return true
		}
	}
	return false
}

// trim moves low to the first message that is not resolved.
func (w *window) trim() {
	for w.low < w.high && w.at(w.low).place == free {
		w.low++
	}
}
