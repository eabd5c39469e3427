package control

import (
	"fmt"
	"maps"
	"slices"
)

// This file is fnode as a Runtime.

// chance is that of world: the node that calls may err, or die.
func (n *fnode) chance(name string, uid uint64, after bool) error {
	f := n.f
	if !after {
		f.calls++
		f.note("%s: %s %d", n.o.Name, name, uid)
	}
	if f.calls != f.at {
		return nil
	}
	switch {
	case f.fault == dieBefore && !after || f.fault == dieAfter && after:
		f.at = 0
		panic(dead{n})
	case f.fault == errBefore && !after || f.fault == errAfter && after:
		f.at = 0
		return errInjected
	}
	return nil
}

type dead struct{ n *fnode }

// row is this node's replica of a queue, as its copy has it.
func (n *fnode) row(q Queue) *Replica {
	cur, ok := n.s.QueueOf(q.Metadata.UID)
	same := ok && sameStatus(&cur.Status, &q.Status)
	n.f.check(same, "%s works on %+v, its copy has %+v", n.o.Name, q.Status, cur.Status)
	for i := range q.Status.Placement {
		if p := &q.Status.Placement[i]; p.Node == n.o.Node && p.Disk == n.o.Disk && p.Lost == "" {
			return p
		}
	}
	n.f.check(false, "%s opens %d, which is not placed on it", n.o.Name, q.Metadata.UID)
	return nil
}

func (n *fnode) Ensure(q Queue) (bool, error) {
	f, uid := n.f, q.Metadata.UID
	if err := n.chance("Ensure", uid, false); err != nil {
		return false, err
	}
	f.check(!q.Status.Destroying, "opens %d, which is being destroyed", uid)
	row := n.row(q)
	have := n.groups[uid]
	if have != nil {
		f.check(have.replica == row.Replica, "%s opens %d over %d of group %d", n.o.Name, row.Replica, have.replica, uid)
	}
	f.check(have != nil || !f.gone[row.Replica], "%s makes replica %d again", n.o.Name, row.Replica)
	switch {
	case n.poisoned == row.Replica:
		return false, &Trouble{Reason: "Poisoned", Message: "its storage has failed", Lost: true}
	case have == nil && row.Made, have == nil && f.created[row.Replica]:
		return false, &Trouble{Reason: "ReplicaMissing", Message: "its directory is missing", Lost: true}
	case have == nil:
		f.created[row.Replica] = true
		n.groups[uid] = &freplica{replica: row.Replica, owner: row.Owner}
		if slices.ContainsFunc(q.Status.Founders, func(x Founder) bool { return x.Replica == row.Replica }) {
			n.groups[uid].have = 1
			f.found(uid, q.Status.Founders)
		}
	case have.owner && !row.Owner: // 1→3
		have.owner = false
		f.groups[uid] = &fgroup{entries: have.have, config: []Member{{Replica: have.replica, Number: n.number}}}
	case !have.owner && row.Owner: // 3→1
		g := f.groups[uid]
		voters := slices.DeleteFunc(slices.Concat(g.config, g.next), func(m Member) bool { return m.Learner })
		others := slices.ContainsFunc(voters, func(m Member) bool { return m.Replica != have.replica })
		f.check(!others, "%s owns %d, whose voters are %+v", n.o.Name, uid, voters)
		f.check(have.have >= g.entries, "%s owns %d and lacks %d entries", n.o.Name, uid, g.entries-have.have)
		have.owner = true
		delete(f.groups, uid)
	}
	n.open[uid] = true
	n.serving[uid] = q.Status.ObservedGeneration > 0 && q.Metadata.DeletionTimestamp == 0
	return true, n.chance("Ensure", uid, true)
}

func (n *fnode) Group(q Queue) (Group, error) {
	r := n.groups[q.Metadata.UID]
	n.f.check(r != nil && !r.owner && n.open[q.Metadata.UID], "%s asks for group %d", n.o.Name, q.Metadata.UID)
	return n.f.group(q.Metadata.UID, r.replica), nil
}

func (n *fnode) Reconfigure(q Queue, members []Replica) error {
	if err := n.chance("Reconfigure", q.Metadata.UID, false); err != nil {
		return err
	}
	if err := n.f.reconfigure(q.Metadata.UID, n.row(q).Replica, members); err != nil {
		return err
	}
	return n.chance("Reconfigure", q.Metadata.UID, true)
}

func (n *fnode) Transfer(q Queue, to Replica) error {
	if err := n.chance("Transfer", q.Metadata.UID, false); err != nil {
		return err
	}
	g := n.f.groups[q.Metadata.UID]
	m := memberOf(g.config, to.Replica)
	n.f.check(m != nil && !m.Learner, "%d is to be led by %d of %+v", q.Metadata.UID, to.Replica, g.config)
	if r := n.f.holds(q.Metadata.UID, *m); r != nil && r.have >= g.entries {
		g.leader = to.Replica
		for _, o := range n.f.nodes {
			if o.up {
				o.r.Wake(q.Metadata.UID)
			}
		}
	}
	return n.chance("Transfer", q.Metadata.UID, true)
}

func (n *fnode) SetAside(q Queue, r Replica) (bool, error) {
	uid := q.Metadata.UID
	if err := n.chance("SetAside", uid, false); err != nil {
		return false, err
	}
	n.f.check(r.Lost != "", "%s sets aside %d, which is not lost", n.o.Name, r.Replica)
	if have := n.groups[uid]; have != nil && have.replica == r.Replica {
		delete(n.groups, uid)
		delete(n.open, uid)
		n.aside[r.Replica] = true
	}
	return true, n.chance("SetAside", uid, true)
}

func (n *fnode) StopAdmission(q Queue) (bool, error) {
	n.serving[q.Metadata.UID] = false
	return true, n.chance("StopAdmission", q.Metadata.UID, false)
}

func (n *fnode) Drained(q Queue) (Drain, error) {
	return Drain{}, n.chance("Drained", q.Metadata.UID, false)
}

func (n *fnode) Disconnect(q Queue) (bool, Drain, error) {
	n.serving[q.Metadata.UID] = false
	return true, Drain{}, n.chance("Disconnect", q.Metadata.UID, false)
}

func (n *fnode) Destroy(uid uint64, r Replica) (bool, error) {
	f := n.f
	if err := n.chance("Destroy", uid, false); err != nil {
		return false, err
	}
	f.check(r.Node == n.o.Node && r.Disk == n.o.Disk, "%s destroys %+v", n.o.Name, r)
	q, alive := f.truth.QueueOf(uid)
	g := f.groups[uid]
	if alive && !q.Status.Destroying && g != nil {
		m := memberOf(slices.Concat(g.config, g.next), r.Replica)
		ok := m == nil || m.Learner || f.givenUp[r.Replica]
		f.check(ok, "%s destroys replica %d, which votes in %d", n.o.Name, r.Replica, uid)
	}
	if r.Lost != "" {
		delete(n.aside, r.Replica)
	} else if have := n.groups[uid]; have != nil && have.replica == r.Replica {
		ok := !have.owner || !alive || q.Status.Destroying || f.givenUp[r.Replica]
		f.check(ok, "%s destroys the owner of %d", n.o.Name, uid)
		delete(n.groups, uid)
		delete(n.open, uid)
	}
	f.gone[r.Replica] = true
	return true, n.chance("Destroy", uid, true)
}

func (n *fnode) Propose(c Command) error {
	if n.f.noQuorum {
		return errNotNow
	}
	if err := n.chance("Propose "+tell(c, Result{}), 0, false); err != nil {
		return err
	}
	n.queued = append(n.queued, proposal{c, n, n.r})
	return nil
}

func (n *fnode) Sound(uint64) bool { return true }
func (n *fnode) Reachable(number uint64) bool {
	m := n.f.nodeOf(number)
	return m != nil && m.up
}

func (n *fnode) control() uint64 {
	for _, m := range n.f.groups[0].config {
		if m.Number == n.number && n.number != 0 && n.f.groups[0].leader == m.Replica {
			return m.Replica
		}
	}
	return 0
}

func (n *fnode) ControlGroup() (Group, error) { return n.f.group(0, n.control()), nil }

func (n *fnode) ReconfigureControl(members []Replica) error {
	if err := n.chance("ReconfigureControl", 0, false); err != nil {
		return err
	}
	return n.f.reconfigure(0, n.control(), members)
}

// fconnectors are a node's connectors.
type fconnectors fnode

func (c *fconnectors) Start(k Connector) (bool, error) {
	n := (*fnode)(c)
	uid := k.Metadata.UID
	if err := n.chance("Start", uid, false); err != nil {
		return false, err
	}
	for _, o := range n.f.nodes {
		if n.f.truth.nodeOf(o.number) == nil || n.f.truth.nodeOf(n.number) == nil {
			continue // one that was removed and does not know it is told by nobody
		}
		n.f.check(o == n || !o.up || !o.runs[uid], "connector %d runs on %s and is started on %s", uid, o.o.Name, n.o.Name)
	}
	n.runs[uid] = true
	return true, n.chance("Start", uid, true)
}

func (c *fconnectors) Stop(uid uint64) (bool, error) {
	n := (*fnode)(c)
	if err := n.chance("Stop", uid, false); err != nil {
		return false, err
	}
	delete(n.runs, uid)
	return true, n.chance("Stop", uid, true)
}

// round is one turn of the fleet: entries spread, groups replicate, nodes step, proposals get their entries.
func (f *fleet) round() {
	for _, uid := range slices.Sorted(maps.Keys(f.groups)) {
		f.replicate(uid, f.groups[uid])
	}
	for _, n := range f.nodes {
		if n.up {
			f.turn(n)
		}
	}
	f.now += 500
	if f.rnd != nil && f.rnd.IntN(4) == 0 {
		f.now += int64(f.rnd.IntN(20_000))
	}
}

// turn is one of a node, which may die in it.
func (f *fleet) turn(n *fnode) {
	defer func() {
		if p := recover(); p != nil {
			d, ok := p.(dead)
			if !ok {
				panic(p)
			}
			f.deaths++
			d.n.die()
		}
	}()
	most := len(f.log)
	if f.rnd != nil {
		most = f.rnd.IntN(4)
	}
	if n.stalled {
		most = 0
	}
	n.catchUp(most)
	if n.control() != 0 && f.majority(0, f.groups[0].config) {
		n.r.Lead(n.s)
	} else if f.rnd == nil || f.rnd.IntN(6) == 0 {
		n.r.Follow() // until then there are two that lead
	}
	n.r.Step(f.now, n.s)
	queued := n.queued
	n.queued = nil
	for _, p := range queued {
		switch {
		case f.noQuorum || !f.majority(0, f.groups[0].config) || f.rnd != nil && f.rnd.IntN(10) == 0:
			n.r.Dropped(p.c)
		default:
			f.append(p.c)
		}
	}
}

// settle goes on until the registry is at rest.
func (f *fleet) settle(what string) {
	f.t.Helper()
	still := 0
	for range 3000 {
		before := len(f.log)
		f.round()
		for _, n := range f.nodes {
			if !n.up && f.deaths > 0 && !slices.Contains(f.down, n) {
				n.boot()
			}
		}
		if len(f.log) == before {
			still++
		} else {
			still = 0
		}
		if still > 75 {
			return
		}
	}
	f.check(false, "%s: does not come to rest", what)
}

// placed says where a queue is, and how.
func (f *fleet) placed(name string) string {
	q, ok := f.truth.Queue(name)
	if !ok {
		return "absent"
	}
	s := string(q.Status.Phase)
	for _, p := range q.Status.Placement {
		s += " " + p.Node
		if p.Owner {
			s += "!"
		}
		if p.Lead {
			s += "*"
		}
	}
	if q.Status.Step != Steady {
		s += fmt.Sprint(" ", q.Status.Step)
	}
	return s
}

// stored is how much of a queue whoever serves it has, -1 if nobody does.
func (f *fleet) stored(uid uint64) int {
	for _, n := range f.nodes {
		if r := n.groups[uid]; r != nil && n.up && n.open[uid] {
			if r.owner {
				return r.have
			}
			if g := f.groups[uid]; g != nil && g.leader == r.replica {
				return r.have
			}
		}
	}
	return -1
}
