package control

import (
	"math"
	"slices"
)

// Idle is what Step returns when nothing is outstanding.
const Idle = -1

// Keys of tasks that are no resource's: no uid is that large.
const (
	keySelf    = math.MaxUint64 - iota // this node's own record
	keyCluster                         // the members of the control group
	keyBalance                         // who leads how much
)

// loop is what both reconcilers are made of: a list of the resources on which something is outstanding, and
// nothing about the others, so that a step costs what has changed. All it knows can be forgotten.
type loop struct {
	o       Options
	work    func(t *task, s *State) (outcome, bool) // false: there is no such thing any more
	propose func(Command) error

	tasks   map[uint64]*task
	answers map[string]*task // by the bytes of what is under way
	ready   []uint64         // to be worked on, in order of asking; each has a task that is queued
	timers  timers           // to be worked on later
	all     bool             // everything is to be looked at: the members have changed
	moved   map[string]bool  // names of queues that came, are leaving or went: connectors depend on them
	now     int64            // of the last step
}

// task is a resource on which something is outstanding.
type task struct {
	uid       uint64
	queued    bool   // on the ready list
	due       int64  // when a timer puts it there; 0 never
	place     int    // in the heap of timers, while due is set
	notBefore int64  // the runtime is not asked again before this
	proposeAt int64  // nothing is proposed before this
	underWay  string // the command that is proposed, and neither applied nor dropped; "" if none is
	fails     uint   // of the runtime in a row
	drops     uint   // of proposals in a row
	last      outcome
	asked     bool  // last is set
	since     int64 // when something was first not as it should be; 0 if nothing is
	madeAt    int64 // when replicas were first seen to be made that are not known to be; 0 if none are
}

// outcome is what came of working on a resource: what the registry should say, or the entry that is called for.
type outcome struct {
	status  *Status // nil leaves what stands
	made    []uint64
	command *Command
	wait    int64 // milliseconds until it is to be asked again; 0 if nothing is outstanding
}

func newLoop(o Options) loop {
	set := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.BackoffMin, 100)
	set(&o.BackoffMax, 30_000)
	set(&o.Poll, 1_000)
	set(&o.Patience, 10_000)
	if o.StepMax <= 0 {
		o.StepMax = 256
	}
	return loop{o: o, tasks: make(map[uint64]*task), answers: make(map[string]*task), moved: make(map[string]bool)}
}

// load puts every resource on the list, in order.
func (r *loop) load(s *State) {
	uids := make([]uint64, 0, len(s.names)+len(s.retired))
	for uid := range s.names {
		uids = append(uids, uid)
	}
	for uid := range s.retired {
		if _, known := s.names[uid]; !known {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	for _, uid := range uids {
		r.fresh(uid)
	}
}

// forget takes a resource off the list.
func (r *loop) forget(uid uint64) {
	if t := r.tasks[uid]; t != nil {
		r.timers.set(t, 0)
		delete(r.answers, t.underWay)
		delete(r.tasks, uid)
	}
}

// answered ends the wait for a proposal. What others proposed is nobody's.
func (r *loop) answered(c Command, failed bool) {
	if len(r.answers) == 0 {
		return
	}
	key := string(c.Append(nil))
	t := r.answers[key]
	if t == nil {
		return // of another life, or of another node
	}
	delete(r.answers, key)
	t.underWay = ""
	if failed {
		r.notNow(t)
		r.touch(t.uid)
		return
	}
	t.drops = 0
	if c.Observe != nil && c.Observe.Kind != KindCluster {
		r.touch(t.uid)
	} else {
		r.fresh(t.uid)
	}
}

// Dropped tells that a proposal got no entry, or one that was lost. It is made again after a back-off if
// it is still wanted.
func (r *loop) Dropped(c Command) { r.answered(c, true) }

// notNow puts off the next proposal, and what would lead to it.
func (r *loop) notNow(t *task) {
	t.proposeAt = r.now + r.backoff(t.drops)
	t.notBefore = max(t.notBefore, t.proposeAt)
	t.drops++
}

// Wake says that something about a resource is not as it was: work on it is done, or there is trouble,
// or the end of trouble, or another replica leads. Unknown ids are fine.
func (r *loop) Wake(uid uint64) { r.touch(uid).notBefore = 0 }

// WakeAll says that it may be so of any: a node can be reached, or cannot any more.
func (r *loop) WakeAll() { r.all = true }

// fresh takes up a resource that is wanted in another way than before.
func (r *loop) fresh(uid uint64) {
	t := r.touch(uid)
	t.notBefore, t.fails = 0, 0
}

// touch puts a resource on the ready list.
func (r *loop) touch(uid uint64) *task {
	t := r.tasks[uid]
	if t == nil {
		t = &task{uid: uid}
		r.tasks[uid] = t
	}
	if !t.queued {
		t.queued = true
		r.ready = append(r.ready, uid)
	}
	return t
}

// Step works on what is ready at the time now, in milliseconds since 1970, and returns after how many
// milliseconds it is to be called again: 0 is at once, because there is more than one step takes, Idle is
// not before something happens.
func (r *loop) Step(now int64, s *State) (wait int64) {
	if now < r.now {
		r.clockWentBack()
	}
	r.now = now
	if r.all {
		r.all = false
		r.load(s)
	}
	r.recheck(s)
	for t := r.timers.next(now); t != nil; t = r.timers.next(now) {
		r.touch(t.uid)
	}
	// What is put on the list meanwhile waits for the next step: a step ends.
	n := min(len(r.ready), r.o.StepMax)
	for range n {
		uid := r.ready[0]
		r.ready = r.ready[1:]
		if t := r.tasks[uid]; t != nil && t.queued {
			t.queued = false
			r.run(t, s)
		}
	}
	switch {
	case len(r.ready) > 0 || len(r.moved) > 0 || r.all:
		return 0
	case len(r.timers) > 0:
		return max(r.timers[0].due-now, 1)
	}
	return Idle
}

// clockWentBack makes every timer due: what they were set by does not hold.
func (r *loop) clockWentBack() {
	for t := r.timers.next(math.MaxInt64); t != nil; t = r.timers.next(math.MaxInt64) {
		t.notBefore, t.proposeAt, t.since, t.madeAt = 0, 0, 0, 0
		r.touch(t.uid)
	}
}

// recheck takes up the connectors of queues that came or went.
func (r *loop) recheck(s *State) {
	if len(r.moved) == 0 {
		return
	}
	var uids []uint64
	for _, c := range s.connectors {
		if r.moved[c.Spec.Queue] {
			uids = append(uids, c.Metadata.UID)
		}
	}
	clear(r.moved)
	slices.Sort(uids)
	for _, uid := range uids {
		r.fresh(uid)
	}
}

// run works on one resource and decides when it is to be looked at again.
func (r *loop) run(t *task, s *State) {
	if t.underWay != "" {
		// The answer comes back here. Until then the runtime is left as it was when this was proposed: a
		// queue whose streams ended must not be opened again while its destruction is being written down.
		r.timers.set(t, 0)
		return
	}
	if !t.asked || r.now >= t.notBefore {
		out, ok := r.work(t, s)
		if !ok {
			r.forget(t.uid)
			return
		}
		t.last, t.asked = out, true
		t.notBefore = 0
		if out.wait > 0 {
			t.notBefore = r.now + out.wait
		}
	}
	c := t.last.entry(s.objectOf(t.uid))
	if c != nil && r.now >= t.proposeAt {
		r.ask(t, *c)
	}
	if r.tasks[t.uid] != t || t.queued {
		return // it was answered from within
	}
	if t.underWay != "" {
		r.timers.set(t, 0)
		return
	}
	due := t.notBefore
	if c != nil {
		due = earlier(due, t.proposeAt)
	}
	r.timers.set(t, due)
	if due == 0 {
		r.forget(t.uid) // nothing is outstanding
	}
}

// entry is the command that an outcome calls for as things stand, nil if none.
func (out *outcome) entry(o object) *Command {
	switch {
	case out.command != nil || out.status == nil || o.meta == nil:
		return out.command
	case o.node != nil:
		if slices.Equal(out.status.Conditions, o.node.Status.Conditions) {
			return nil
		}
		return &Command{Observe: &Observe{Kind: KindNode, UID: o.meta.UID, Status: out.status.clone()}}
	}
	news := slices.ContainsFunc(o.status.Placement, func(p Replica) bool {
		return !p.Made && slices.Contains(out.made, p.Replica)
	})
	if sameFindings(out.status, o.status) && !news {
		return nil
	}
	st := out.status.clone()
	st.Placement, st.Step, st.Founders, st.Epoch = nil, Steady, nil, 0
	return &Command{Observe: &Observe{
		Kind: o.kind(), UID: o.meta.UID, Generation: o.meta.Generation, Epoch: out.status.Epoch, Status: st,
		Made: slices.Clone(out.made),
	}}
}

// ask proposes an entry.
func (r *loop) ask(t *task, c Command) {
	key := string(c.Append(nil))
	t.underWay, r.answers[key] = key, t // before: the answer may come from within
	if err := r.propose(c); err != nil && t.underWay == key {
		delete(r.answers, key)
		t.underWay = ""
		r.notNow(t)
	}
}

// failed counts a failure of the runtime and returns the wait.
func (r *loop) failed(t *task) int64 {
	wait := r.backoff(t.fails)
	t.fails++
	return wait
}

// lasted says whether something has not been as it should be for longer than patience, and if not, when it
// will have been.
func (r *loop) lasted(t *task) (bool, int64) { return r.lastedSince(&t.since) }

func (r *loop) lastedSince(at *int64) (bool, int64) {
	if *at == 0 {
		*at = r.now
	}
	left := *at + r.o.Patience - r.now
	return left <= 0, max(left, 0)
}

// backoff is the wait after so many failures before this one.
func (r *loop) backoff(before uint) int64 {
	wait := r.o.BackoffMin
	for ; before > 0 && wait < r.o.BackoffMax; before-- {
		wait *= 2
	}
	return min(wait, r.o.BackoffMax)
}

// earlier is the smaller of two times of which 0 means never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
