package main

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"
)

// micros is virtual time, in microseconds since the cluster began.
type micros int64

const (
	millisecond micros = 1000
	second             = 1000 * millisecond
)

func (t micros) String() string { return fmt.Sprintf("%d.%06d", t/second, t%second) }

// event is something that happens at its time; of two at one time the one that was planned first comes first.
type event struct {
	at  micros
	seq uint64
	run func()
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) } //nolint:forcetypeassert // events only
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}

func (e *events) Pop() any {
	list := *e
	last := list[len(list)-1]
	list[len(list)-1] = event{}
	*e = list[:len(list)-1]
	return last
}

// loop is the clock, the events to come, and what is told of those that were.
type loop struct {
	seed  uint64
	rng   *rand.Rand
	now   micros
	next  uint64
	queue events
	count uint64 // events run

	lines    []string // of the transcript
	hash     xxh3.Hasher
	problems []string
}

// eventsMax bounds the events of one run: more is work that never ends.
const eventsMax = 2_000_000

// problemsMax bounds what is told of one run: the first problem is the one that counts.
const problemsMax = 20

// after plans fn.
func (l *loop) after(d micros, fn func()) {
	if d < 0 {
		panic("bug: sim: an event in the past")
	}
	l.next++
	heap.Push(&l.queue, event{l.now + d, l.next, fn})
}

// note adds a line to the transcript.
func (l *loop) note(format string, args ...any) {
	line := l.now.String() + " " + fmt.Sprintf(format, args...)
	l.lines = append(l.lines, line)
	_, _ = l.hash.WriteString(line) // never fails
}

// fail notes that a rule is broken.
func (l *loop) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(l.problems) >= problemsMax || slices.Contains(l.problems, text) {
		return
	}
	l.note("BROKEN %s", text)
	l.problems = append(l.problems, text)
}

// runUntil runs events until a time, or until done says so after one, or a rule is broken.
func (l *loop) runUntil(limit micros, done func() bool) {
	for len(l.queue) > 0 && l.queue[0].at <= limit && len(l.problems) == 0 {
		e, _ := heap.Pop(&l.queue).(event) // events only
		l.now = e.at
		if l.count++; l.count > eventsMax {
			l.fail("Q10 the cluster does not come to rest: %d events", l.count)
		}
		l.guard(e.run)
		if done != nil && done() {
			return
		}
	}
	if len(l.problems) == 0 {
		l.now = max(l.now, limit)
	}
}

// guard makes a panic the end of the run, with its seed.
func (l *loop) guard(fn func()) {
	defer func() {
		if p := recover(); p != nil {
			l.fail("panic: %v\n%s", p, trimStack(string(debug.Stack())))
		}
	}()
	fn()
}

// trimStack keeps the frames of this module and of raft below the panic.
func trimStack(s string) string {
	lines := strings.Split(s, "\n")
	var kept []string
	for i := 0; i+1 < len(lines); i++ {
		at := lines[i+1]
		if strings.HasPrefix(lines[i], "weida/") || strings.HasPrefix(lines[i], "go.etcd.io/") ||
			strings.HasPrefix(lines[i], "main.") {
			name, _, _ := strings.Cut(lines[i], "(0x")
			if k := strings.LastIndex(at, "/"); k >= 0 {
				at = at[k+1:]
			}
			at, _, _ = strings.Cut(at, " +")
			kept = append(kept, "    "+name+" "+at)
		}
	}
	return strings.Join(kept[:min(len(kept), 14)], "\n")
}

// chance is true once in n.
func (l *loop) chance(n int) bool { return l.rng.IntN(n) == 0 }

// between draws a duration from [low, high).
func (l *loop) between(low, high micros) micros { return low + micros(l.rng.Int64N(int64(high-low))) }

// pick draws one of a list.
func pick[T any](l *loop, list []T) T { return list[l.rng.IntN(len(list))] }
