package broker

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/peer"
	"weida/raftstore"
)

// cluster is this node's place among others: who it is, its links, and where clients find the others. A node without
// one is a cluster of its own.
type cluster struct {
	node   *Node
	number raftstore.NodeID
	birth  control.Birth
	links  *peer.Links
	// founder says that the cluster began with this node; self is its replica of the control log. kept says that it is
	// written down, fresh that it was given in this life.
	founder, kept, fresh bool
	self                 raftstore.ReplicaID
	started              bool        // the links are; of who opens the node
	opened               atomic.Bool // the control log is
	table                atomic.Pointer[table]

	mu    sync.Mutex
	nodes []control.Node // guarded by mu; as the registry had them last
	// disowns are the nodes that do not know this one as a member, as they said last.
	disowns map[raftstore.NodeID]bool // guarded by mu
	meeting sync.Mutex                // held while the links are told
}

// table is the nodes of the registry, as clients and peers are to know them. It is never changed.
type table struct {
	byID map[raftstore.NodeID]NodeAddress
	keys map[endpoint.Fingerprint]raftstore.NodeID
}

// newCluster finds this node's place among the seeds; nil without seeds.
func newCluster(n *Node) (*cluster, error) {
	if len(n.c.Seeds) == 0 {
		return nil, nil
	}
	birth, err := control.Genesis(n.c.Seeds)
	if err != nil {
		return nil, err
	}
	c := &cluster{node: n, birth: birth, number: n.c.Number}
	me := n.c.Identity.Fingerprint().String()
	for _, m := range birth.Members {
		if m.Node != me {
			continue
		}
		if c.number != 0 && uint64(c.number) != m.Number {
			return nil, fmt.Errorf("the node file says number %d, and this node's key has number %d among the seeds; "+
				"a node that the cluster begins with needs no number", uint64(c.number), m.Number)
		}
		c.number, c.founder, c.self = raftstore.NodeID(m.Number), true, raftstore.ReplicaID(m.Number)
	}
	if c.number == 0 {
		return nil, fmt.Errorf("this node's key is none of the seeds, and the node file has no number; run "+
			"`weida node add %s --fingerprint %s` for the cluster, and put the number that it prints into the node file",
			n.c.Name, me)
	}
	id := n.store.Identity()
	c.links = peer.New(peer.Options{
		Cluster: birth.ClusterID, Node: c.number, Fingerprint: n.c.Identity.Fingerprint(), Disk: id.Disk,
		Incarnation: id.Incarnation, Nonce: id.Nonce, Follows: id.Follows, RaftStreams: n.c.Consensus.Streams,
		Serve: c.serve, Event: c.event,
	})
	c.table.Store(&table{})
	return c, c.meet(nil)
}

// members is the genesis of the control group.
func (c *cluster) members() []raftstore.Member { return members(c.birth.Members) }

func members(rows []control.Replica) []raftstore.Member {
	list := make([]raftstore.Member, 0, len(rows))
	for _, r := range rows {
		list = append(list, raftstore.Member{
			Replica: raftstore.ReplicaID(r.Replica), Node: raftstore.NodeID(r.Number), Learner: r.Learner,
		})
	}
	return list
}

// meet has the links know the nodes: those of the registry, or the seeds while it has none.
func (c *cluster) meet(nodes []control.Node) error {
	if len(nodes) == 0 {
		for i, m := range c.birth.Members {
			seed := c.birth.Seed(i)
			nodes = append(nodes, control.Node{
				Metadata: control.Metadata{UID: m.Number, Name: seed.Name},
				Spec:     control.NodeSpec{Fingerprint: m.Node, Address: seed.Address, Admin: seed.Admin},
			})
		}
	}
	t := &table{
		byID: make(map[raftstore.NodeID]NodeAddress, len(nodes)),
		keys: make(map[endpoint.Fingerprint]raftstore.NodeID, len(nodes)),
	}
	var list []peer.Node
	for _, n := range nodes {
		key, err := endpoint.ParseFingerprint(n.Spec.Fingerprint)
		if err != nil {
			return fmt.Errorf("node %q: %w", n.Metadata.Name, err)
		}
		id := raftstore.NodeID(n.Metadata.UID)
		if id == c.number {
			continue
		}
		p := peer.Node{ID: id, Fingerprint: key, Incarnation: n.Status.Incarnation}
		if p.Disk, err = randomID(n.Status.Disk); err == nil {
			p.Nonce, err = randomID(n.Status.Nonce)
		}
		if err != nil {
			return fmt.Errorf("node %q: %w", n.Metadata.Name, err)
		}
		if n.Spec.Address != "" {
			p.Addresses = []string{n.Spec.Address}
		}
		list = append(list, p)
		t.keys[key] = id
		if host, port, ok := splitAddress(n.Spec.Address); ok {
			t.byID[id] = NodeAddress{Fingerprint: key, Host: host, Port: port}
		}
	}
	if err := c.links.Set(list); err != nil {
		return err
	}
	c.table.Store(t)
	return nil
}

// randomID reads a disk's id, or a life's nonce, as it was registered; none is zero. With them the links know a node
// whose directory was emptied or put back: it comes with its key and its number, and what it had voted and confirmed
// is gone.
func randomID(text string) (id [16]byte, err error) {
	if text == "" {
		return id, nil
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%q is no id of a disk and no nonce", text)
	}
	return [16]byte(b), nil
}

func splitAddress(s string) (host string, port uint16, ok bool) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err == nil && n > 0 && host != ""
}

// follow takes the nodes over whenever the registry has others. The registry is locked: links that end call back, so
// it is done on a goroutine of its own.
func (c *cluster) follow(s *control.State) {
	nodes := s.Nodes()
	if c.removedBy(s) {
		c.node.displace(&RemovedError{Number: c.number})
	}
	for i := range nodes {
		if uint64(c.number) == nodes[i].Metadata.UID && !c.node.follows(&nodes[i].Status) {
			c.node.displace(&peer.DisplacedError{
				Incarnation: c.node.store.Identity().Incarnation, Known: nodes[i].Status.Incarnation,
			})
		}
	}
	c.mu.Lock()
	same := len(nodes) == 0 || slices.EqualFunc(nodes, c.nodes, func(a, b control.Node) bool {
		return a.Metadata.UID == b.Metadata.UID && a.Spec == b.Spec && a.Status.Disk == b.Status.Disk &&
			a.Status.Incarnation == b.Status.Incarnation && a.Status.Nonce == b.Status.Nonce
	})
	c.nodes = nodes
	c.mu.Unlock()
	if same {
		return
	}
	c.node.control.work.Go(func() {
		c.meeting.Lock()
		defer c.meeting.Unlock()
		c.mu.Lock()
		latest := c.nodes
		c.mu.Unlock()
		if err := c.meet(latest); err != nil {
			c.node.c.Log.Error("the nodes of the registry cannot be linked", "err", err)
		}
	})
}

// openControl opens this node's replica of the control log, or gives it up if it is damaged. missing says that there
// should be one and is not.
func (c *cluster) openControl(missing error) error {
	n := c.node
	n.registry.away, n.registry.meet = c.away, c.follow
	err := missing
	if err == nil {
		err = c.openMember()
	}
	if why := damage(err); why != "" && n.host.Err() == nil {
		err = c.rejoin(why, err)
	} else if err == nil && n.registry.givenUp(n.Fingerprint(), c.self) {
		n.registry.group.Stop()
		err = c.rejoin(reasonGivenUp, errGivenUp)
	}
	if err == nil && !c.kept {
		err = c.keep(c.self)
	}
	if err != nil {
		return fmt.Errorf("control log: %w", err)
	}
	c.opened.Store(true)
	return nil
}

// openMember opens it as it is. Only the replicas that the cluster began with have its members; others learn.
func (c *cluster) openMember() error {
	g := &raftstore.Genesis{Term: 1, Index: control.GenesisIndex}
	if c.founder && uint64(c.self) == uint64(c.number) {
		g.Members = c.members()
	}
	o := raftstore.ReplicaOptions{Self: c.self, Genesis: g}
	_, err := c.node.host.OpenReplica(controlGroup, c.node.registry, o)
	return err
}

func (c *cluster) event(e peer.Event) {
	c.disowned(e)
	log := c.node.c.Log.With("node", uint64(e.Node))
	switch e.Kind {
	case peer.Up:
		log.Info("link up")
	case peer.Down:
		log.Warn("link down", withErr(e.Err)...)
	case peer.Displaced:
		c.node.displace(e.Err)
	default:
		log.Warn("link "+e.Kind.String(), withErr(e.Err)...)
	}
	if r := c.node.registry; r != nil {
		go r.wakeAll() // the links may be called with the registry locked
	}
}

// Node implements Router.
func (c *cluster) Node(id raftstore.NodeID) (NodeAddress, bool) {
	a, ok := c.table.Load().byID[id]
	return a, ok
}

// Member implements Router.
func (c *cluster) Member(key endpoint.Fingerprint) bool {
	_, ok := c.table.Load().keys[key]
	return ok
}

// Queue implements Router: one of the nodes that have the queue, one that can be reached if there is.
func (c *cluster) Queue(name string) (at NodeAddress, ok bool) {
	q, known := c.node.registry.queue(name)
	if !known {
		return at, false
	}
	up := false
	for _, p := range q.Status.Placement {
		id := raftstore.NodeID(p.Number)
		a, here := c.Node(id)
		if !here || p.Learner {
			continue
		}
		reachable := c.links.Reachable(id)
		if !ok || reachable && (!up || p.Lead) {
			at, ok, up = a, true, reachable
		}
	}
	return at, ok
}

// advertised is where the others find this node: as the seeds say, or where it listens; and its HTTP side.
func (c *cluster) advertised() (address, adminAddress string) {
	me := c.node.c.Identity.Fingerprint().String()
	for i, m := range c.birth.Members {
		if m.Node == me {
			return c.birth.Seed(i).Address, cmp.Or(c.birth.Seed(i).Admin, c.node.c.Admin)
		}
	}
	if c.node.c.Advertise != "" {
		return c.node.c.Advertise, c.node.c.Admin
	}
	return c.node.c.Listen, c.node.c.Admin
}

// peers is what the endpoint has to know; nil without a cluster.
func (c *cluster) peers() *endpoint.Peers {
	if c == nil {
		return nil
	}
	return c.links.Peers()
}

// takes hands a connection that is not a client's to the links.
func (c *cluster) takes(conn *endpoint.Conn) bool {
	if c == nil || conn.Protocol() == endpoint.ALPNMessaging {
		return false
	}
	c.links.Accept(conn)
	return true
}

// start begins to speak to the others, once the node listens.
func (c *cluster) start() {
	if c == nil {
		return
	}
	if !c.started {
		c.links.Start(c.node.listener, c.node.host)
	}
	c.node.control.work.Go(c.found)
}

// close ends the links; the host is not called by them any more.
func (c *cluster) close() {
	if c != nil {
		c.links.Close()
	}
}

// found begins the registry of a new cluster, as whichever node leads first.
func (c *cluster) found() {
	r := c.node.registry
	for {
		r.mu.Lock()
		leads, empty, turned := r.leads, len(r.state.Nodes()) == 0, r.turned
		moved := r.moved
		r.mu.Unlock()
		if !empty {
			return
		}
		if leads {
			res, err := r.propose(c.node.control.life, c.birth.Command(time.Now().UnixMilli()))
			var refused *control.Error
			switch {
			case err != nil:
				c.node.c.Log.Warn("the cluster is not begun yet", "err", err)
			case res.Err != nil && errors.As(res.Err, &refused) && refused.Reason != control.Exists:
				c.node.c.Log.Error("the cluster cannot begin", "err", res.Err)
			}
		}
		select {
		case <-turned:
		case <-moved:
		case <-c.node.control.life.Done(): // which ends first: whoever closes the node waits for this
			return
		}
	}
}
