package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"weida/broker/admin"
	"weida/broker/connector"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is the node as its HTTP side sees it.

// listenAdmin serves the HTTP side, on the loopback interface alone.
func (n *Node) listenAdmin() error {
	if n.c.Admin == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(n.c.Admin)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("the admin address %q is not a loopback address with a port, as 127.0.0.1:7444; "+
			"nothing was started; the admin side has no accounts, so it listens to this machine only", n.c.Admin)
	}
	l, err := net.Listen("tcp", n.c.Admin)
	if err != nil {
		return &endpoint.AddressError{Addr: n.c.Admin, Err: err}
	}
	n.adminAddr = l.Addr()
	n.admin = admin.NewServer(admin.NewHandler(n, admin.Options{
		Version: n.c.Version, Node: n.c.Name, Profile: n.c.Profile, Log: n.c.Log,
	}))
	n.adminServed.Go(func() {
		if err := n.admin.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.c.Log.Error("the admin side ended; messages go on", "err", err)
		}
	})
	return nil
}

func (n *Node) closeAdmin() error {
	if n.admin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	err := n.admin.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) { // as with the sessions of clients
		n.c.Log.Warn("requests of the admin side did not end in time; what they asked for is indeterminate to them")
		err = nil
	}
	err = errors.Join(err, n.admin.Close())
	n.adminServed.Wait()
	return err
}

// AdminAddr is the address of the HTTP side, nil if there is none.
func (n *Node) AdminAddr() net.Addr { return n.adminAddr }

// Mutate implements admin.Node.
func (n *Node) Mutate(ctx context.Context, m control.Mutation) (control.Result, error) {
	m.At = time.Now().UnixMilli()
	if err := n.untakable(&m); err != nil {
		return control.Result{Err: err}, nil
	}
	if err := n.begun(ctx); err != nil {
		return control.Result{}, err
	}
	res, err := n.registry.propose(ctx, control.Command{Mutation: &m})
	if err == nil {
		n.registry.catchUp(ctx, versionOf(&res))
		n.shut(res.Queue)
	}
	return res, err
}

// shut keeps messages out of a queue whose deletion is about to be answered, before the reconciler comes by (T-19).
func (n *Node) shut(k *control.Queue) {
	if k == nil || k.Metadata.DeletionTimestamp == 0 {
		return
	}
	if q := n.serving(*k); q != nil {
		q.closed.Store(true)
	}
}

// begun waits until the cluster's first entry is here, which says who its nodes are: before it there is no cluster
// that could be changed, and a change that came first would make one of this node alone.
func (n *Node) begun(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	if err := n.registry.await(ctx, func(s *control.State) bool { return len(s.Nodes()) > 0 }); err != nil {
		return &wire.Error{
			Code: wire.NotCommitted, Detail: "The nodes of this cluster have not found each other yet: a majority of them has " +
				"to be up for it to begin",
		}
	}
	return nil
}

// catchUpPatience is how long the answer to a change waits for this node's own copy of the registry.
const catchUpPatience = 2 * time.Second

// catchUp waits until this node's copy of the registry is at a version, so that whoever was answered finds here what
// it was told. It is committed all the same.
func (r *registry) catchUp(ctx context.Context, version uint64) {
	ctx, cancel := context.WithTimeout(ctx, catchUpPatience)
	defer cancel()
	if err := r.await(ctx, func(s *control.State) bool { return s.Version() >= version }); err != nil {
		r.log.Debug("the registry here is behind what was answered", "version", version, "err", err)
	}
}

// versionOf is the version of the resource that a change was about, 0 if there is none.
func versionOf(res *control.Result) uint64 {
	switch {
	case res.Queue != nil:
		return res.Queue.Metadata.ResourceVersion
	case res.Connector != nil:
		return res.Connector.Metadata.ResourceVersion
	case res.Node != nil:
		return res.Node.Metadata.ResourceVersion
	}
	return 0
}

// untakable refuses a queue whose messages this node would not take, a node whose key can be nobody's, and a connector
// that nothing could ever make run: its evidence and losses are not what its protocol and direction give.
func (n *Node) untakable(m *control.Mutation) *control.Error {
	if m.Verb == control.NodeAdd && m.Node != nil {
		if _, err := endpoint.ParseFingerprint(m.Node.Fingerprint); err != nil {
			return &control.Error{
				Reason: control.Invalid, Kind: m.Kind, Name: m.Name, Field: "spec.fingerprint", Message: err.Error(),
			}
		}
	}
	if m.Connector != nil {
		var flaw *connector.SpecError
		if errors.As(connector.Check(*m.Connector), &flaw) {
			return &control.Error{
				Reason: control.Invalid, Kind: m.Kind, Name: m.Name, Field: flaw.Field, Message: flaw.Field + " " + flaw.Why,
			}
		}
	}
	if m.Queue == nil || m.Queue.Limits.MessageBytes <= uint64(n.c.MessageMax) {
		return nil
	}
	return &control.Error{
		Reason: control.Invalid, Kind: m.Kind, Name: m.Name, Field: "spec.limits.messageBytes",
		Message: fmt.Sprintf("%d: this node takes messages of at most %d bytes; its file says so as messageMax",
			m.Queue.Limits.MessageBytes, n.c.MessageMax),
	}
}

// MakeQueue applies a queue and waits until its spec is true. A refusal is a *control.Error; what keeps
// it from being ready is told by its conditions, when ctx ends.
func (n *Node) MakeQueue(ctx context.Context, name string, spec control.QueueSpec) error {
	result, err := n.Mutate(ctx, control.Mutation{
		Verb: control.Apply, Kind: control.KindQueue, Name: name, Queue: &spec,
	})
	if err != nil {
		return err
	}
	if result.Err != nil {
		return result.Err
	}
	return n.registry.await(ctx, func(s *control.State) bool {
		q, ok := s.Queue(name)
		return ok && q.Status.ObservedGeneration == q.Metadata.Generation && n.admitted(q)
	})
}

func (n *Node) admitted(c control.Queue) bool {
	if n.row(&c) == nil {
		return true // as far as this node can tell: it is elsewhere
	}
	q := n.serving(c)
	if q == nil || c.Status.ObservedGeneration == 0 {
		return false
	}
	if c.Metadata.DeletionTimestamp == 0 {
		q.admit() // as it is for who comes to use it, also before the reconciler comes by again
	}
	return q.serves.Load()
}

// Try implements admin.Node.
func (n *Node) Try(m control.Mutation) control.Result {
	m.At = time.Now().UnixMilli()
	if err := n.untakable(&m); err != nil {
		return control.Result{Err: err}
	}
	return n.registry.try(m)
}

// Registry implements admin.Node.
func (n *Node) Registry() admin.Registry { return n.registry.copy() }

// Live implements admin.Node.
func (n *Node) Live(uid uint64) (admin.Live, bool) {
	c, ok := n.registry.queueOf(uid)
	if !ok {
		return admin.Live{}, false
	}
	q := n.serving(c)
	if q == nil {
		return admin.Live{}, false
	}
	status := q.group.Status()
	if status.Role != raftstore.Owner && status.Role != raftstore.LeaderRole {
		return admin.Live{}, false // who leads it knows
	}
	var k queue.Counts
	live := admin.Live{Leader: n.c.Name}
	q.read(func(s *queue.State) {
		k = s.Counts()
		live.Subscriptions, live.Producers = s.Subscriptions(), s.Producers()
	})
	live.In, live.Ready, live.Unsettled = k.In, k.Ready, k.Unsettled
	live.Accepted, live.Rejected, live.Purged = k.Accepted, k.Rejected, k.Purged
	live.Released, live.Bytes = k.Released, k.Bytes-queue.MessageCost*(k.Ready+k.Unsettled)
	q.mu.Lock()
	live.Consumers = len(q.consumers)
	q.mu.Unlock()
	live.Term, live.DiskBytes = uint64(status.Marks.Term), uint64(status.Store.PhysicalBytes)
	if status.ReadOnly != nil {
		live.Trouble = status.ReadOnly.Error()
	}
	return live, true
}

// Health implements admin.Node.
func (n *Node) Health() admin.Health {
	var h admin.Health
	if err := n.host.Err(); err != nil {
		h.Alive = append(h.Alive, admin.Problem{
			Object: "node", What: "storage failed: " + err.Error(),
			Effect: "nothing is confirmed any more; evidence given before stands as far as the disk does",
			Remedy: "mend the storage, then start the node again",
		})
	}
	if n.work.Err() != nil {
		h.Ready = append(h.Ready, admin.Problem{
			Object: "node", What: "the node is stopping", Effect: "new work is refused", Remedy: "wait until it is back",
		})
	}
	if err := n.registry.trouble(); err != nil {
		h.Ready = append(h.Ready, admin.Problem{
			Object: "control log", What: err.Error(), Effect: "resources cannot be changed; queues go on",
			Remedy: "mend the disk and restart the node",
		})
	}
	for _, c := range n.registry.queues() {
		if what := n.queueTrouble(c); what != "" {
			h.Ready = append(h.Ready, admin.Problem{
				Object: "queue " + c.Metadata.Name, What: what,
				Effect: "it takes no messages; what was confirmed stays as far as the disk does; other queues go on",
				Remedy: "`weida describe queue " + c.Metadata.Name + "` and the node's log say more",
			})
		}
	}
	return h
}

// queueTrouble is why a queue does not take messages though it should, "" if it does.
func (n *Node) queueTrouble(c control.Queue) string {
	if c.Metadata.DeletionTimestamp != 0 {
		return ""
	}
	q := n.serving(c)
	if q == nil {
		if n.elsewhere(&c) {
			return ""
		}
		for _, condition := range c.Status.Conditions {
			return condition.Message
		}
		return "it is not open yet"
	}
	status := q.group.Status()
	switch r := status.Replication; {
	case status.ReadOnly != nil:
		return status.ReadOnly.Error()
	case r != nil && r.Leader.Node == 0 && !r.Quiesced:
		return "no leader of it is known here: a majority of its replicas may be away"
	}
	return ""
}

// elsewhere says whether a queue has its replicas on other nodes alone. A replica here that is lost is one here.
func (n *Node) elsewhere(c *control.Queue) bool {
	me := n.Fingerprint().String()
	for i := range c.Status.Placement {
		if c.Status.Placement[i].Node == me {
			return false
		}
	}
	return len(c.Status.Placement) > 0
}

// turnedAway counts and tells of a peer that showed a key which is not trusted, at most once a second.
func (n *Node) turnedAway(err error) {
	n.counters.refused(wire.NotAllowed)
	if n.quiet.pass(time.Now()) {
		n.c.Log.Warn("a peer was turned away", "err", err)
	}
}
