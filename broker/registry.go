package broker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weida/broker/admin"
	"weida/broker/control"
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
	waiting    []*change           // guarded by mu; changes to come
	underWay   []*change           // guarded by mu; changes that are proposed and not answered, in that order
	tags       uint64              // guarded by mu; given out to changes
	away       away                // nil where there is no other node
	// leads, term, leader and replicated are guarded by mu; turned is closed when they change.
	leads      bool
	term       raftstore.Term
	leader     raftstore.Leader
	replicated bool
	turned     chan struct{}
	applied    raftstore.Index
	// durable is the last entry that outlives every crash: flushed by an owner, committed by a group.
	durable raftstore.Index
	news    []news // guarded by mu; applied entries of which the reconciler has not been told
	halted  error  // guarded by mu
	// meet is told of the state when it is another one; nil where there is no other node.
	meet    func(*control.State)
	nodesAt uint64         // guarded by mu; version that meet was told of
	copied  admin.Registry // guarded by mu; as of its version, never changed
	moved   chan struct{}  // guarded by mu; closed when something has changed
}

// news is what an entry did.
type news struct {
	index   raftstore.Index
	command control.Command
	result  control.Result
}

func newRegistry(log *slog.Logger) *registry {
	return &registry{
		log: log, bell: make(chan struct{}, 1), state: control.NewState(), moved: make(chan struct{}),
		turned: make(chan struct{}),
	}
}

// begin makes sure of the first entry.
func (r *registry) begin(ctx context.Context) error {
	if r.group.Status().Marks.Committed > 0 {
		return nil
	}
	_, err := r.put(ctx, genesis)
	return err
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
	if r.leads {
		rec.Lead(r.state)
	}
	if r.applied <= r.durable {
		rec.Step(time.Now().UnixMilli(), r.state) // the node registers before anybody asks for something
	}
	r.ring()
}

// step steps the reconciler, which sees only what is durable: what it does to a disk must not outlive
// its reason. It returns when to call again, in milliseconds; below 0 is when the bell rings.
func (r *registry) step(now int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.applied > r.durable || r.reconciler == nil {
		return control.Idle // the bell rings when it is durable
	}
	wait := r.reconciler.Step(now, r.state)
	if nodes := r.nodesAt; r.meet != nil && nodes != r.state.Version() {
		r.nodesAt = r.state.Version()
		r.meet(r.state)
	}
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

// Apply implements raftstore.Machine.
func (r *registry) Apply(t raftstore.Term, i raftstore.Index, items []raftstore.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied = i
	result := control.Result{}
	for _, item := range items {
		if bytes.Equal(item.Command, genesis) {
			continue
		}
		c, err := control.Decode(item.Command)
		if err != nil {
			// Skipping would let copies differ. The log holds what this build does not know.
			panic("bug: broker: control log: " + err.Error())
		}
		result = r.state.Apply(uint64(i), c)
		if r.reconciler != nil {
			r.news = append(r.news, news{i, c, result})
		}
	}
	r.decidedLocked(t, i, result)
}

// Moved implements raftstore.Machine: what is applied and durable is answered, and told to the reconciler.
func (r *registry) Moved(m raftstore.Marks) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.durable = m.Applied
	if !r.replicated {
		r.durable = min(m.Applied, m.Flushed)
	}
	told := 0
	for told < len(r.news) && r.news[told].index <= r.durable {
		r.reconciler.Applied(r.news[told].command, r.news[told].result)
		told++
	}
	r.news = slices.Delete(r.news, 0, told)
	r.durableLocked()
	r.movedLocked()
	r.ring()
}

// wakeAll tells the reconciler that nodes came or went.
func (r *registry) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reconciler != nil {
		r.reconciler.WakeAll()
		r.ring()
	}
}

// dropped tells the reconciler that a command of its own did not get into the log, as far as this node knows.
func (r *registry) dropped(c control.Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reconciler != nil {
		r.reconciler.Dropped(c)
		r.ring()
	}
}

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
	r.news = nil
	r.undecidedLocked()
	if r.reconciler != nil { // a leader's snapshot
		r.reconciler.Load(r.state)
	}
	r.mu.Unlock()
	r.ring()
	return nil
}

// openControl opens the control log. One that is gone while queues are there is damage.
func (n *Node) openControl() error {
	missing, err := n.controlMissing()
	if err != nil {
		return err
	}
	if c := n.cluster; c != nil {
		return c.openControl(missing)
	}
	if missing != nil {
		return missing
	}
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
		r.copied = admin.Registry{
			Version: r.state.Version(), Nodes: byName(r.state.Nodes()), Queues: r.state.Queues(),
			Connectors: r.state.Connectors(),
		}
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
