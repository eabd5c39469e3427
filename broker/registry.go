package broker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// controlGroup is the group of the control log. Resources get their ids from that log's indexes, whose
// first is taken by genesis, so no queue has this one.
const controlGroup raftstore.GroupID = 1

// genesis is the first entry of a control log; it changes nothing.
var genesis = []byte{0}

// registry is the control group on this node: the committed resources, those who wait for an entry, and
// the reconciler, which it tells of every entry.
type registry struct {
	log   *slog.Logger
	group raftstore.Group
	bell  chan struct{} // holds one: the reconciler may have work

	mu         sync.Mutex
	state      *control.State      // guarded by mu
	reconciler *control.Reconciler // guarded by mu, with state; nil until the log is replayed
	// waiting are the changes to come. One is under way at a time: so every entry has one command, and
	// its index is one resource's version.
	waiting  []*change // guarded by mu
	underWay *change   // guarded by mu
	applied  raftstore.Index
	flushed  raftstore.Index
	halted   error          // guarded by mu
	copied   admin.Registry // guarded by mu; as of its version, never changed
	history  history        // guarded by mu
	moved    chan struct{}  // guarded by mu; closed when something has changed
}

// change is one command on its way.
type change struct {
	command []byte
	own     *control.Command // of the reconciler, which is told if there is no entry; of everybody, once applied

	index  raftstore.Index
	result control.Result
	answer chan error // holds one: nil when the entry is applied and flushed; nil channel if nobody waits
}

func newRegistry(log *slog.Logger) *registry {
	return &registry{log: log, bell: make(chan struct{}, 1), state: control.NewState(), moved: make(chan struct{})}
}

// begin makes sure of the first entry.
func (r *registry) begin(ctx context.Context) error {
	if r.group.Status().Marks.Committed > 0 {
		return nil
	}
	_, err := r.put(ctx, genesis)
	return err
}

// propose puts a command into the log and waits until it is applied and flushed. A refusal by the state
// is in the result. Errors: *wire.Error with NotCommitted, or MutationIndeterminate.
func (r *registry) propose(ctx context.Context, c control.Command) (control.Result, error) {
	return r.put(ctx, c.Append(nil))
}

func (r *registry) put(ctx context.Context, command []byte) (control.Result, error) {
	c := &change{command: command, answer: make(chan error, 1)}
	r.mu.Lock()
	r.enqueueLocked(c)
	r.mu.Unlock()
	select {
	case err := <-c.answer:
		return c.result, err
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting, c); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
		return control.Result{}, notCommitted(ctx.Err())
	}
	return control.Result{}, &wire.Error{
		Code: wire.MutationIndeterminate, Detail: "Nobody waited for the answer: " + ctx.Err().Error(),
	}
}

func notCommitted(err error) error { return &wire.Error{Code: wire.NotCommitted, Detail: err.Error()} }

// enqueueLocked puts a change behind those that wait.
func (r *registry) enqueueLocked(c *change) {
	r.waiting = append(r.waiting, c)
	r.nextLocked()
}

// nextLocked proposes the next change if none is under way.
func (r *registry) nextLocked() {
	for r.underWay == nil && len(r.waiting) > 0 {
		c := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.underWay = c
		if err := r.group.Propose(&raftstore.Batch{Items: []raftstore.Item{{Command: c.command}}}); err != nil {
			r.endLocked(notCommitted(err))
		}
	}
}

// endLocked answers the change under way.
func (r *registry) endLocked(err error) {
	c := r.underWay
	r.underWay = nil
	if err != nil && c.own != nil && r.reconciler != nil {
		r.reconciler.Dropped(*c.own)
		r.ring()
	}
	if c.answer != nil {
		c.answer <- err
	}
}

func (r *registry) ring() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// reconcile gives the registry its reconciler, once the log is replayed.
func (r *registry) reconcile(rec *control.Reconciler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reconciler = rec
	rec.Load(r.state)
	r.ring()
}

// step steps the reconciler, which sees only what is flushed: what it does to a disk must not outlive
// its reason. It returns when to call again, in milliseconds; below 0 is when the bell rings.
func (r *registry) step(now int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.applied > r.flushed || r.reconciler == nil {
		return control.Idle // the bell rings when it is flushed
	}
	wait := r.reconciler.Step(now, r.state)
	r.movedLocked()
	return wait
}

// wake tells the reconciler that something about a queue has changed.
func (r *registry) wake(uid uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reconciler != nil {
		r.reconciler.Wake(uid)
		r.ring()
	}
}

// Attach implements raftstore.Attacher.
func (r *registry) Attach(g raftstore.Group) { r.group = g }

// Appended implements raftstore.Machine.
func (r *registry) Appended(_ uint64, _ raftstore.Term, i raftstore.Index) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay.index = i
}

// Dropped implements raftstore.Machine.
func (r *registry) Dropped(_ uint64, o raftstore.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Kind == raftstore.Refused {
		r.endLocked(notCommitted(o.Err))
	} else {
		r.endLocked(&wire.Error{Code: wire.MutationIndeterminate, Detail: o.Err.Error()})
	}
	r.nextLocked()
}

// Apply implements raftstore.Machine.
func (r *registry) Apply(_ raftstore.Term, i raftstore.Index, items []raftstore.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied = i
	for _, item := range items {
		if bytes.Equal(item.Command, genesis) {
			continue
		}
		c, err := control.Decode(item.Command)
		if err != nil {
			// Skipping would let copies differ. The log holds what this build does not know.
			panic("bug: broker: control log: " + err.Error())
		}
		result := r.state.Apply(uint64(i), c)
		r.history.note(uint64(i), c, madeBy(result, uint64(i)), result)
		if r.underWay != nil && r.underWay.index == i {
			r.underWay.result = result
			r.underWay.command, r.underWay.own = nil, &c
		}
	}
}

// Moved implements raftstore.Machine: what is applied and flushed is answered, and told to the reconciler.
func (r *registry) Moved(m raftstore.Marks) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushed = m.Flushed
	c := r.underWay
	if c == nil || c.index == 0 || c.index > min(m.Applied, m.Flushed) {
		r.ring()
		return
	}
	if r.reconciler != nil && c.own != nil {
		r.reconciler.Applied(*c.own, c.result)
	}
	c.own = nil
	r.endLocked(nil)
	r.nextLocked()
	r.movedLocked()
	r.ring()
}

// Halted implements raftstore.Halter.
func (r *registry) Halted(err error) {
	r.log.Error("the control log is read-only: resources cannot be changed, queues go on", "err", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.halted = err
	if r.underWay != nil && r.underWay.index != 0 {
		r.endLocked(&wire.Error{Code: wire.MutationIndeterminate, Detail: err.Error()})
	}
	r.nextLocked()
}

// Role implements raftstore.Machine.
func (r *registry) Role(raftstore.Role, raftstore.Term, raftstore.Leader) {}

// Bodies implements raftstore.Holder: the control log has none.
func (r *registry) Bodies(func(raftstore.BodyRef) bool) {}

// registrySnapshot is the registry's bytes as of one moment; they are few, so they are taken at once.
type registrySnapshot []byte

func (s registrySnapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(s)
	return int64(n), err
}

// Snapshot implements raftstore.Machine.
func (r *registry) Snapshot() raftstore.Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	return registrySnapshot(r.state.Snapshot())
}

// Restore implements raftstore.Machine.
func (r *registry) Restore(s raftstore.Source) error {
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		return err
	}
	state, err := control.Restore(b.Bytes())
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.state = state
	r.history = history{from: state.Version()}
	r.mu.Unlock()
	return nil
}

// openControl opens the control log. One that is gone while queues are there is damage.
func (n *Node) openControl() error {
	groups, err := n.store.Groups()
	if err != nil {
		return err
	}
	known, err := n.store.HasLog(controlGroup)
	if err != nil {
		return err
	}
	if !known && len(groups) > 0 {
		return fmt.Errorf("the control log is missing: %s holds %d groups but not groups/%d, which says what they are; "+
			"nothing was made or changed; restore that directory", n.c.Dir, len(groups), uint64(controlGroup))
	}
	n.registry = newRegistry(n.c.Log)
	if _, err := n.host.OpenOwner(controlGroup, n.registry, raftstore.OwnerOptions{Create: true}); err != nil {
		return fmt.Errorf("control log: %w", err)
	}
	return n.registry.begin(context.Background())
}

// queues returns the committed queues.
func (r *registry) queues() []control.Queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Queues()
}

func (r *registry) queue(name string) (control.Queue, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Queue(name)
}

func (r *registry) queueOf(uid uint64) (control.Queue, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.QueueOf(uid)
}

// copy is the registry as of now; it is shared and not to be changed.
func (r *registry) copy() admin.Registry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.copied.Version != r.state.Version() {
		r.copied = admin.Registry{Version: r.state.Version(), Queues: r.state.Queues(), Connectors: r.state.Connectors()}
	}
	return r.copied
}

// trouble is why the control log takes no commands, nil if it does.
func (r *registry) trouble() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.halted
}

// await returns when what is asked of the state holds, or with ctx.
func (r *registry) await(ctx context.Context, holds func(*control.State) bool) error {
	for {
		r.mu.Lock()
		done, moved := holds(r.state), r.moved
		r.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// movedLocked tells those in await to look again.
func (r *registry) movedLocked() {
	close(r.moved)
	r.moved = make(chan struct{})
}
