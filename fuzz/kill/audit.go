package main

import "fmt"

// This file is what a model makes of everything that is in a queue, shown while nobody does anything.

func (m *model) audited(e audited) {
	q := m.known(e.place)
	m.counts.audits++
	m.counts.present += len(e.Messages)
	m.tellQueue(q, "audit: %d messages, %+v", len(e.Messages), e.Books)
	present := make(map[*message]bool)
	next := uint64(0)
	for _, c := range e.Messages {
		if c.Offset < next {
			m.violate("ORDER", q.lines, "queue %s uid %d shows offset %d behind %d", q.Queue, q.UID, c.Offset, next-1)
		}
		next = c.Offset + 1
		if msg := m.show(q, c, "shown"); msg != nil {
			present[msg] = true
			m.rise(msg, c)
		}
	}
	if next > e.Books.In {
		m.violate("BOOKS", q.lines, "queue %s uid %d shows offset %d and says that it took %d", q.Queue, q.UID, next-1,
			e.Books.In)
	}
	m.absent(q, e, present)
	m.order(q)
	m.books(q, e)
	m.survivors(q, e)
	m.crowd(q, e)
	m.close(q, e, present)
}

// rise notes how many deliveries a message had, which never falls.
func (m *model) rise(msg *message, c content) {
	for _, a := range msg.attempts {
		if a.n > c.Attempt {
			m.against(msg, "ATTEMPT", "attempt %d was delivered, and the queue counts %d", a.n, c.Attempt)
			return
		}
	}
	if c.Attempt+1 < msg.floor {
		m.against(msg, "ATTEMPT", "the queue counted %d deliveries, and now %d", msg.floor-1, c.Attempt)
	}
	msg.floor = c.Attempt + 1
}

// absent judges every message that is not there.
func (m *model) absent(q *queue, e audited, present map[*message]bool) {
	for _, msg := range q.numbers() {
		if msg.open > 0 {
			panic(fmt.Sprintf("bug: kill: an audit while %v is under way", msg))
		}
		switch {
		case msg.over:
		case present[msg]:
			if e.Final {
				m.against(msg, "STUCK", "it was not delivered, though consumers asked until nothing came")
			}
		case !msg.confirmed && !msg.seen:
		case !q.removable(msg):
			m.against(msg, "LOST", "it was at offset %d and is not there%s", msg.offset, q.where(msg, present))
		}
	}
}

// where says which part of what its producer sent is missing: the kind of loss names the bug.
func (q *queue) where(msg *message, present map[*message]bool) string {
	before, behind := false, false
	for other := range present {
		if other.Producer == msg.Producer && other.Stream == msg.Stream {
			before = before || other.offset < msg.offset
			behind = behind || other.offset > msg.offset
		}
	}
	switch {
	case before && behind:
		return "; others of its producer before it and behind it are"
	case before:
		return "; others of its producer before it are"
	case behind:
		return "; others of its producer behind it are"
	}
	return ""
}

// order judges the streams of producers without an id: what they store lies in the order of sending, and, where the
// stream was one connection, what was sent before something stored is stored, too.
func (m *model) order(q *queue) {
	for _, list := range q.streams {
		var missing, last *message
		for _, msg := range list {
			switch {
			case !msg.located && (msg.refusedOnly() || q.removable(msg) || !msg.Strict):
			case !msg.located:
				missing = msg
			case missing != nil && !q.mayRefuse():
				m.against(msg, "GAP", "it is stored, and %v, which was sent before it, is not", missing)
			case last != nil && last.offset >= msg.offset:
				m.against(msg, "ORDER", "it is at offset %d, and %v, which was sent before it, at %d", msg.offset, last,
					last.offset)
			}
			if msg.located {
				last = msg
			}
		}
	}
}

// mayRefuse says that a message may have been refused without anybody hearing of it.
func (q *queue) mayRefuse() bool {
	for _, s := range q.specs {
		if s.Messages > 0 || s.Bytes > 0 || s.MessageBytes > 0 {
			return true
		}
	}
	return q.leaving
}

// books judges the queue's own counts.
func (m *model) books(q *queue, e audited) {
	b, w := e.Books, &q.since
	wrong := func(format string, args ...any) {
		m.violate("BOOKS", q.lines, "queue %s uid %d: %s; before %+v, now %+v, since %+v", q.Queue, q.UID,
			fmt.Sprintf(format, args...), q.base, b, *w)
	}
	if b.In != b.Ready+b.Unsettled+b.Accepted+b.Rejected+b.Purged {
		wrong("what came in is not what is in and what went out")
	}
	if got := uint64(len(e.Messages)); got != b.Ready+b.Unsettled {
		wrong("it shows %d messages and counts %d", got, b.Ready+b.Unsettled)
	}
	for _, r := range []struct {
		name             string
		before, now      uint64
		certain, perhaps uint64
	}{
		{"accepted", q.base.Accepted, b.Accepted, w.accepted, w.maybeAccepted},
		{"rejected", q.base.Rejected, b.Rejected, w.rejected, w.maybeRejected},
		{"released", q.base.Released, b.Released, w.released, w.maybeReleased},
		{"purged", q.base.Purged, b.Purged, w.purged, w.maybePurged},
	} {
		switch {
		case r.now < r.before+r.certain:
			wrong("fewer are counted as %s than were confirmed", r.name)
		case r.now-r.before-r.certain > r.perhaps:
			wrong("more are counted as %s than were asked for", r.name)
		}
	}
	m.unseen(q, e, wrong)
}

// unseen judges the offsets that were given out and at which nobody saw a message: only purges hide one.
func (m *model) unseen(q *queue, e audited, wrong func(string, ...any)) {
	if e.Books.In < q.base.In {
		wrong("it takes offsets again")
		return
	}
	fresh, candidates := uint64(0), uint64(0)
	for _, msg := range q.messages {
		switch {
		case msg.located && msg.offset >= e.Books.In:
			m.against(msg, "LOST", "it was at offset %d, and the queue says that it took %d", msg.offset, e.Books.In)
		case msg.located && msg.offset >= q.base.In:
			fresh++
		case !msg.located && !msg.refusedOnly():
			candidates++
		}
	}
	switch unseen := e.Books.In - q.base.In - min(fresh, e.Books.In-q.base.In); {
	case unseen > e.Books.Purged-min(q.base.Purged, e.Books.Purged):
		wrong("%d offsets hold what nobody saw, and fewer were purged", unseen)
	case unseen > candidates:
		wrong("%d offsets hold what nobody saw, and %d messages may have been there", unseen, candidates)
	}
}

// survivors judges purges: what was there before one and is there still was under delivery.
func (m *model) survivors(q *queue, e audited) {
	for op, p := range q.purges {
		if p.fate != done {
			continue
		}
		n := uint64(0)
		for _, c := range e.Messages {
			if c.Offset < p.bound {
				n++
			}
		}
		if n > p.left {
			m.violate("PURGE", q.lines, "queue %s uid %d: purge %d left %d messages, and %d that were there before it are "+
				"there still", q.Queue, q.UID, op, p.left, n)
		}
	}
}

// crowd judges the limit of messages: beyond it nothing is taken.
func (m *model) crowd(q *queue, e audited) {
	most := q.base.Ready + q.base.Unsettled
	for _, s := range q.specs {
		if s.Messages == 0 {
			return
		}
		most = max(most, s.Messages)
	}
	if n := e.Books.Ready + e.Books.Unsettled; n > most {
		m.violate("LIMIT", q.lines, "queue %s uid %d holds %d messages, no limit in force was above %d: %+v", q.Queue,
			q.UID, n, most, q.specs)
	}
}

// close forgets what is out, so that it must not come back, and begins anew.
func (m *model) close(q *queue, e audited, present map[*message]bool) {
	for _, msg := range q.numbers() {
		switch {
		case present[msg]:
			// Every settle so far has had its effect or none.
			for _, a := range msg.attempts {
				a.removal = refused
			}
		case msg.Producer != "" && !msg.finished:
			msg.over = msg.located // it may be sent again
		default:
			q.forget(msg)
		}
	}
	clear(q.streams)
	clear(q.purges)
	q.base, q.since = e.Books, window{}
	q.backlog = len(e.Messages)
	q.possible = uint64(len(e.Messages)) // what may be sent again is counted when it is
	if n := m.names[q.Queue]; n != nil && n.last != nil && n.last.UID == q.UID && n.last.Observed == n.last.Generation {
		q.specs = n.possible()
	}
}
