package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/fsync"
	"weida/raftstore"
	"weida/segment"
	"weida/wal"
)

// Config says how a node runs. Dir, Listen and Trust are required.
type Config struct {
	// Dir is the data directory; it is made if absent. Its parent has to exist.
	Dir string
	// Listen is the UDP address; port 0 takes a free one.
	Listen string
	// Identity is the node's key pair; nil keeps one in the data directory (node.key, node.crt).
	Identity *endpoint.Identity
	// Trust says which keys may connect, and as what.
	Trust *endpoint.Trust
	// Name is what people call the node; its identity is its key (T-7).
	Name string
	// Admin is the TCP address of the HTTP side, on the loopback interface; port 0 takes a free one, ""
	// is none.
	Admin string
	// Version and Profile are for the HTTP side: what it says it is, and whether it serves profiles.
	Version admin.Version
	Profile bool
	// MessageMax is the largest message in bytes; 1 GiB if zero.
	MessageMax int64
	// Seeds are the nodes that the cluster begins with, the same list on every one of them; one, or three and more.
	// Without seeds this node is a cluster of its own.
	Seeds []control.Seed
	// Consensus holds the numbers of replicated groups.
	Consensus Consensus
	// Number is that of a node which joins a cluster, as it was given by the cluster; the seeds need none.
	Number raftstore.NodeID
	// Wait ends the wait of a node that joins and is not let in; nil waits for ever.
	Wait context.Context
	// Advertise is the host:port by which others reach this node, if it is no seed and Listen is not.
	Advertise string
	// Connectors is the directory in which the files of file connectors lie; "" runs no connectors on this node.
	Connectors string
	// ScrubBytes is how many bytes a second are read again of what the node stores, to find damage, at most; 8 MiB if
	// zero, nothing below. ScrubEvery is the least time from the beginning of one pass over everything to the next; a
	// day if zero.
	ScrubBytes int64
	ScrubEvery time.Duration
	// Keep names files of the process in the data directory that are no concern of the store.
	Keep []string
	// Log receives what an operator should know; nil is silent.
	Log *slog.Logger

	files  fsync.FS      // the operating system's; tests make it fail
	router Router        // that of a node that knows no other, if nil
	absent time.Duration // the reconciler's patience, if not zero; tests have less
}

// Node is a running broker node.
type Node struct {
	c        Config
	flusher  *fsync.Flusher
	store    *wal.Store
	host     *raftstore.Host
	listener *endpoint.Listener
	registry *registry
	cluster  *cluster           // nil without seeds
	inner    *endpoint.Identity // of this process, as a client of its own node
	// hostStopped belongs to who opens and closes the node.
	hostStopped bool
	router      Router
	control     *controller
	admin       *http.Server // nil if there is none
	adminAddr   net.Addr
	askNode     askNode // of the HTTP side
	quiet       quiet
	counters    counters
	displaced   displaced
	begunHere   *begunSet
	upToDate    atomic.Bool // the copy of the registry has had, once in this life, all that was committed
	damages     damages

	sessions atomic.Uint64   // the last session number given out, above all of earlier lives
	work     context.Context // ends when the node takes no more work
	stopWork context.CancelFunc
	cancel   context.CancelFunc // ends the sessions that are left
	served   sync.WaitGroup
	// adminServed is the HTTP side, which goes on while sessions end.
	adminServed sync.WaitGroup

	mu    sync.Mutex
	conns map[*endpoint.Conn]bool         // guarded by mu
	keys  map[endpoint.Fingerprint]*guest // guarded by mu; every key that came, which is one of the trusted

	queuesMu sync.RWMutex
	queues   map[string]*nodeQueue // guarded by queuesMu; open here, by name
}

// Open opens the data directory and the queues, and listens. What it returned is to be closed.
func Open(c Config) (_ *Node, err error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.files == nil {
		c.files = fsync.OS()
	}
	if c.MessageMax == 0 {
		c.MessageMax = messageMaxDefault
	}
	if c.router == nil {
		c.router = alone{}
	}
	if c.Consensus, err = c.Consensus.withDefaults(); err != nil {
		return nil, err
	}
	n := &Node{c: c, router: c.router, queues: make(map[string]*nodeQueue), conns: make(map[*endpoint.Conn]bool)}
	n.displaced.ended = make(chan struct{})
	n.keys = make(map[endpoint.Fingerprint]*guest)
	defer func() {
		if err != nil {
			err = errors.Join(err, n.closeStorage())
			if n.listener != nil {
				err = errors.Join(err, n.listener.Close())
			}
			err = roomless(c.files, c.Dir, err)
		}
	}()
	n.registry = newRegistry(n.c.Log) // the host tells it of disks, and the links of a node that joins ask for it
	if err := n.openStorage(); err != nil {
		return nil, err
	}
	if err := n.cluster.join(); err != nil {
		return nil, err
	}
	if err := n.openControl(); err != nil {
		return nil, err
	}
	n.control = newController(n)
	n.openQueues()
	n.registry.reconcile(control.NewReconciler(n.control, n.whoAmI()))
	if err := n.listen(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.work, n.stopWork = context.WithCancel(ctx)
	if err := n.listenAdmin(); err != nil { // it asks whether the node stops as soon as it listens
		cancel()
		return nil, err
	}
	n.cluster.start()
	n.served.Go(func() { n.accept(ctx) })
	n.control.start()
	return n, nil
}

func (n *Node) openStorage() error {
	if err := fsync.CheckKernel(); err != nil {
		return err
	}
	// The directory may be a mount point; before it is made, its parent stands for its file system.
	parent := filepath.Clean(n.c.Dir)
	if _, err := fsync.Mode(parent); errors.Is(err, fs.ErrNotExist) {
		parent = filepath.Dir(parent)
	}
	boot, err := fsync.BootID(parent)
	if err != nil {
		return err
	}
	// The descriptor for syncfs is opened before the first write and kept.
	root, err := n.c.files.OpenDir(parent)
	if err != nil {
		return err
	}
	n.flusher = fsync.NewFlusher(fsync.Options{Root: root, Event: n.flushEvent})
	n.flusher.Start()
	n.store, err = wal.OpenStore(n.c.files, n.c.Dir,
		wal.Options{
			Flusher: n.flusher, Boot: segment.Boot(boot),
			Keep: append(slices.Clone(n.c.Keep), joinedFile, begunFile), Event: n.walEvent,
		})
	if err != nil {
		return err
	}
	n.sessions.Store(n.firstSession())
	if n.c.Identity == nil {
		if n.c.Identity, err = endpoint.LoadOrCreateIdentity(n.c.files, n.c.Dir, "node"); err != nil {
			return err
		}
	}
	if n.inner, err = endpoint.NewIdentity("inner"); err != nil {
		return err
	}
	if n.cluster, err = newCluster(n); err != nil {
		return err
	}
	if n.begunHere, err = readBegun(n.c.files, n.c.Dir, n.c.Log); err != nil {
		return err
	}
	o := raftstore.HostOptions{
		Store: n.store, Event: n.groupEvent, Retired: n.retired,
		ScrubBytes: max(n.c.ScrubBytes, 0), ScrubOff: n.c.ScrubBytes < 0,
		ScrubEvery:    int((n.c.ScrubEvery + tickTime - 1) / tickTime),
		ElectionTicks: ticks(n.c.Consensus.Election), HeartbeatTicks: ticks(n.c.Consensus.Heartbeat),
	}
	if c := n.cluster; c != nil {
		o.Node, o.Transport = c.number, c.links
		n.router, n.askNode = c, c.askNode
	}
	n.host = raftstore.NewHost(o)
	n.host.Start()
	return nil
}

// disk is the id of the data directory's disk, as the registry has it.
func (n *Node) disk() string { return fmt.Sprintf("%x", n.store.Identity().Disk) }

// whoAmI is what the reconciler has to know of this node.
func (n *Node) whoAmI() control.Options {
	o := control.Options{
		Node: n.c.Identity.Fingerprint().String(), Name: n.c.Name, Disk: n.disk(),
		Incarnation: n.store.Identity().Incarnation, Nonce: n.nonce(), Connectors: newConnectors(n),
		Patience: n.c.absent.Milliseconds(),
		Follows: func(incarnation uint64, nonce string) bool {
			return n.follows(&control.NodeStatus{Disk: n.disk(), Incarnation: incarnation, Nonce: nonce})
		},
	}
	if c := n.cluster; c != nil {
		o.Founded = true
		o.Address, o.Admin = c.advertised()
	}
	return o
}

// retired says whether a group was taken down for good, as far as this node's copy of the registry knows.
func (n *Node) retired(g raftstore.GroupID) bool {
	r := n.registry
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.GroupRetired(uint64(g))
}

// firstSession is a number below every session of this life, and above those of earlier ones: the
// incarnation rises at every open.
func (n *Node) firstSession() uint64 { return n.store.Identity().Incarnation << 32 }

// Addr is the address the node listens on.
func (n *Node) Addr() net.Addr { return n.listener.Addr() }

// Fingerprint is the node's identity.
func (n *Node) Fingerprint() endpoint.Fingerprint { return n.c.Identity.Fingerprint() }

// Failed is closed when the node's storage failed as a whole: the process must end.
func (n *Node) Failed() <-chan struct{} { return n.host.Failed() }

// Err is why storage failed, nil if it did not.
func (n *Node) Err() error { return n.host.Err() }

// Close stops in order: no new work, what is under way is answered as far as stopPatience allows,
// sessions end, logs are flushed, the directory is marked clean.
func (n *Node) Close() error {
	n.control.close()
	err := n.listener.Refuse() // first: who is told that the node stops may dial again at once
	n.stopWork()
	err = errors.Join(err, n.closeAdmin())
	idle := make(chan struct{})
	go func() { n.served.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(stopPatience):
		n.c.Log.Warn("sessions did not end in time; what they had under way is indeterminate to them")
	}
	n.cancel()
	n.mu.Lock()
	for c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	n.served.Wait()
	err = errors.Join(err, n.stopHost()) // while the links stand: what it led says who is to lead
	n.cluster.close()
	return errors.Join(err, n.listener.Close(), n.closeStorage())
}

// stopHost stops the groups, once.
func (n *Node) stopHost() error {
	if n.host == nil || n.hostStopped {
		return nil
	}
	n.hostStopped = true
	return n.host.Stop()
}

func (n *Node) closeStorage() error {
	errs := []error{n.stopHost()}
	n.cluster.close()
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	if n.flusher != nil {
		errs = append(errs, n.flusher.Close())
	}
	return errors.Join(errs...)
}

func (n *Node) flushEvent(e fsync.Event) {
	n.c.Log.Warn("storage: "+e.Kind, withErr(e.Err, "target", e.Target, "path", e.Path, "took", e.Took)...)
}

func (n *Node) walEvent(e wal.Event) {
	n.c.Log.Info("store: "+e.Kind, withErr(e.Err, "group", uint64(e.Group), "path", e.Path, "detail", e.Detail)...)
}

func (n *Node) groupEvent(e raftstore.Event) {
	if e.Kind == raftstore.DiskAils || e.Kind == raftstore.DiskWell {
		n.c.Log.Warn("group: "+string(e.Kind), withErr(e.Err, "node", uint64(e.Node))...)
		go n.registry.wakeAll() // the host may be called with the registry locked
		return
	}
	tell := n.c.Log.Info
	if e.Kind == raftstore.DamageFound || e.Kind == raftstore.DamageStays {
		tell = n.c.Log.Error
	}
	tell("group: "+string(e.Kind), withErr(e.Err, "group", uint64(e.Group), "index", uint64(e.Index))...)
	if e.Kind == raftstore.DamageStays { // another replica takes its place
		go n.registry.wake(uint64(e.Group))
	}
}

// withErr are the attributes of a line of the log, the error last if there is one.
func withErr(err error, attrs ...any) []any {
	if err == nil {
		return attrs
	}
	return append(attrs, "err", err)
}
