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

	ensures, proposed, destroyed int
}

func (n *node) start(t *testing.T, o Options) {
	t.Helper()
	if n.s == nil {
		n.s, n.now = NewState(), 1_000_000_000
	}
	n.r = NewReconciler(n, o)
	n.r.Load(n.s)
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

func (n *node) Destroy(Queue) (bool, error) {
	n.destroyed++
	return n.stuck == nil, n.stuck
}

func (n *node) Propose(c Command) error {
	n.proposed++
	n.observed = append(n.observed, uidOf(c))
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
