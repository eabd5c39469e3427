package control

import "testing"

// node is a small Runtime: everything works at once unless it is told otherwise.
type node struct {
	s         *State
	r         *Reconciler
	now       int64
	err       map[uint64]error // of Ensure, by uid
	pending   bool             // Ensure is never done
	turns     bool             // Ensure is not done every other time, before its result
	waking    bool             // Ensure wakes
	within    bool             // proposals are applied at once
	hold      bool             // proposals wait
	drop      int              // proposals to drop
	left      uint64           // messages in every queue
	proposals []Command
	last      Result

	stuck    error    // of Destroy
	order    []uint64 // of Ensure
	observed []uint64 // of Propose

	ensures, proposed, destroyed int // proposed: all but placements and registrations
}

// start begins a life of the node, which is number 1 and registers in entry 1: the first queue is number 2.
func (n *node) start(t *testing.T, o Options) {
	t.Helper()
	if o.Node == "" {
		o.Node = "key"
	}
	if o.Disk == "" {
		o.Disk = "d"
	}
	first := n.s == nil
	if first {
		n.s, n.now = NewState(), 1_000_000_000
		n.last = n.s.Apply(1, Command{Register: &Register{
			NodeSpec: NodeSpec{Fingerprint: o.Node}, Name: o.Name, Disk: o.Disk, At: 1,
		}})
		if n.last.Err != nil {
			t.Fatal(n.last.Err)
		}
	}
	n.r = NewReconciler(n, o)
	n.r.Load(n.s)
	n.r.Lead(n.s)
	if first { // it has registered
		n.r.node, n.r.leader = NewNodeReconciler(n, o), NewLeaderReconciler(n, o)
	}
}

// placeAll puts every queue that is nowhere on this node, which does not lead the control group from then on.
func (n *node) placeAll() {
	for _, q := range n.s.queuesByUID() {
		n.place(q.Metadata.Name)
	}
	n.r.Follow()
}

// place puts a queue on this node.
func (n *node) place(name string) {
	q, _ := n.s.Queue(name)
	n.enter(Command{Place: &Place{KindQueue, q.Metadata.UID, q.Metadata.Generation, 0, []Spot{{1, false, true}}, false}})
}

// tasks are the resources on which something is outstanding.
func (n *node) tasks() int {
	if n.r.leader == nil {
		return len(n.r.node.tasks)
	}
	return len(n.r.node.tasks) + len(n.r.leader.tasks)
}

func (n *node) Group(Queue) (Group, error)            { return Group{}, nil }
func (n *node) Reconfigure(Queue, []Replica) error    { return nil }
func (n *node) Transfer(Queue, Replica) error         { return nil }
func (n *node) SetAside(Queue, Replica) (bool, error) { return true, nil }
func (n *node) Sound(uint64) bool                     { return true }
func (n *node) Reachable(uint64) bool                 { return true }
func (n *node) ReconfigureControl([]Replica) error    { return nil }

func (n *node) ControlGroup() (Group, error) {
	return Group{Serves: true, Members: []Member{{Replica: 1, Number: 1, CaughtUp: true, Held: true}}}, nil
}

func (n *node) Ensure(q Queue) (bool, error) {
	n.ensures++
	n.order = append(n.order, q.Metadata.UID)
	if n.waking {
		n.r.Wake(q.Metadata.UID)
	}
	if n.pending || n.turns && n.ensures%2 == 1 {
		return false, nil
	}
	return true, n.err[q.Metadata.UID]
}

func (n *node) StopAdmission(Queue) (bool, error) { return true, nil }

func (n *node) Drained(Queue) (Drain, error) { return Drain{Left: n.left}, nil }

func (n *node) Disconnect(Queue) (bool, Drain, error) { return true, Drain{Left: n.left}, nil }

func (n *node) Destroy(uint64, Replica) (bool, error) {
	n.destroyed++
	return n.stuck == nil, n.stuck
}

func (n *node) Propose(c Command) error {
	if c.Place == nil && c.Register == nil {
		n.proposed++
		n.observed = append(n.observed, uidOf(c))
	}
	n.proposals = append(n.proposals, c)
	if n.within {
		n.commit()
	}
	return nil
}

// commit applies what was proposed.
func (n *node) commit() {
	for len(n.proposals) > 0 {
		c := n.proposals[0]
		n.proposals = n.proposals[1:]
		if n.drop > 0 {
			n.drop--
			n.r.Dropped(c)
			continue
		}
		n.enter(c)
	}
}

func (n *node) enter(c Command) {
	n.last = n.s.Apply(n.s.Version()+1, c)
	n.r.Applied(c, n.last)
}

func (n *node) mutate(m Mutation) {
	m.At = n.now
	n.enter(Command{Mutation: &m})
}

func (n *node) apply(name string, s QueueSpec) {
	n.mutate(Mutation{Verb: Apply, Kind: KindQueue, Name: name, Queue: &s})
}

func (n *node) delete(name string) { n.mutate(Mutation{Verb: Delete, Kind: KindQueue, Name: name}) }

// settle steps without letting time pass until nothing happens, and returns the wait.
func (n *node) settle() int64 {
	for {
		wait := n.r.Step(n.now, n.s)
		more := len(n.proposals) > 0 && !n.hold
		if more {
			n.commit()
		}
		if wait != 0 && !more {
			return wait
		}
	}
}
