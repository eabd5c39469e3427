package control

import (
	"errors"
	"fmt"
	"testing"
)

// world is a node around a registry: what is on its disk, what is in its memory, and a user who follows a
// script. It implements Runtime, holds the reconciler to the order of things, and fails or dies where a
// test wants it.
type world struct {
	t *testing.T
	o Options

	// Survives a crash.
	log       []Command // entry i has index i+1
	disk      map[uint64]bool
	left      map[uint64]uint64 // messages of a queue
	gone      map[uint64]bool   // destroyed once
	removed   map[uint64]bool   // uids whose record went
	now       int64
	script    []act
	consumers bool // that take a message of every open queue each second

	// Lost in a crash.
	s         *State
	r         *Reconciler
	open      map[uint64]QueueLimits
	admitting map[uint64]bool
	stopped   map[uint64]bool
	streams   map[uint64]bool
	started   map[string]bool // slow work under way or done, by call and id
	proposals []Command       // under way

	// Faults.
	slow   bool // work is not done at the first call
	calls  int  // chances to fail or die so far
	at     int  // the one that is taken; 0 none
	fault  fault
	deaths int
	trace  []string
}

// act is one thing that the user does as soon as the registry allows it.
type act struct {
	when func(*world) bool
	do   func(*world)
}

type fault int

const (
	errBefore fault = iota // the call has no effect and errs; a proposal gets no entry
	errAfter               // it has its effect and errs
	dieBefore              // the node dies before the call
	dieAfter               // and after it
	faultsEnd
)

type death struct{}

var errInjected = errors.New("injected")

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, o: Options{Node: "n-key", Name: "n1", Disk: "d1"}, now: 1_000_000,
		disk: map[uint64]bool{}, left: map[uint64]uint64{}, gone: map[uint64]bool{}, removed: map[uint64]bool{},
	}
	w.log = []Command{{Register: &Register{NodeSpec: NodeSpec{Fingerprint: "n-key"}, Name: "n1", Disk: "d1", At: 1}}}
	w.boot()
	return w
}

// boot starts the node: it replays the log and begins anew.
func (w *world) boot() {
	w.s, w.r = NewState(), NewReconciler(w, w.o)
	w.o.Incarnation++
	for i, c := range w.log {
		back, err := Decode(c.Append(nil))
		if err != nil {
			w.t.Fatal(err)
		}
		w.s.Apply(uint64(i+1), back)
	}
	w.open, w.admitting, w.stopped = map[uint64]QueueLimits{}, map[uint64]bool{}, map[uint64]bool{}
	w.streams, w.started, w.proposals = map[uint64]bool{}, map[string]bool{}, nil
	w.r.Load(w.s)
	w.r.Lead(w.s)
}

func (w *world) Group(Queue) (Group, error)            { panic("no group here") }
func (w *world) Reconfigure(Queue, []Replica) error    { panic("no group here") }
func (w *world) Transfer(Queue, Replica) error         { panic("no group here") }
func (w *world) SetAside(Queue, Replica) (bool, error) { panic("nothing is lost here") }
func (w *world) Sound(uint64) bool                     { return true }
func (w *world) Reachable(uint64) bool                 { return true }
func (w *world) ReconfigureControl([]Replica) error    { panic("no group here") }

func (w *world) ControlGroup() (Group, error) {
	return Group{Serves: true, Members: []Member{{Replica: 1, Number: 1, CaughtUp: true, Held: true}}}, nil
}

// tasks are the resources on which something is outstanding.
func (w *world) tasks() int { return len(w.r.node.tasks) + len(w.r.leader.tasks) }

// chance counts a call and says whether it errs; it may kill the node. Called before and after the effect.
func (w *world) chance(name string, uid uint64, after bool) error {
	if !after {
		w.calls++
		w.trace = append(w.trace, fmt.Sprintf("%s %d", name, uid))
	}
	if w.calls != w.at {
		return nil
	}
	switch {
	case w.fault == dieBefore && !after || w.fault == dieAfter && after:
		w.at = 0
		panic(death{})
	case w.fault == errBefore && !after || w.fault == errAfter && after:
		w.at = 0
		return errInjected
	}
	return nil
}

// check fails the test with what led here.
func (w *world) check(ok bool, format string, args ...any) {
	w.t.Helper()
	if !ok {
		w.t.Fatalf("call %d, fault %d: %s\n%v", w.at, w.fault, fmt.Sprintf(format, args...), w.trace)
	}
}

// current asserts that the reconciler works on what the registry says now.
func (w *world) current(q Queue) Queue {
	cur, ok := w.s.QueueOf(q.Metadata.UID)
	w.check(ok && cur.Metadata == q.Metadata && sameQueueSpec(&cur.Spec, &q.Spec) && sameStatus(&cur.Status, &q.Status),
		"works on %+v, registry has %+v", q, cur)
	return cur
}

// working does slow work: not done the first time.
func (w *world) working(name string, uid uint64) bool {
	key := fmt.Sprintf("%s %d", name, uid)
	if w.slow && !w.started[key] {
		w.started[key] = true
		return true
	}
	delete(w.started, key)
	return false
}

func (w *world) Ensure(q Queue) (done bool, err error) {
	uid := q.Metadata.UID
	if err := w.chance("Ensure", uid, false); err != nil {
		return false, err
	}
	w.current(q)
	w.check(!q.Status.Destroying, "opens %d, which is being destroyed", uid)
	deleting := q.Metadata.DeletionTimestamp != 0
	w.check(!deleting || w.stopped[uid], "opens %d for draining before admission stopped", uid)
	if w.working("Ensure", uid) {
		return false, nil
	}
	if !w.disk[uid] && (deleting || q.Status.ObservedGeneration > 0) {
		return false, &Trouble{Reason: "GroupMissing", Message: "the group is missing"}
	}
	w.check(!w.gone[uid], "makes %d again", uid)
	w.check(q.Status.Epoch > 0 && len(q.Status.Placement) == 1 && q.Status.Placement[0].Owner, "opens %+v", q.Status)
	w.disk[uid] = true
	w.open[uid] = q.Spec.Limits
	if q.Status.ObservedGeneration > 0 {
		w.streams[uid] = true
		w.admitting[uid] = !deleting
	}
	return true, w.chance("Ensure", uid, true)
}

func (w *world) StopAdmission(q Queue) (done bool, err error) {
	uid := q.Metadata.UID
	if err := w.chance("StopAdmission", uid, false); err != nil {
		return false, err
	}
	w.check(w.current(q).Metadata.DeletionTimestamp != 0, "stops %d, which nobody deletes", uid)
	if w.working("StopAdmission", uid) {
		return false, nil
	}
	w.admitting[uid], w.stopped[uid] = false, true
	return true, w.chance("StopAdmission", uid, true)
}

func (w *world) Drained(q Queue) (Drain, error) {
	uid := q.Metadata.UID
	if err := w.chance("Drained", uid, false); err != nil {
		return Drain{}, err
	}
	_, open := w.open[w.current(q).Metadata.UID]
	w.check(open && !w.admitting[uid], "drains %d: open %v, admitting %v", uid, open, w.admitting[uid])
	return Drain{Left: w.left[uid]}, w.chance("Drained", uid, true)
}

func (w *world) Disconnect(q Queue) (done bool, d Drain, err error) {
	uid := q.Metadata.UID
	if err := w.chance("Disconnect", uid, false); err != nil {
		return false, Drain{}, err
	}
	m := w.current(q).Metadata
	w.check(m.DeletionTimestamp != 0, "disconnects %d, which nobody deletes", uid)
	w.check(w.left[uid] == 0 || w.now >= m.DrainUntil, "ends draining of %d with %d left at %d of %d", uid, w.left[uid],
		w.now, m.DrainUntil)
	if w.working("Disconnect", uid) {
		return false, Drain{}, nil
	}
	w.admitting[uid], w.streams[uid] = false, false
	return true, Drain{Left: w.left[uid]}, w.chance("Disconnect", uid, true)
}

func (w *world) Destroy(uid uint64, _ Replica) (done bool, err error) {
	if err := w.chance("Destroy", uid, false); err != nil {
		return false, err
	}
	cur, _ := w.s.QueueOf(uid)
	w.check(cur.Status.Destroying && cur.Metadata.DeletionTimestamp != 0, "destroys %d on doubt", uid)
	w.check(!w.streams[uid] && !w.admitting[uid], "destroys %d, which serves", uid)
	if w.working("Destroy", uid) {
		return false, nil
	}
	delete(w.open, uid)
	delete(w.disk, uid)
	w.gone[uid] = true
	return true, w.chance("Destroy", uid, true)
}

func (w *world) Propose(c Command) error {
	if c.Place != nil || c.Register != nil {
		w.unique(uidOf(c))
		if err := w.chance("Propose Place", uidOf(c), false); err != nil {
			return err
		}
		w.proposals = append(w.proposals, c)
		return nil
	}
	if c.Remove != nil {
		uid := c.Remove.UID
		_, open := w.open[uid]
		w.check(!w.disk[uid] && !open, "removes the record of %d before its data", uid)
		w.unique(uid)
		if err := w.chance("Propose Remove", uid, false); err != nil {
			return err
		}
	} else {
		uid, st := c.Observe.UID, c.Observe.Status
		o := w.s.objectOf(uid)
		w.check(!sameFindings(&st, o.status), "observes of %d what stands: %+v", uid, st)
		w.unique(uid)
		if st.Phase == Ready {
			limits, open := w.open[uid]
			w.check(w.disk[uid] && open && limits == o.queue.Spec.Limits && st.ObservedGeneration == o.meta.Generation,
				"%d is said to be ready and is not", uid)
		}
		if err := w.chance("Propose Observe", uid, false); err != nil {
			return err
		}
	}
	w.proposals = append(w.proposals, c)
	return nil
}

// unique asserts that no proposal is under way for a resource.
func (w *world) unique(uid uint64) {
	for _, p := range w.proposals {
		w.check(uidOf(p) != uid, "a second proposal for %d", uid)
	}
}

func uidOf(c Command) uint64 {
	switch {
	case c.Observe != nil:
		return c.Observe.UID
	case c.Place != nil:
		return c.Place.UID
	case c.Reached != nil:
		return c.Reached.UID
	case c.Gone != nil:
		return c.Gone.UID
	case c.Lost != nil:
		return c.Lost.UID
	case c.Remove != nil:
		return c.Remove.UID
	}
	return 0
}

// commit gives the oldest proposal its entry.
func (w *world) commit() {
	c := w.proposals[0]
	w.proposals = w.proposals[1:]
	if w.chance("commit", uidOf(c), false) != nil {
		w.r.Dropped(c)
		return
	}
	w.enter(c, func() {
		if w.fault == dieAfter { // in the log, and nobody has seen it
			w.check(w.chance("commit", uidOf(c), true) == nil, "not reached")
		}
	})
}

// enter appends an entry and applies it.
func (w *world) enter(c Command, between func()) Result {
	w.log = append(w.log, c)
	between()
	res := w.s.Apply(uint64(len(w.log)), c)
	w.r.Applied(c, res)
	if c.Remove != nil && res.Changed {
		w.removed[c.Remove.UID] = true
	}
	return res
}

// user proposes a mutation, which always gets its entry.
func (w *world) user(m Mutation) Result {
	m.At = w.now
	return w.enter(Command{Mutation: &m}, func() {})
}

// run goes on until nothing is outstanding and the script is at its end.
func (w *world) run() {
	for range 20_000 {
		if w.round() {
			return
		}
	}
	w.check(false, "does not come to rest")
}

// round is one turn of the node; it says whether all is quiet.
func (w *world) round() (quiet bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, died := p.(death); !died {
				panic(p)
			}
			w.deaths++
			w.trace = append(w.trace, "DIED")
			w.boot()
		}
	}()
	if len(w.script) > 0 && w.script[0].when(w) {
		do := w.script[0].do
		w.script = w.script[1:]
		do(w)
		return false
	}
	wait := w.r.Step(w.now, w.s)
	if len(w.proposals) > 0 {
		w.commit()
		return false
	}
	if wait == Idle {
		w.check(w.tasks() == 0, "idle with %d tasks", w.tasks())
		return len(w.script) == 0 || !w.script[0].when(w)
	}
	w.now += wait
	if w.consumers {
		for uid := range w.streams {
			if w.streams[uid] && w.left[uid] > 0 {
				w.left[uid]--
			}
		}
	}
	return false
}

// Conditions and doings of scripts.

func always(*world) bool { return true }

// ready is when the queue is ready in that generation.
func ready(name string, gen uint64) func(*world) bool {
	return func(w *world) bool {
		q, ok := w.s.Queue(name)
		return ok && q.Status.Phase == Ready && q.Status.ObservedGeneration == gen
	}
}

func absent(name string) func(*world) bool {
	return func(w *world) bool { _, ok := w.s.Queue(name); return !ok }
}

func apply(name string, s QueueSpec) func(*world) {
	return func(w *world) {
		res := w.user(Mutation{Verb: Apply, Kind: KindQueue, Name: name, Queue: &s})
		w.check(res.Err == nil, "apply: %v", res.Err)
	}
}

func del(name string, drain Duration) func(*world) {
	return func(w *world) {
		res := w.user(Mutation{Verb: Delete, Kind: KindQueue, Name: name, Drain: &drain})
		w.check(res.Err == nil, "delete: %v", res.Err)
	}
}

// put is a publisher's messages; the queue has to take them.
func put(name string, n uint64) func(*world) {
	return func(w *world) {
		q, _ := w.s.Queue(name)
		w.check(w.admitting[q.Metadata.UID], "%q is ready and takes nothing", name)
		w.left[q.Metadata.UID] += n
	}
}

// serving is ready, and open to publishers.
func serving(name string, gen uint64) func(*world) bool {
	return func(w *world) bool {
		q, _ := w.s.Queue(name)
		return ready(name, gen)(w) && w.admitting[q.Metadata.UID]
	}
}
