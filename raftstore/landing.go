package raftstore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"weida/wal"
)

// landing is where streams for one replica are received, on the goroutines of the transport. A large body goes into
// a file of its own, a snapshot into the store beside those that count; what is cut, damaged or not wanted any more
// leaves nothing. What is complete goes to the shard.
//
// A goroutine of the transport may be stuck in a read for as long as the transport likes. close does not wait for
// it: it removes what is unfinished itself.
type landing struct {
	log  *wal.Log
	self ReplicaID
	dock *dock // of the node
	// give hands what is complete to the shard, false if the replica has ended.
	give func(parcel) bool

	mu sync.Mutex
	// guarded by mu
	closed   bool
	bodies   map[BodyRef]*craft
	snapshot *craft
	resting  bool // one was given up: none is taken for a while
	own      bool // a snapshot of this replica's own is being written: it may be of the same entry
}

// dock bounds what a node receives at a time.
type dock struct {
	mu sync.Mutex
	// guarded by mu
	bodies, snapshots       int
	bodiesMax, snapshotsMax int
	written                 func(n int64) // told of what is about to be written; may be nil
}

// spend accounts for n bytes that are about to be written.
func (d *dock) spend(n int64) {
	if d.written != nil {
		d.written(n)
	}
}

const (
	dockBodies    = 256
	dockSnapshots = 2
)

var (
	errNotHere   = errors.New("raftstore: the replica that a stream is for is not here")
	errDockFull  = errors.New("raftstore: this node receives as many streams as it may; nothing was stored; send it again")
	errNoLanding = errors.New("raftstore: the replica takes no stream now; nothing was stored")
)

// craft is one stream on its way in. Whoever sets gone first owns what there is of it.
type craft struct {
	mu    sync.Mutex
	gone  bool
	write func([]byte) (int, error)
	abort func() error
}

// Write implements io.Writer.
func (c *craft) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return 0, errNoLanding
	}
	return c.write(p)
}

// finish ends the stream with last, unless it was given up.
func (c *craft) finish(last func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return errNoLanding
	}
	if err := last(); err != nil {
		return err
	}
	c.gone = true
	return nil
}

// giveUp removes what came so far.
func (c *craft) giveUp() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil
	}
	c.gone = true
	if c.abort == nil {
		return nil
	}
	return c.abort()
}

// enter takes a place; leave gives it back.
func (d *dock) enter(k streamKind) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, limit := d.countLocked(k)
	if *n >= limit {
		return false
	}
	*n++
	return true
}

func (d *dock) leave(k streamKind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _ := d.countLocked(k)
	if *n--; *n < 0 {
		panic("bug: raftstore: a stream left the dock twice")
	}
}

func (d *dock) countLocked(k streamKind) (*int, int) {
	if k == bodyStream {
		return &d.bodies, d.bodiesMax
	}
	return &d.snapshots, d.snapshotsMax
}

// receive takes one stream to its end.
func (l *landing) receive(from NodeID, h *streamHead, r io.Reader) error {
	if h.to != l.self {
		return errNotHere
	}
	if !l.dock.enter(h.kind) {
		return errDockFull
	}
	in := &streamReader{r: r, left: h.length}
	if h.kind == bodyStream {
		defer l.dock.leave(bodyStream)
		err := l.receiveBody(from, h, in)
		if err != nil && !errors.Is(err, errOnItsWay) {
			l.give(parcel{kind: parcelLost, from: from, ref: h.ref})
		}
		return err
	}
	return l.receiveSnapshot(from, h, in)
}

func (l *landing) receiveBody(from NodeID, h *streamHead, in *streamReader) error {
	c := &craft{}
	if err := l.claimBody(h.ref, c); err != nil {
		return err
	}
	defer l.doneBody(h.ref)
	f, err := l.log.NewBody(h.ref, h.length)
	if err != nil {
		return storeError(err)
	}
	f.Account(l.dock.spend)
	if !c.open(f.Write, f.Abort) {
		return errors.Join(errNoLanding, f.Abort())
	}
	if _, err := copyPieces(c, in); err != nil {
		return errors.Join(storeError(err), c.giveUp())
	}
	if err := c.finish(func() error { return f.Finish(in.sum) }); err != nil {
		return errors.Join(storeError(err), c.giveUp())
	}
	if !l.give(parcel{kind: parcelFile, from: from, file: f}) {
		return errors.Join(errNoLanding, f.Abort())
	}
	return nil
}

// open says what a stream writes to; it is false if the replica gave it up before.
func (c *craft) open(write func([]byte) (int, error), abort func() error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	c.write, c.abort = write, abort
	return true
}

// copyPieces is io.Copy with a buffer of one piece, whatever the writer could do.
func copyPieces(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, pieceBytes))
}

// arrived is a snapshot whose content is here, not flushed, and named by nothing.
type arrivedSnapshot struct {
	from   NodeID
	sender ReplicaID
	term   Term // of the sender
	mark   wal.Mark
	head   snapshotHead
	runs   []bodyRun
	writer *wal.SnapshotWriter
}

func (l *landing) receiveSnapshot(from NodeID, h *streamHead, in *streamReader) error {
	c := &craft{}
	l.mu.Lock()
	if l.closed || l.resting || l.snapshot != nil || l.own {
		l.mu.Unlock()
		l.dock.leave(snapshotStream)
		return errNoLanding
	}
	l.snapshot = c
	l.mu.Unlock()
	err := l.landSnapshot(from, h, in, c)
	if err != nil {
		l.leave() // else it has its place until the snapshot is installed or given up
	}
	return err
}

// ownBegins keeps snapshots from arriving while this replica writes one of its own; false if one is arriving.
func (l *landing) ownBegins() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.snapshot != nil {
		return false
	}
	l.own = true
	return true
}

// rest says whether snapshots are refused for a while.
func (l *landing) rest(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resting = yes
}

func (l *landing) ownEnds() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = false
}

// leave says that the snapshot that was received is installed or given up: another may come.
func (l *landing) leave() {
	l.mu.Lock()
	l.snapshot = nil
	l.mu.Unlock()
	l.dock.leave(snapshotStream)
}

func (l *landing) landSnapshot(from NodeID, h *streamHead, in *streamReader, c *craft) error {
	w, err := l.log.NewSnapshot(h.mark)
	s := &arrivedSnapshot{from: from, sender: h.from, term: h.term, mark: h.mark, writer: w}
	if errors.Is(err, wal.ErrSurpassed) {
		l.give(parcel{kind: parcelKnown, from: from, snapshot: s})
	}
	if err != nil {
		return storeError(err)
	}
	if !c.open(w.Write, w.Abort) {
		return errors.Join(errNoLanding, w.Abort())
	}
	if err := s.read(c, in); err != nil {
		return errors.Join(storeError(err), c.giveUp())
	}
	if err := c.finish(func() error { return nil }); err != nil {
		return err
	}
	if !l.give(parcel{kind: parcelSnapshot, from: from, snapshot: s}) {
		return errors.Join(errNoLanding, w.Abort())
	}
	return nil
}

// read copies the content to w and keeps what it says about members and bodies.
func (s *arrivedSnapshot) read(w io.Writer, in io.Reader) error {
	f, err := readSnapshot(io.TeeReader(in, w))
	if err != nil {
		return err
	}
	s.head = f.head
	for {
		run, ok, err := f.nextRun()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		s.runs = append(s.runs, run)
	}
	_, err = copyPieces(io.Discard, f.b)
	return err
}

// claimBody makes the ref one that is being received.
func (l *landing) claimBody(ref BodyRef, c *craft) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errNoLanding
	case l.bodies[ref] != nil:
		return fmt.Errorf("%w: body %v", errOnItsWay, ref)
	}
	if l.bodies == nil {
		l.bodies = make(map[BodyRef]*craft)
	}
	l.bodies[ref] = c
	return nil
}

func (l *landing) doneBody(ref BodyRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.bodies, ref); len(l.bodies) == 0 {
		l.bodies = nil
	}
}

// receiving reports whether the body is on its way in.
func (l *landing) receiving(ref BodyRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bodies[ref] != nil
}

// dropBodies gives up the bodies of terms below t: no entry to come names them, and one that this log lacks asks for
// its own again.
func (l *landing) dropBodies(t Term) error {
	l.mu.Lock()
	list := l.craftsLocked(func(ref BodyRef) bool { return ref.Term < t })
	l.mu.Unlock()
	return giveUpAll(list)
}

// close gives up everything and takes nothing any more.
func (l *landing) close() error {
	l.mu.Lock()
	l.closed = true
	list := l.craftsLocked(func(BodyRef) bool { return true })
	if l.snapshot != nil {
		list = append(list, l.snapshot)
	}
	l.mu.Unlock()
	return giveUpAll(list)
}

// craftsLocked are those of the bodies that match, in the order of refs.
func (l *landing) craftsLocked(match func(BodyRef) bool) []*craft {
	refs := make([]BodyRef, 0, len(l.bodies))
	for ref := range l.bodies {
		if match(ref) {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, compareRefs)
	list := make([]*craft, 0, len(refs))
	for _, ref := range refs {
		list = append(list, l.bodies[ref])
	}
	return list
}

func compareRefs(a, b BodyRef) int {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Seq, b.Seq))
}

func giveUpAll(list []*craft) (err error) {
	for _, c := range list {
		err = errors.Join(err, c.giveUp())
	}
	return err
}
