package history

import (
	"cmp"
	"slices"
)

// This file is what only the end of a history decides about a queue.

// atEnd judges what was confirmed and not looked for since: what consumers had is not lost.
func (c *Checker) atEnd(q *queue) {
	if q.leaving > 0 {
		return
	}
	open := 0
	for m := range q.live {
		if m.answered > q.audited && !m.seen && !q.removable(m) {
			open++
		}
	}
	if open > 0 {
		c.unjudged("%d messages that were confirmed to queue %s (uid %d) were neither delivered nor looked for afterwards",
			open, q.Name, q.UID)
	}
}

// order judges each producer, and each stream, by itself.
func (c *Checker) order(q *queue) {
	for _, name := range sortedKeys(q.streams) {
		var last *message
		for _, m := range inSequence(q.streams[name]) {
			if len(m.places) == 0 || m.sent > 1 {
				continue // of a message that was sent again, which copy is first is not known
			}
			c.judged(Order)
			if last != nil && last.places[0].offset >= m.places[0].offset && !c.mayForget(last, last.places[0].at) {
				c.breach(Order, append(m.shown(m.places[0].mark), last.shown(last.places[0].mark)...),
					"%v is at %v, and %v, which was sent before it, at %v", m, m.places[0], last, last.places[0])
			}
			last = m
		}
	}
}

// inSequence sorts the messages of one producer, which are mostly sorted, as they were numbered or sent.
func inSequence(list []*message) []*message {
	less := func(a, b *message) int { return cmp.Compare(a.Seq, b.Seq) }
	if !slices.IsSortedFunc(list, less) {
		slices.SortStableFunc(list, less)
	}
	return list
}

func sortedKeys[V any](m map[string]V) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// parts sorts what a queue lost by producer, and by its place in what the producer had confirmed.
func (c *Checker) parts(q *queue) {
	for _, name := range sortedKeys(q.streams) {
		list := q.streams[name]
		first, last := -1, -1
		lost := Losses{Queue: q.Queue, Producer: name, Parts: make(map[Part]int)}
		any := false
		for i, m := range list {
			switch {
			case m.lost:
				any = true
			case m.confirmed && first < 0:
				first, last = i, i
			case m.confirmed:
				last = i
			}
		}
		if !any {
			continue
		}
		for i, m := range list {
			if !m.lost {
				continue
			}
			if m.allowed {
				lost.Allowed++
			}
			switch {
			case first < 0:
				lost.Parts[Whole]++
			case i < first:
				lost.Parts[Prefix]++
			case i > last:
				lost.Parts[Suffix]++
			default:
				lost.Parts[Middle]++
			}
		}
		c.report.Lost = append(c.report.Lost, lost)
	}
}
