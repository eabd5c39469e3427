package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"weida/broker/endpoint"
	"weida/fsync"
	"weida/raftstore"
)

// patience bounds a hang and decides nothing else.
const patience = 5 * time.Minute

var testCluster = [16]byte{1, 2, 3}

// rig is some nodes on loopback, with real sockets and keys.
type rig struct {
	t     testing.TB
	dir   string
	nodes []*node
}

// node is one process's worth of links.
type node struct {
	t        testing.TB
	o        Options
	id       *endpoint.Identity
	listener *endpoint.Listener
	links    *Links
	got      *receiver
	ended    chan struct{}
	from     []string // guarded by got.mu; where connections came from
}

// newRig makes nodes 1 to n, with fingerprints that rise, so that the lower number dials. change may be nil.
func newRig(t testing.TB, n int, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	ids := make([]*endpoint.Identity, n)
	for i := range ids {
		ids[i] = r.identity(fmt.Sprintf("node%d", i))
	}
	slices.SortFunc(ids, func(a, b *endpoint.Identity) int {
		if dialsFirst(a.Fingerprint(), b.Fingerprint()) {
			return -1
		}
		return 1
	})
	for i, id := range ids {
		o := Options{
			Cluster: testCluster, Node: raftstore.NodeID(i + 1), Fingerprint: id.Fingerprint(),
			Disk: [16]byte{byte(i + 1)}, Incarnation: 1, Nonce: [16]byte{byte(i + 1)},
		}
		if change != nil {
			change(&o)
		}
		r.nodes = append(r.nodes, r.listen(id, o, "127.0.0.1:0"))
	}
	return r
}

func (r *rig) identity(name string) *endpoint.Identity {
	r.t.Helper()
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), r.dir, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// listen makes a node that takes connections and knows nobody.
func (r *rig) listen(id *endpoint.Identity, o Options, addr string) *node {
	r.t.Helper()
	n := &node{t: r.t, id: id, got: newReceiver(), ended: make(chan struct{})}
	if o.Event == nil {
		o.Event = n.got.event
	}
	n.o = o
	n.links = New(o)
	var err error
	n.listener, err = endpoint.Listen(endpoint.ListenOptions{
		Addr: addr, Identity: id, Trust: endpoint.NewTrust(nil), Peers: n.links.Peers(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	n.links.Start(n.listener, n.got)
	go n.accept()
	r.t.Cleanup(n.close)
	return n
}

func (n *node) accept() {
	defer close(n.ended)
	for {
		c, err := n.listener.Accept(context.Background())
		if err != nil {
			return
		}
		n.got.note(func() { n.from = append(n.from, c.RemoteAddr().String()) })
		n.links.Accept(c)
	}
}

// close ends the node in order, once.
func (n *node) close() {
	if n.listener == nil {
		return
	}
	n.links.Close()
	if err := n.listener.Close(); err != nil {
		n.t.Error(err)
	}
	<-n.ended
	n.listener = nil
}

func (n *node) addr() string { return n.listener.Addr().String() }

func (n *node) as() Node {
	return Node{ID: n.o.Node, Fingerprint: n.id.Fingerprint(), Addresses: []string{n.addr()}}
}

// meet tells all nodes of each other and waits until they are linked.
func (r *rig) meet() {
	r.t.Helper()
	var table []Node
	for _, n := range r.nodes {
		table = append(table, n.as())
	}
	for _, n := range r.nodes {
		n.set(table...)
	}
	for _, n := range r.nodes {
		n.got.until(r.t, "all nodes", func() bool {
			for _, m := range r.nodes {
				if n != m && !slices.Contains(n.got.lines, fmt.Sprintf("up %d in %d", m.o.Node, m.o.Incarnation)) {
					return false
				}
			}
			n.got.lines = nil
			return true
		})
	}
}

func (n *node) set(table ...Node) {
	n.t.Helper()
	if err := n.links.Set(table); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) stats(other *node) Stats {
	for _, s := range n.links.Stats() {
		if s.Node == other.o.Node {
			return s
		}
	}
	n.t.Fatalf("no stats of node %d", other.o.Node)
	return Stats{}
}

// receiver notes what comes, in lines.
type receiver struct {
	mu      sync.Mutex
	changed *sync.Cond
	lines   []string
	frames  map[raftstore.GroupID][]string // what came for each group, in order
	payload map[raftstore.GroupID][]string
	beats   []string
	refused []raftstore.Refusal
	events  []Event

	refuse func(raftstore.Frame) raftstore.RefusalKind // 0 takes it
	stream func(from raftstore.NodeID, head []byte, r io.Reader) error
	quiet  bool // frames are counted only
	count  int
	bytes  int

	stamps bool     // what comes says under which incarnation it was sent
	up     string   // the incarnation of the other node, while it is up
	mixed  []string // what came while another one was
}

// stamped looks at what came. The caller holds mu.
func (g *receiver) stamped(data []byte) {
	if g.stamps && string(data) != g.up {
		g.mixed = append(g.mixed, fmt.Sprintf("%s while %q is up", data, g.up))
	}
}

func newReceiver() *receiver {
	g := &receiver{frames: map[raftstore.GroupID][]string{}, payload: map[raftstore.GroupID][]string{}}
	g.changed = sync.NewCond(&g.mu)
	return g
}

func (g *receiver) note(f func()) {
	g.mu.Lock()
	f()
	g.mu.Unlock()
	g.changed.Broadcast()
}

func (g *receiver) event(e Event) { g.note(func() { g.events = append(g.events, e) }) }

func (g *receiver) ReceiveRaft(_ raftstore.NodeID, frames []raftstore.Frame) (list []raftstore.Refusal) {
	g.note(func() {
		for _, f := range frames {
			if g.refuse != nil && g.refuse(f) > 0 {
				list = append(list, raftstore.Refusal{Group: f.Group, Why: g.refuse(f)})
				continue
			}
			g.stamped(f.Data)
			g.count++
			g.bytes += len(f.Data)
			if !g.quiet {
				g.frames[f.Group] = append(g.frames[f.Group], string(f.Data))
			}
		}
	})
	return list
}

func (g *receiver) ReceiveRefusals(_ raftstore.NodeID, list []raftstore.Refusal) {
	g.note(func() { g.refused = append(g.refused, list...) })
}

func (g *receiver) ReceiveBeat(_ raftstore.NodeID, data []byte) {
	g.note(func() {
		g.stamped(data)
		g.beats = append(g.beats, string(data))
	})
}

func (g *receiver) ReceivePayload(_ raftstore.NodeID, frames []raftstore.Frame) {
	g.note(func() {
		for _, f := range frames {
			g.stamped(f.Data)
			g.count++
			g.bytes += len(f.Data)
			if !g.quiet {
				g.payload[f.Group] = append(g.payload[f.Group], string(f.Data))
			}
		}
	})
}

func (g *receiver) ReceiveStream(from raftstore.NodeID, head []byte, r io.Reader) error {
	if g.stream == nil {
		return errors.New("no transfers here")
	}
	return g.stream(from, head, r)
}

func (g *receiver) PeerUp(node raftstore.NodeID, incarnation uint64) {
	g.note(func() {
		g.up = fmt.Sprint(incarnation)
		g.lines = append(g.lines, fmt.Sprintf("up %d in %d", node, incarnation))
	})
}

func (g *receiver) PeerDown(node raftstore.NodeID) {
	g.note(func() {
		g.up = ""
		g.lines = append(g.lines, fmt.Sprintf("down %d", node))
	})
}

// until waits until is holds, with the receiver locked.
func (g *receiver) until(t testing.TB, what string, is func() bool) {
	t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() { g.note(func() { late = true }) })
	defer timer.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for !is() {
		if late {
			t.Fatalf("%s did not come; lines %q, events %v", what, g.lines, g.events)
		}
		g.changed.Wait()
	}
}

// eventually waits for what no receiver tells of.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// await waits for a line, which is gone then with those before it.
func (g *receiver) await(t testing.TB, line string) {
	t.Helper()
	g.until(t, line, func() bool {
		i := slices.Index(g.lines, line)
		if i < 0 {
			return false
		}
		g.lines = g.lines[i+1:]
		return true
	})
}

// refusal waits for the event of a refusal for that reason.
func (g *receiver) refusal(t testing.TB, why Why) (e *RefusedError) {
	t.Helper()
	g.until(t, why.String(), func() bool {
		for _, ev := range g.events {
			if errors.As(ev.Err, &e) && e.Why == why && ev.Kind == Refused {
				return true
			}
		}
		return false
	})
	return e
}

func frame(group int, data string) raftstore.Frame {
	return raftstore.Frame{Group: raftstore.GroupID(group), Data: []byte(data)}
}

func ctxOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
