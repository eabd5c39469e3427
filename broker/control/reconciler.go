package control

import (
	"math"
	"slices"
)

// Options of a reconciler. Node and Disk say who this node is and have to be given.
type Options struct {
	Node string // the node's fingerprint
	Name string // the node's name, by which specs may pin as well; none if empty
	Disk string // id of the data directory's disk

	BackoffMin int64 // milliseconds before the first repetition of what was in error; 100 if 0
	BackoffMax int64 // milliseconds between repetitions at most; 30,000 if 0
	Poll       int64 // milliseconds between questions for what is under way, if nobody wakes; 1,000 if 0
	StepMax    int   // resources worked on in one step; 256 if 0
}

// Idle is what Step returns when nothing is outstanding.
const Idle = -1

// Reconciler makes true what the registry says: it makes, changes and removes queues, and writes down what
// it found (T-21, T-23, T-24). It is stepped by its owner, who also guards it and the State together: one
// goroutine at a time.
//
// The owner calls Load once, Applied after every entry of the control log, Dropped for proposals that got
// none, and Step when one of these or Wake was called, and when the time that Step returned is over. What a
// step does to a disk must not outlive its reason: the State that Step sees is flushed.
//
// It keeps a list of the resources on which something is outstanding and nothing about the others, so a
// step costs what has changed. All it knows can be forgotten: a new one begins with Load.
type Reconciler struct {
	rt Runtime
	o  Options

	tasks  map[uint64]*task
	ready  []uint64        // to be worked on, in order of asking; each has a task that is queued
	timers timers          // to be worked on later
	moved  map[string]bool // names of queues that came, are leaving or went: connectors depend on them
	now    int64           // of the last step
}

// task is a resource on which something is outstanding.
type task struct {
	uid       uint64
	queued    bool     // on the ready list
	due       int64    // when a timer puts it there; 0 never
	place     int      // in the heap of timers, while due is set
	notBefore int64    // the runtime is not asked again before this
	proposeAt int64    // nothing is proposed before this
	underWay  *Command // proposed, and neither applied nor dropped
	fails     uint     // of the runtime in a row
	drops     uint     // of proposals in a row
	last      outcome  // of the last time that the runtime was asked
	asked     bool     // last is set
}

// outcome is what came of working on a resource.
type outcome struct {
	status Status // what the registry should say
	remove bool   // all is done, the record may go
	wait   int64  // milliseconds until it is to be asked again; 0 if nothing is outstanding
}

// NewReconciler returns a reconciler that knows nothing yet.
func NewReconciler(rt Runtime, o Options) *Reconciler {
	set := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.BackoffMin, 100)
	set(&o.BackoffMax, 30_000)
	set(&o.Poll, 1_000)
	if o.StepMax <= 0 {
		o.StepMax = 256
	}
	return &Reconciler{rt: rt, o: o, tasks: make(map[uint64]*task), moved: make(map[string]bool)}
}

// Load puts every resource on the list: at the start, when the log is replayed up to its end.
func (r *Reconciler) Load(s *State) {
	uids := make([]uint64, 0, len(s.names))
	for uid := range s.names {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	for _, uid := range uids {
		r.Wake(uid)
	}
}

// Applied tells of an entry: the command and what it did, whoever proposed it.
func (r *Reconciler) Applied(c Command, res Result) {
	c.one()
	switch {
	case c.Mutation != nil:
		r.mutated(res)
	case c.Observe != nil:
		r.answered(c.Observe.UID, c, res.Err != nil)
		if res.Changed {
			r.touch(c.Observe.UID)
		}
	default:
		r.answered(c.Remove.UID, c, res.Err != nil)
		if res.Changed && res.Queue != nil {
			r.moved[res.Queue.Metadata.Name] = true
		}
		if res.Changed {
			r.forget(c.Remove.UID)
		}
	}
}

// mutated takes up what a user changed.
func (r *Reconciler) mutated(res Result) {
	switch {
	case !res.Changed:
		return
	case res.Connector != nil:
		r.fresh(res.Connector.Metadata.UID)
		return
	}
	m := res.Queue.Metadata
	r.fresh(m.UID)
	if m.UID == m.ResourceVersion || m.DeletionTimestamp != 0 {
		r.moved[m.Name] = true
	}
}

// Dropped tells that a proposal got no entry, or one that was lost. It is made again after a back-off if
// it is still wanted.
func (r *Reconciler) Dropped(c Command) {
	c.one()
	if c.Observe != nil {
		r.answered(c.Observe.UID, c, true)
	}
	if c.Remove != nil {
		r.answered(c.Remove.UID, c, true)
	}
}

// forget takes a resource off the list.
func (r *Reconciler) forget(uid uint64) {
	if t := r.tasks[uid]; t != nil {
		r.timers.set(t, 0)
		delete(r.tasks, uid)
	}
}

// answered ends the wait for a proposal.
func (r *Reconciler) answered(uid uint64, c Command, failed bool) {
	t := r.tasks[uid]
	if t == nil || t.underWay == nil || string(t.underWay.Append(nil)) != string(c.Append(nil)) {
		return // of another life, or of another node
	}
	t.underWay = nil
	if failed {
		r.notNow(t)
	} else {
		t.drops = 0
	}
	r.touch(uid)
}

// notNow puts off the next proposal, and what would lead to it.
func (r *Reconciler) notNow(t *task) {
	t.proposeAt = r.now + r.backoff(t.drops)
	t.notBefore = max(t.notBefore, t.proposeAt)
	t.drops++
}

// Wake says that something about a resource is not as it was: work on it is done, or there is trouble,
// or the end of trouble. Unknown ids are fine.
func (r *Reconciler) Wake(uid uint64) { r.touch(uid).notBefore = 0 }

// fresh takes up a resource that is wanted in another way than before.
func (r *Reconciler) fresh(uid uint64) {
	t := r.touch(uid)
	t.notBefore, t.fails = 0, 0
}

// touch puts a resource on the ready list.
func (r *Reconciler) touch(uid uint64) *task {
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
func (r *Reconciler) Step(now int64, s *State) (wait int64) {
	if now < r.now {
		r.clockWentBack()
	}
	r.now = now
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
	case len(r.ready) > 0 || len(r.moved) > 0:
		return 0
	case len(r.timers) > 0:
		return max(r.timers[0].due-now, 1)
	}
	return Idle
}

// clockWentBack makes every timer due: what they were set by does not hold.
func (r *Reconciler) clockWentBack() {
	for t := r.timers.next(math.MaxInt64); t != nil; t = r.timers.next(math.MaxInt64) {
		t.notBefore, t.proposeAt = 0, 0
		r.touch(t.uid)
	}
}

// recheck takes up the connectors of queues that came or went.
func (r *Reconciler) recheck(s *State) {
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
func (r *Reconciler) run(t *task, s *State) {
	o := s.objectOf(t.uid)
	if o.meta == nil {
		r.forget(t.uid)
		return
	}
	if t.underWay != nil {
		// The answer comes back here. Until then the runtime is left as it was when this was proposed: a
		// queue whose streams ended must not be opened again while its destruction is being written down.
		r.timers.set(t, 0)
		return
	}
	if !t.asked || r.now >= t.notBefore {
		t.last, t.asked = r.work(t, o, s), true
		t.notBefore = 0
		if t.last.wait > 0 {
			t.notBefore = r.now + t.last.wait
		}
	}
	open := t.last.remove || !sameStatus(&t.last.status, o.status)
	if open && r.now >= t.proposeAt {
		r.propose(t, o)
	}
	if r.tasks[t.uid] != t || t.queued {
		return // it was answered from within
	}
	if t.underWay != nil {
		r.timers.set(t, 0)
		return
	}
	due := t.notBefore
	if open {
		due = earlier(due, t.proposeAt)
	}
	r.timers.set(t, due)
	if due == 0 {
		r.forget(t.uid) // nothing is outstanding
	}
}

// propose asks for the entry that the last outcome calls for.
func (r *Reconciler) propose(t *task, o object) {
	kind := KindQueue
	if o.connector != nil {
		kind = KindConnector
	}
	c := Command{Remove: &Remove{Kind: kind, UID: o.meta.UID}}
	if !t.last.remove {
		c = Command{Observe: &Observe{
			Kind: kind, UID: o.meta.UID, Generation: o.meta.Generation, Status: t.last.status.clone(),
		}}
	}
	t.underWay = &c // before: the answer may come from within
	if err := r.rt.Propose(c); err != nil {
		t.underWay = nil
		r.notNow(t)
	}
}

// work asks the runtime for what is outstanding.
func (r *Reconciler) work(t *task, o object, s *State) outcome {
	deleting := o.meta.DeletionTimestamp != 0
	switch {
	case o.connector != nil && deleting:
		return outcome{remove: true} // no connector runs yet: there is nothing to stop
	case o.connector != nil:
		return outcome{status: s.attachment(o.connector)}
	case deleting:
		return r.removal(t, o.queue.clone())
	}
	return r.ensure(t, o.queue.clone())
}

// backoff is the wait after so many failures before this one.
func (r *Reconciler) backoff(before uint) int64 {
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
