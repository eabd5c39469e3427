package main

import (
	"fmt"

	"weida/broker/wire"
)

// This file is what a model makes of the registry. One goroutine at a time changes and looks at a name.

// registered is what is known of one name.
type registered struct {
	last    *resource // as it was shown last
	gone    bool      // there is none, for certain
	made    bool      // a resource was confirmed since there was none
	deleted uint64    // uid whose deletion was confirmed
	highest uint64    // version
	asked   map[int]*change
	lines   []string
}

// change is a change that may have been made, or may still be.
type change struct {
	mutating
	known uint64 // the version that stood when it was asked for; 0: there was none
	life  int    // it has its effect in this one or never
}

func (m *model) named(name string) *registered {
	n := m.names[name]
	if n == nil {
		n = &registered{gone: true, asked: make(map[int]*change)}
		m.names[name] = n
	}
	return n
}

func (m *model) tellName(n *registered, format string, args ...any) {
	if len(n.lines) == linesMax {
		n.lines = n.lines[linesMax/2:]
	}
	n.lines = append(n.lines, fmt.Sprintf("%7d life %d: ", m.now, m.life)+fmt.Sprintf(format, args...))
}

func (m *model) mutating(e mutating) {
	n := m.named(e.Queue)
	m.counts.mutations++
	m.tellName(n, "%s %+v, operation %d, expects %s", e.Verb, e.Spec, e.Op, number(e.Expected))
	n.asked[e.Op] = &change{mutating: e, life: m.life}
	if !n.gone {
		n.asked[e.Op].known = n.highest
	}
	if n.last == nil {
		return
	}
	q := m.queues[n.last.UID]
	switch {
	case q == nil:
	case e.Verb == "delete":
		q.leaving = true
	default:
		q.specs = append(q.specs, e.Spec)
	}
}

func number(v *uint64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(*v)
}

func (m *model) mutated(e mutated) {
	n := m.named(e.Queue)
	c := n.asked[e.Op]
	if c == nil {
		panic("bug: kill: the end of a change that nobody asked for")
	}
	m.tellName(n, "operation %d is %v, %v: %s", e.Op, e.Fate, e.Code, show(e.Now))
	wrong := func(kind, format string, args ...any) {
		m.violate(kind, n.lines, "queue %s, operation %d, %s: %s", e.Queue, e.Op, c.Verb, fmt.Sprintf(format, args...))
	}
	switch e.Fate {
	case unknown:
		return
	case refused:
		delete(n.asked, e.Op)
		m.counts.conflicts++
		m.refusedChange(n, c, e, wrong)
		return
	case done:
	}
	if c.Expected != nil && *c.Expected < c.known {
		wrong("STALE VERSION TAKEN", "version %d was expected, and %d had been shown", *c.Expected, c.known)
	}
	if c.Verb == "create" && n.last != nil && !n.gone && !n.leaving() {
		wrong("REGISTRY", "it was made, and there was one: %s", show(n.last))
	}
	if e.Now == nil {
		wrong("REGISTRY", "it was done, and there is no resource")
		return
	}
	m.observe(e.Queue, n, e.Now)
	delete(n.asked, e.Op)
	switch {
	case c.Verb == "delete":
		n.deleted = e.Now.UID
		m.counts.deletions++
		if !e.Now.Deleting {
			wrong("REGISTRY", "it was done, and is not being deleted")
		}
	case e.Now.Spec != c.Spec:
		wrong("REGISTRY", "%+v was applied, and %+v stands", c.Spec, e.Now.Spec)
	}
}

// refusedChange judges a refusal. Nothing was changed by it: whatever is changed later has another reason.
func (m *model) refusedChange(n *registered, c *change, e mutated, wrong func(string, string, ...any)) {
	if e.Now != nil {
		m.observe(e.Queue, n, e.Now)
	}
	there := n.last != nil && !n.gone
	switch e.Code {
	case wire.Conflict:
		if c.Expected == nil || e.Now != nil && e.Now.Version == *c.Expected {
			wrong("REGISTRY", "it was refused as stale, and version %s was expected", number(c.Expected))
		}
	case wire.AlreadyExists:
		if c.Verb != "create" || !there {
			wrong("REGISTRY", "it was refused because the name is taken")
		}
	case wire.NoSuchResource:
		if there && !n.leaving() {
			wrong("LOST QUEUE", "it was refused because there is none, and there was one: %s", show(n.last))
		}
	case wire.BeingDeleted:
		if there && !n.leaving() {
			wrong("REGISTRY", "it was refused because it is being deleted, and nobody asked for that")
		}
	default:
		wrong("UNEXPECTED", "it was refused because of %v", e.Code)
	}
}

// leaving says that a deletion of what was shown last stands or may stand.
func (n *registered) leaving() bool {
	if n.last != nil && n.last.Deleting {
		return true
	}
	return n.pending("delete")
}

func (n *registered) pending(verbs ...string) bool {
	for _, c := range n.asked {
		for _, v := range verbs {
			if c.Verb == v {
				return true
			}
		}
	}
	return false
}

func (m *model) looked(e looked) {
	n := m.named(e.Queue)
	m.tellName(n, "registry %d: %s", e.Version, show(e.Now))
	if e.Version < m.version {
		m.violate("REGISTRY", n.lines, "the registry was at %d, and is at %d", m.version, e.Version)
	}
	m.version = max(m.version, e.Version)
	if e.Now != nil {
		m.observe(e.Queue, n, e.Now)
		m.decide(n)
		return
	}
	if n.last != nil && !n.gone && !n.leaving() || n.made && !n.leaving() {
		m.violate("LOST QUEUE", n.lines, "there is no queue %s, nobody asked for its deletion: %s", e.Queue, show(n.last))
	}
	n.gone, n.made = true, false
	m.settleNames(n, "delete")
	m.decide(n)
}

// decide drops what an earlier life left without an answer: a look has shown whether it was done.
func (m *model) decide(n *registered) {
	for op, c := range n.asked {
		if c.life < m.life {
			delete(n.asked, op)
		}
	}
	if n.last != nil && m.queues[n.last.UID] != nil && !n.gone {
		m.queues[n.last.UID].leaving = n.leaving()
	}
}

// settleNames drops the changes of one kind that a look at the name has decided.
func (m *model) settleNames(n *registered, verb string) {
	for op, c := range n.asked {
		if c.Verb == verb {
			delete(n.asked, op)
		}
	}
}

// observe judges a resource against what was shown before.
func (m *model) observe(name string, n *registered, r *resource) {
	wrong := func(format string, args ...any) {
		m.violate("REGISTRY", n.lines, "queue %s: %s; before %s, now %s", name, fmt.Sprintf(format, args...), show(n.last),
			show(r))
	}
	old := n.last
	if n.gone || old == nil || old.UID != r.UID {
		m.appeared(name, n, r, wrong)
	} else {
		m.moved(n, old, r, wrong)
	}
	n.highest = max(n.highest, r.Version)
	c := *r
	n.last, n.gone = &c, false
	q := m.queues[r.UID]
	if r.Observed == r.Generation && q != nil && !n.pending("apply") && q.specs[len(q.specs)-1] != r.Spec {
		q.specs = append(q.specs, r.Spec)
	}
}

// appeared judges a resource that was not there before.
func (m *model) appeared(name string, n *registered, r *resource, wrong func(string, ...any)) {
	if n.last != nil && n.last.UID == r.UID {
		wrong("it was gone, and is back")
		return
	}
	if !n.pending("apply", "create") {
		wrong("nobody made it")
	}
	if n.last != nil && !n.gone && !n.leaving() {
		wrong("there was another, nobody asked for its deletion")
	}
	if r.UID <= n.highest || r.Version < r.UID {
		wrong("its uid is not above every version before it")
	}
	m.counts.made++
	n.made, n.deleted = true, 0
	m.settleNames(n, "delete")
	for uid, q := range m.queues {
		if q.Queue == name {
			delete(m.queues, uid)
		}
	}
	m.queues[r.UID] = newQueue(place{name, r.UID}, r.Spec)
	m.specsOf(n, r, wrong)
	if r.Generation == 1 {
		m.settleNames(n, "create")
	}
}

// specsOf judges a spec that was not seen before, which somebody has to have asked for.
func (m *model) specsOf(n *registered, r *resource, wrong func(string, ...any)) {
	for _, c := range n.asked {
		if c.Verb != "delete" && c.Spec == r.Spec {
			return
		}
	}
	wrong("nobody asked for this spec")
}

// moved judges a resource that was there before.
func (m *model) moved(n *registered, old, r *resource, wrong func(string, ...any)) {
	switch {
	case r.Version < old.Version:
		wrong("its version fell")
	case r.Generation < old.Generation:
		wrong("its generation fell")
	case r.Observed < old.Observed:
		wrong("the generation that was observed fell")
	case r.Observed > r.Generation:
		wrong("a generation was observed that is not there")
	case old.Deleting && !r.Deleting:
		wrong("its deletion was taken back")
	case old.Deleting && r.DrainUntil > old.DrainUntil:
		wrong("its draining got longer")
	case old.Destroying && !r.Destroying:
		wrong("its destruction was taken back")
	case n.deleted == r.UID && !r.Deleting:
		wrong("its deletion was confirmed, and it is not being deleted")
	case r.Deleting && !old.Deleting && !n.pending("delete"):
		wrong("nobody asked for its deletion")
	case r.Generation == old.Generation && r.Spec != old.Spec:
		wrong("its spec is another, the generation is not")
	case r.Generation > old.Generation+uint64(len(n.asked)):
		wrong("its generation rose further than it was changed")
	case r.Generation > old.Generation:
		m.specsOf(n, r, wrong)
	case r.Version == old.Version && *r != *old:
		wrong("its version is the same, and it is not")
	}
	if r.Deleting && !old.Deleting {
		n.deleted = r.UID
	}
}

// possible are the specs that may be in force from now on: what stands, and what was asked for without an answer.
func (n *registered) possible() []spec {
	list := []spec{n.last.Spec}
	for _, c := range n.asked {
		if c.Verb != "delete" {
			list = append(list, c.Spec)
		}
	}
	return list
}

func show(r *resource) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *r)
}
