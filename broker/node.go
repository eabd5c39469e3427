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
	// Keep names files of the process in the data directory that are no concern of the store.
	Keep []string
	// Log receives what an operator should know; nil is silent.
	Log *slog.Logger

	files  fsync.FS // the operating system's; tests make it fail
	router Router   // that of a node that knows no other, if nil
}

// Node is a running broker node.
type Node struct {
	c         Config
	flusher   *fsync.Flusher
	store     *wal.Store
	host      *raftstore.Host
	listener  *endpoint.Listener
	registry  *registry
	router    Router
	control   *controller
	admin     *http.Server // nil if there is none
	adminAddr net.Addr
	askNode   askNode // of the HTTP side
	quiet     quiet
	counters  counters

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
	n := &Node{c: c, router: c.router, queues: make(map[string]*nodeQueue), conns: make(map[*endpoint.Conn]bool)}
	n.keys = make(map[endpoint.Fingerprint]*guest)
	defer func() {
		if err != nil {
			err = errors.Join(err, n.closeStorage())
		}
	}()
	if err := n.openStorage(); err != nil {
		return nil, err
	}
	n.sessions.Store(n.firstSession())
	if n.c.Identity == nil {
		if n.c.Identity, err = endpoint.LoadOrCreateIdentity(n.c.files, c.Dir, "node"); err != nil {
			return nil, err
		}
	}
	if err := n.openControl(); err != nil {
		return nil, err
	}
	n.openQueues()
	n.control = newController(n)
	n.registry.reconcile(control.NewReconciler(n.control, control.Options{
		Node: n.c.Identity.Fingerprint().String(), Name: n.c.Name, Disk: fmt.Sprintf("%x", n.store.Identity().Disk),
		Incarnation: n.store.Identity().Incarnation,
	}))
	n.listener, err = endpoint.Listen(endpoint.ListenOptions{
		Addr: c.Listen, Identity: n.c.Identity, Trust: c.Trust, Connections: connectionsMax, OnRefused: n.turnedAway,
		Nodes: true,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.work, n.stopWork = context.WithCancel(ctx)
	if err := n.listenAdmin(); err != nil { // it asks whether the node stops as soon as it listens
		cancel()
		return nil, errors.Join(err, n.listener.Close())
	}
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
			Keep: n.c.Keep, Event: n.walEvent,
		})
	if err != nil {
		return err
	}
	n.host = raftstore.NewHost(raftstore.HostOptions{Store: n.store, Event: n.groupEvent})
	n.host.Start()
	return nil
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
	err = errors.Join(err, n.listener.Close())
	n.mu.Lock()
	for c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	n.served.Wait()
	return errors.Join(err, n.closeStorage())
}

func (n *Node) closeStorage() error {
	var errs []error
	if n.host != nil {
		errs = append(errs, n.host.Stop())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	if n.flusher != nil {
		errs = append(errs, n.flusher.Close())
	}
	return errors.Join(errs...)
}

func (n *Node) flushEvent(e fsync.Event) {
	n.c.Log.Warn("storage: "+e.Kind, "target", e.Target, "path", e.Path, "took", e.Took, "err", e.Err)
}

func (n *Node) walEvent(e wal.Event) {
	n.c.Log.Info("store: "+e.Kind, "group", uint64(e.Group), "path", e.Path, "detail", e.Detail, "err", e.Err)
}

func (n *Node) groupEvent(e raftstore.Event) {
	n.c.Log.Info("group: "+string(e.Kind), "group", uint64(e.Group), "index", uint64(e.Index), "err", e.Err)
}
