package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"weida/broker/control"
	"weida/broker/queue"
)

// controller makes true on this node what the registry says: it steps the reconciler and is its Runtime, here and in
// groups.go.
// Methods of Runtime are called with registry.mu held and return at once; what takes time runs on
// goroutines of its own and wakes the reconciler when it is over.
type controller struct {
	node *Node
	work sync.WaitGroup
	stop context.CancelFunc
	life context.Context

	mu   sync.Mutex
	jobs map[uint64]*job // guarded by mu; by uid
}

// job is what is under way, or was last, for one queue.
type job struct {
	running bool
	err     error           // of the last run, until it is told
	gone    map[uint64]bool // replicas whose directory is away, until it is told
}

func newController(n *Node) *controller {
	life, stop := context.WithCancel(context.Background())
	return &controller{node: n, life: life, stop: stop, jobs: make(map[uint64]*job)}
}

// run steps the reconciler whenever something happened, until close.
func (c *controller) run() {
	r := c.node.registry
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-r.bell:
		case <-timer.C:
		}
		if wait := r.step(time.Now().UnixMilli()); wait >= 0 {
			timer.Reset(time.Duration(wait) * time.Millisecond)
		}
	}
}

func (c *controller) start() { c.work.Go(c.run) }

// close ends the stepping and waits for what is under way.
func (c *controller) close() {
	c.stop()
	c.work.Wait()
}

// do runs f for a queue, one at a time. What f returned is returned by the next call, once; the one after
// that runs f again.
func (c *controller) do(uid uint64, f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[uid]
	if j == nil {
		j = new(job)
		c.jobs[uid] = j
	}
	if j.running {
		return nil
	}
	if err := j.err; err != nil {
		j.err = nil
		return err
	}
	if c.life.Err() != nil {
		return nil
	}
	j.running = true
	c.work.Go(func() {
		err := f()
		c.mu.Lock()
		j.running, j.err = false, err
		c.mu.Unlock()
		c.node.registry.wake(uid)
	})
	return nil
}

// busy says whether something is under way for a queue.
func (c *controller) busy(uid uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[uid]
	return j != nil && j.running
}

// row is this node's replica of a queue, on this disk; nil if it has none that may be opened.
func (n *Node) row(k *control.Queue) *control.Replica {
	me, disk := n.Fingerprint().String(), n.disk()
	for i := range k.Status.Placement {
		if p := &k.Status.Placement[i]; p.Node == me && p.Disk == disk && p.Lost == "" {
			return p
		}
	}
	return nil
}

// Ensure implements control.NodeRuntime.
func (c *controller) Ensure(k control.Queue) (bool, error) {
	uid, leaving := k.Metadata.UID, k.Metadata.DeletionTimestamp != 0
	row := c.node.row(&k)
	if row == nil {
		return false, errors.New("no replica of the queue is placed on this node and disk")
	}
	if c.busy(uid) {
		return false, nil
	}
	q := c.node.serving(k)
	if left := c.node.unset(uid, k.Status.Placement); len(left) > 0 {
		return false, fmt.Errorf("what is left of replica %d is to be set aside first", left[0].Replica)
	}
	if q == nil || q.owned != row.Owner || q.replica != row.Replica {
		return false, c.do(uid, func() error {
			if q != nil {
				c.node.close(q)
			}
			known, err := c.node.known(&k, row)
			if err != nil {
				return err
			}
			if !known {
				c.node.learn() // it is looked at again, by what the registry says then
				return nil
			}
			_, err = c.node.openQueue(k)
			return err
		})
	}
	switch {
	case q.leadership().reign == nil: // who serves puts the spec into the log
		q.spec.Store(&k.Spec)
	case !q.configured(k.Spec, leaving):
		return false, c.do(uid, func() error { return q.configure(c.life, k.Spec, leaving) })
	}
	if !leaving && k.Status.ObservedGeneration > 0 {
		q.admit()
	}
	return true, nil
}

// StopAdmission implements control.NodeRuntime.
func (c *controller) StopAdmission(k control.Queue) (bool, error) {
	if q := c.node.serving(k); q != nil {
		q.closed.Store(true)
		q.settledBefore.CompareAndSwap(0, q.settledNow()+1)
	}
	return true, nil // Ensure puts it into the queue's log
}

// Drained implements control.NodeRuntime.
func (c *controller) Drained(k control.Queue) (control.Drain, error) {
	q := c.node.serving(k)
	if q == nil {
		return control.Drain{}, errors.New("the queue is not open here")
	}
	return q.drained(), nil
}

// Disconnect implements control.NodeRuntime.
func (c *controller) Disconnect(k control.Queue) (bool, control.Drain, error) {
	q := c.node.serving(k)
	if q == nil {
		return !c.busy(k.Metadata.UID), control.Drain{}, nil
	}
	d := q.drained()
	if open := d.Unsettled; open > 0 {
		q.requeued.CompareAndSwap(0, open)
	}
	ended := q.disconnect()
	d.Requeued = q.requeued.Load() - min(d.Unsettled, q.requeued.Load())
	return ended, d, nil
}

// Destroy implements control.NodeRuntime.
func (c *controller) Destroy(group uint64, r control.Replica) (bool, error) {
	c.mu.Lock()
	j := c.jobs[group]
	done := j != nil && !j.running && j.gone[r.Replica]
	if done {
		delete(c.jobs, group)
	}
	c.mu.Unlock()
	if done {
		return true, nil
	}
	err := c.do(group, func() error {
		if err := c.node.destroy(group, r); err != nil {
			return err
		}
		c.mu.Lock()
		c.jobs[group].gone = map[uint64]bool{r.Replica: true}
		c.mu.Unlock()
		return nil
	})
	return false, err
}

// Propose implements control.NodeRuntime; the registry tells the reconciler how it ended.
func (c *controller) Propose(cmd control.Command) error {
	r := c.node.registry
	if r.leads || r.away == nil {
		r.enqueueLocked(&change{command: cmd.Append(nil), own: &cmd})
		return nil
	}
	if r.leader.Node == 0 {
		return errNotLeading
	}
	c.work.Go(func() {
		if _, err := r.put(c.life, cmd.Append(nil)); err != nil {
			r.dropped(cmd)
		}
	})
	return nil
}

// configured says whether the queue's log has these limits and this admission.
func (q *nodeQueue) configured(spec control.QueueSpec, closed bool) bool {
	var have queue.Limits
	q.read(func(s *queue.State) { have = s.Limits() })
	want := queue.Limits{MaxMessages: spec.Limits.Messages, MaxBytes: spec.Limits.Bytes, Closed: closed}
	if have != want {
		return false
	}
	q.spec.Store(&spec) // what is not in the log
	return true
}

// configure puts limits and admission into the queue's log, and waits until they hold.
func (q *nodeQueue) configure(ctx context.Context, spec control.QueueSpec, closed bool) error {
	_, err := q.ask(ctx, queue.Command{
		Kind: queue.Configure, MaxMessages: spec.Limits.Messages, MaxBytes: spec.Limits.Bytes, Closed: closed,
	})
	if err != nil {
		return err
	}
	return nil
}

// settledNow counts what consumers took out for good.
func (q *nodeQueue) settledNow() uint64 {
	var k queue.Counts
	q.read(func(s *queue.State) { k = s.Counts() })
	return k.Accepted + k.Rejected
}

// drained says how far consumers have come. A settle that has no answer yet counts as a message that is
// left: who sent it has to learn of it before the streams end.
func (q *nodeQueue) drained() control.Drain {
	unanswered := q.unansweredSettles() // first: a settle is counted here until it is answered
	var k queue.Counts
	q.read(func(s *queue.State) { k = s.Counts() })
	d := control.Drain{Unsettled: k.Unsettled, Left: k.Ready + k.Unsettled}
	if before := q.settledBefore.Load(); before > 0 {
		d.Settled = k.Accepted + k.Rejected - (before - 1)
	}
	if d.Left == 0 {
		d.Left = unanswered
	}
	return d
}

func (q *nodeQueue) unansweredSettles() (n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.consumers {
		c.mu.Lock()
		n += uint64(c.settling)
		c.mu.Unlock()
	}
	return n
}
