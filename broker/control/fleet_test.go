package control

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// fleet is a cluster: nodes with disks, each with its own copy of the registry that may be behind, groups that
// replicate and change their members as consensus groups do, and users. It holds the reconcilers to what must
// never happen, and lets nodes die at any call.
type fleet struct {
	t        *testing.T
	rnd      *rand.Rand // nil goes the same way every time
	log      []Command  // of the control group; entry i has index base+i
	truth    *State     // all of it applied
	nodes    []*fnode
	groups   map[uint64]*fgroup
	now      int64
	noQuorum bool     // the control group takes nothing
	down     []*fnode // that stay down

	created map[uint64]bool // replicas that were made once
	gone    map[uint64]bool // replicas that were destroyed
	givenUp map[uint64]bool // replicas of queues that began anew
	begun   map[uint64]bool // groups that began, by their first founder

	calls, at int // as of world
	fault     fault
	deaths    int
	trace     []string
}

const fleetBase = GenesisIndex + 1

// fgroup is a queue's group, as if seen from above.
type fgroup struct {
	config  []Member // committed
	next    []Member // of the change that is under way, nil if none
	leader  uint64   // replica, 0 if none
	entries int      // committed
}

// freplica is what lies on a disk.
type freplica struct {
	replica uint64
	owner   bool
	have    int // entries
}

// fnode is a node with its disk. What is below up is lost when it dies.
type fnode struct {
	f       *fleet
	o       Options
	number  uint64 // once it has come
	groups  map[uint64]*freplica
	aside   map[uint64]bool // by replica
	runs    map[uint64]bool // connectors, by uid
	stalled bool            // its copy does not move
	// poisoned is a replica whose storage has failed.
	poisoned uint64
	applied  int // entries of its copy

	up      bool
	s       *State
	r       *Reconciler
	open    map[uint64]bool // by uid
	serving map[uint64]bool // admitting, by uid
	queued  []proposal
}

type proposal struct {
	c    Command
	from *fnode
	life *Reconciler
}

func newFleet(t *testing.T, seeds, spare int) *fleet {
	f := &fleet{
		t: t, truth: NewState(), groups: map[uint64]*fgroup{}, now: 1_000_000, created: map[uint64]bool{},
		gone: map[uint64]bool{}, begun: map[uint64]bool{}, givenUp: map[uint64]bool{},
	}
	var list []Seed
	for i := range seeds + spare {
		n := &fnode{
			f: f, o: Options{Node: fmt.Sprint("k", i+1), Name: fmt.Sprint("n", i+1), Disk: fmt.Sprint("d", i+1)},
			groups: map[uint64]*freplica{}, aside: map[uint64]bool{}, runs: map[uint64]bool{},
		}
		n.o.Connectors = (*fconnectors)(n)
		f.nodes = append(f.nodes, n)
		if i < seeds {
			list = append(list, Seed{Name: n.o.Name, Fingerprint: n.o.Node})
		}
	}
	b, err := Genesis(list)
	if err != nil {
		t.Fatal(err)
	}
	f.groups[0] = &fgroup{}
	for _, m := range b.Members {
		f.groups[0].config = append(f.groups[0].config, Member{Replica: m.Replica, Number: m.Number, Learner: m.Learner})
	}
	f.append(b.Command(f.now))
	for i := range seeds {
		f.nodes[i].boot()
	}
	return f
}

func (f *fleet) check(ok bool, format string, args ...any) {
	f.t.Helper()
	if !ok {
		f.t.Fatalf("call %d of fault %d: %s\n%v", f.at, f.fault, fmt.Sprintf(format, args...), f.trace)
	}
}

func (f *fleet) note(format string, args ...any) {
	if len(f.trace) > 400 {
		f.trace = f.trace[200:]
	}
	f.trace = append(f.trace, fmt.Sprintf(format, args...)+"; ")
}

// append puts an entry into the control log.
func (f *fleet) append(c Command) Result {
	back, err := Decode(c.Append(nil))
	if err != nil {
		f.t.Fatal(err)
	}
	f.log = append(f.log, back)
	var before Queue
	if c.Place != nil {
		before, _ = f.truth.QueueOf(c.Place.UID)
	}
	res := f.truth.Apply(uint64(fleetBase+len(f.log)-1), back)
	for _, r := range before.Status.Placement {
		f.givenUp[r.Replica] = f.givenUp[r.Replica] || c.Place.Anew && res.Changed
	}
	f.note("%s", tell(c, res))
	return res
}

func tell(c Command, res Result) string {
	s := "entry"
	switch {
	case c.Mutation != nil:
		s = fmt.Sprintf("%s %s", c.Mutation.Verb, c.Mutation.Name)
	case c.Observe != nil:
		s = fmt.Sprintf("observe %d %s %.40v", c.Observe.UID, c.Observe.Status.Phase, c.Observe.Status.Conditions)
	case c.Place != nil:
		s = fmt.Sprintf("place %d@%d %v", c.Place.UID, c.Place.Epoch, c.Place.Want)
	case c.Reached != nil:
		s = fmt.Sprintf("reached %s %d@%d", c.Reached.Kind, c.Reached.UID, c.Reached.Epoch)
	case c.Stuck != nil:
		s = fmt.Sprintf("stuck %s %d@%d", c.Stuck.Kind, c.Stuck.UID, c.Stuck.Epoch)
	case c.Gone != nil:
		s = fmt.Sprintf("gone %d/%d", c.Gone.UID, c.Gone.Replica)
	case c.Lost != nil:
		s = fmt.Sprintf("lost %d/%d", c.Lost.UID, c.Lost.Replica)
	case c.Remove != nil:
		s = fmt.Sprintf("remove %d", c.Remove.UID)
	case c.Register != nil:
		s = "register " + c.Register.Fingerprint
	}
	if res.Err != nil {
		s += " (" + res.Err.Message + ")"
	}
	return s
}

// user does what always gets its entry.
func (f *fleet) user(m Mutation) Result {
	m.At = f.now
	return f.append(Command{Mutation: &m})
}

// boot starts a node, from its own copy.
func (n *fnode) boot() {
	n.up = true
	n.o.Incarnation++
	n.s, n.r = NewState(), NewReconciler(n, n.o)
	for i := range n.applied {
		n.s.Apply(uint64(fleetBase+i), n.f.log[i])
	}
	n.open, n.serving, n.queued = map[uint64]bool{}, map[uint64]bool{}, nil
	clear(n.runs)
	n.r.Load(n.s)
}

// die stops a node hard.
func (n *fnode) die() {
	n.up = false
	n.r, n.s = nil, nil
	n.f.note("%s DIES", n.o.Name)
	for _, g := range n.f.groups {
		if m := memberOf(g.config, g.leader); m != nil && m.Number == n.number {
			g.leader = 0
		}
	}
}

// wipe gives a node that is down another disk.
func (n *fnode) wipe() {
	n.o.Disk += "'"
	n.o.Incarnation = 0
	n.groups, n.aside, n.applied = map[uint64]*freplica{}, map[uint64]bool{}, 0
}

func (f *fleet) nodeOf(number uint64) *fnode {
	for _, n := range f.nodes {
		if n.number == number && number != 0 {
			return n
		}
	}
	return nil
}

// catchUp lets a node apply up to so many entries of the control log.
func (n *fnode) catchUp(most int) {
	for ; n.applied < len(n.f.log) && most > 0; most-- {
		c := n.f.log[n.applied]
		res := n.s.Apply(uint64(fleetBase+n.applied), c)
		n.applied++
		n.r.Applied(c, res)
		if me := n.s.nodeNamed(n.o.Node); me != nil {
			n.number = me.Number()
		}
	}
}

// holds says whether a member's node is up with that replica open.
func (f *fleet) holds(uid uint64, m Member) *freplica {
	n := f.nodeOf(m.Number)
	if n == nil || !n.up || uid != 0 && !n.open[uid] {
		return nil
	}
	if uid == 0 {
		for _, p := range f.truth.cluster.Replicas {
			if p.Replica == m.Replica && p.Disk != "" && p.Disk != n.o.Disk {
				return nil
			}
		}
		return &freplica{replica: m.Replica, have: f.groups[0].entries}
	}
	if r := n.groups[uid]; r != nil && r.replica == m.Replica && !r.owner {
		return r
	}
	return nil
}

// majority says whether more than half of the voters are there.
func (f *fleet) majority(uid uint64, config []Member) bool {
	voters, there := 0, 0
	for _, m := range config {
		if m.Learner {
			continue
		}
		voters++
		if r := f.holds(uid, m); r != nil {
			there++
		}
	}
	return there > voters/2
}

// found makes a group that begins with several members, if it has not begun.
func (f *fleet) found(uid uint64, founders []Founder) {
	first := founders[0].Replica
	if g := f.groups[uid]; f.begun[first] || g != nil && g.config[0].Replica > first {
		return // who comes late finds nobody to vote with it
	}
	f.begun[first] = true
	g := &fgroup{entries: 1}
	for _, x := range founders {
		g.config = append(g.config, Member{Replica: x.Replica, Number: x.Number})
	}
	f.groups[uid] = g
}

// replicate lets a group do what consensus groups do by themselves.
func (f *fleet) replicate(uid uint64, g *fgroup) {
	turned := false
	if m := memberOf(g.config, g.leader); m == nil || m.Learner || f.holds(uid, *m) == nil || !f.majority(uid, g.config) {
		turned, g.leader = g.leader != 0, 0
	}
	if g.leader == 0 && f.majority(uid, g.config) && (g.next == nil || f.majority(uid, g.next)) {
		for _, m := range g.config {
			if r := f.holds(uid, m); r != nil && !m.Learner && r.have >= g.entries && g.leader == 0 {
				turned, g.leader = true, m.Replica
			}
		}
	}
	if g.leader != 0 && f.majority(uid, g.config) {
		for _, m := range slices.Concat(g.config, g.next) {
			if r := f.holds(uid, m); r != nil && r.have < g.entries {
				r.have = g.entries
				turned = true
			}
		}
		if g.next != nil && f.majority(uid, g.next) {
			g.config, g.next = g.next, nil
			turned = true
		}
	}
	if turned {
		for _, n := range f.nodes {
			if n.up {
				n.r.Wake(uid)
			}
		}
	}
}

// group is what a leader knows of its group.
func (f *fleet) group(uid uint64, self uint64) Group {
	g := f.groups[uid]
	if g == nil || g.leader != self || self == 0 {
		return Group{}
	}
	out := Group{Serves: true, Changing: g.next != nil}
	for _, m := range g.config {
		r := f.holds(uid, m)
		m.CaughtUp = r != nil && r.have >= g.entries
		m.Held = r != nil && r.have > 0
		out.Members = append(out.Members, m)
	}
	return out
}

var errNotNow = errors.New("not now")

// reconfigure begins a change of members.
func (f *fleet) reconfigure(uid uint64, self uint64, members []Replica) error {
	g := f.groups[uid]
	if g == nil || g.leader != self || g.next != nil {
		return errNotNow
	}
	voters := 0
	for _, m := range members {
		old := memberOf(g.config, m.Replica)
		if m.Learner {
			g.next = append(g.next, Member{Replica: m.Replica, Number: m.Number, Learner: true})
			continue
		}
		voters++
		f.check(old != nil, "group %d: replica %d votes and never learned", uid, m.Replica)
		if r := f.holds(uid, *old); old.Learner && (r == nil || r.have < g.entries) {
			g.next = nil
			return errNotNow // it is not caught up
		}
		g.next = append(g.next, Member{Replica: m.Replica, Number: m.Number})
	}
	f.check(voters != 2 && voters > 0, "group %d: %d voters", uid, voters)
	return nil
}

// put is a publisher's message to whoever serves; it says whether it was confirmed.
func (f *fleet) put(name string) bool {
	q, ok := f.truth.Queue(name)
	if !ok {
		return false
	}
	uid := q.Metadata.UID
	for _, n := range f.nodes {
		if !n.up || !n.open[uid] || !n.serving[uid] {
			continue
		}
		r, g := n.groups[uid], f.groups[uid]
		switch {
		case r.owner:
			r.have++
			return true
		case g == nil || g.leader != r.replica:
		default:
			if f.replicate(uid, g); g.leader != r.replica {
				continue
			}
			if !f.majority(uid, g.config) || g.next != nil && !f.majority(uid, g.next) {
				continue
			}
			g.entries++
			for _, m := range slices.Concat(g.config, g.next) {
				if h := f.holds(uid, m); h != nil && h.have == g.entries-1 {
					h.have++
				}
			}
			return true
		}
	}
	return false
}
