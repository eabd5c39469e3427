package broker

import (
	"context"
	"crypto/sha256"
	"reflect"
	"sync"

	"weida/broker/client"
	"weida/broker/connector"
	"weida/broker/control"
	"weida/broker/endpoint"
)

// connectors runs the connectors that are placed on this node: it is the reconciler's control.ConnectorRuntime. Each
// speaks to the cluster like any client, as the nodes' common identity, so that one which moves to another node goes on
// with what it has in the queue.
type connectors struct {
	node *Node

	mu      sync.Mutex
	running map[uint64]*running // guarded by mu
}

// running is one connector, from Start to the end of Stop.
type running struct {
	spec   control.ConnectorSpec
	runs   connector.Connector
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	over   bool          // it was asked to forget what it left; guarded by connectors.mu
}

// newConnectors returns nil, the runtime of none, where the node has no directory for files.
func newConnectors(n *Node) control.ConnectorRuntime {
	if n.c.Connectors == "" {
		return nil
	}
	return &connectors{node: n, running: make(map[uint64]*running)}
}

// Start implements control.ConnectorRuntime.
func (c *connectors) Start(k control.Connector) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.running[k.Metadata.UID]
	switch {
	case c.node.listener == nil:
		return false, nil // the node is being opened
	case r == nil:
		c.begin(k)
		return false, nil
	case !reflect.DeepEqual(r.spec, k.Spec):
		r.cancel()
		select {
		case <-r.done:
			c.begin(k)
		default: // it is woken when it has ended
		}
		return false, nil
	}
	s := r.runs.Status()
	if s.Phase == control.Ready || s.Done {
		return true, nil
	}
	if s.Reason == "" {
		return false, nil
	}
	return false, &control.Trouble{Reason: s.Reason, Message: s.Message}
}

// begin runs a connector on a goroutine of its own. The lock is held.
func (c *connectors) begin(k control.Connector) {
	uid := k.Metadata.UID
	ctx, cancel := context.WithCancel(c.node.control.life)
	r := &running{spec: k.Spec, cancel: cancel, done: make(chan struct{}), runs: connector.New(connector.Options{
		UID: uid, Spec: k.Spec, Dir: c.node.c.Connectors, Client: c.node.asClient(), Files: c.node.c.files,
		Wake: func() { c.wake(uid) },
	})}
	c.running[uid] = r
	c.node.control.work.Go(func() {
		defer c.wake(uid)
		defer close(r.done)
		if err := r.runs.Run(ctx); err != nil && ctx.Err() == nil {
			c.node.c.Log.Error("connector does not run", "uid", uid, "err", err)
		}
	})
}

// wake tells the reconciler; what calls may hold its lock.
func (c *connectors) wake(uid uint64) { go c.node.registry.wake(uid) }

// Stop implements control.ConnectorRuntime. What a connector that is deleted left in the queue and in its directory
// goes.
func (c *connectors) Stop(uid uint64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.running[uid]
	if r == nil {
		return true, nil
	}
	r.cancel()
	select {
	case <-r.done:
	default:
		return false, nil // it is woken when it has ended
	}
	if !r.over && c.deleted(uid) {
		r.over = true // once: what it left is small, and the node may be cut off from the queue
		done := make(chan struct{})
		r.done = done
		c.node.control.work.Go(func() {
			defer c.wake(uid)
			defer close(done)
			ctx, cancel := context.WithTimeout(c.node.control.life, commitPatience)
			defer cancel()
			if err := r.runs.Forget(ctx); err != nil {
				c.node.c.Log.Warn("a deleted connector left something behind", "uid", uid, "err", err)
			}
		})
		return false, nil
	}
	delete(c.running, uid)
	return true, nil
}

// deleted says whether a connector is to go for good. The registry is locked, as for every call of the runtime.
func (c *connectors) deleted(uid uint64) bool {
	for _, k := range c.node.registry.state.Connectors() {
		if k.Metadata.UID == uid {
			return k.Metadata.DeletionTimestamp != 0
		}
	}
	return true
}

// asClient is how this node speaks to its cluster like a client: by way of itself, with a key that is nowhere but in
// this process.
func (n *Node) asClient() client.Options {
	return client.Options{
		Identity: n.inner, Addrs: []string{n.Addr().String()}, Single: true,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{n.Fingerprint(): endpoint.RoleNode}),
	}
}

// itself is the identity of what the nodes of a cluster do in queues: the same on all of them, and nobody's key.
func (n *Node) itself() endpoint.Fingerprint {
	of := []byte(n.Fingerprint().String())
	if n.cluster != nil {
		of = n.cluster.birth.ClusterID[:]
	}
	return sha256.Sum256(append([]byte("weida nodes\n"), of...))
}

// trust is who may connect to this node: whom its file names, and itself.
func (n *Node) trust() *endpoint.Trust {
	return n.c.Trust.With(map[endpoint.Fingerprint]endpoint.Role{n.inner.Fingerprint(): endpoint.RoleClient})
}

// roleOf is what a client may do that is named by a node: who it is says the node, what it may do its file, or that it
// is what nodes do themselves.
func (n *Node) roleOf(key endpoint.Fingerprint) (endpoint.Role, bool) {
	if key == n.itself() {
		return endpoint.RoleClient, true
	}
	return n.c.Trust.Role(key)
}

// nameOf is who a key that connected stands for.
func (n *Node) nameOf(key endpoint.Fingerprint) endpoint.Fingerprint {
	if key == n.inner.Fingerprint() {
		return n.itself()
	}
	return key
}
