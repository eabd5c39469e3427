package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/raftstore"
	"weida/segment"
	"weida/wal"
)

const (
	dataDir      = "/data"
	segmentBytes = 512 << 10
	tickEvery    = 100 * millisecond
	quickFlush   = 2 * millisecond
)

// node is one machine: a disk, and the process that runs on it while it is up.
type node struct {
	*cluster
	id   raftstore.NodeID
	disk *memfs.FS
	// of this life
	fs    *faultfs.FS
	flush *fsync.Flusher
	store *wal.Store
	host  *raftstore.Host
	desks map[raftstore.GroupID]*desk
	up    bool
	life  uint64
	dies  func(*node) // what becomes of it when it dies in a call
	// stepDue, flushDue say that the event is planned.
	stepDue, flushDue bool
	standsUntil       micros   // paused
	waiting           []func() // until it goes on
	speed             float64  // of its clock
	flushTakes        micros   // about so long
	image             image    // what its disk holds, for the oracle
}

func newNode(c *cluster, id raftstore.NodeID) *node {
	return &node{cluster: c, id: id, disk: memfs.New(), speed: 1, flushTakes: quickFlush}
}

func (n *node) String() string { return fmt.Sprintf("n%d", n.id) }

// boot starts the process on what the disk holds, and opens what the registry says is here.
func (n *node) boot() {
	if n.up {
		return
	}
	n.life++
	n.fs = faultfs.New(n.disk)
	n.fs.Count(faultfs.Changes...)
	n.mutateDisk()
	n.dies = (*node).killed
	n.desks = map[raftstore.GroupID]*desk{}
	n.stepDue, n.flushDue, n.standsUntil, n.waiting = false, false, 0, nil
	root, err := n.fs.OpenDir("/")
	if err != nil {
		n.fail("%v: %v", n, err)
		return
	}
	n.flush = fsync.NewFlusher(fsync.Options{
		Root: root, Strategy: fsync.Files,
		Now: func() time.Time { return time.UnixMicro(int64(n.now)) },
	})
	n.store, err = wal.OpenStore(n.fs, dataDir, wal.Options{
		Flusher: n.flush, Boot: segment.Boot(n.disk.BootID()), SegmentBytes: segmentBytes,
	})
	if err != nil {
		n.bootFailed(err)
		return
	}
	n.host = raftstore.NewHost(raftstore.HostOptions{
		Store: n.store, Shards: 1 + int(n.seed%2), ParkTicks: 5, SnapshotBytes: n.o.snapshotBytes,
		Node: n.id, Transport: n, TransferBytes: n.o.transfer, RoomBytes: 1 << 20,
		Retired: func(g raftstore.GroupID) bool { return n.retiredHere(g) },
		Event:   func(e raftstore.Event) { n.told(e) },
	})
	n.up = true
	n.note("%v up, life %d", n, n.life)
	n.openAll()
	if n.up {
		n.net.nodeUp(n)
		n.planTick()
		n.wake()
	}
}

// bootFailed is fine where the process was to die or the disk is full, and nowhere else.
func (n *node) bootFailed(err error) {
	n.note("%v does not come up: %v", n, err)
	n.full(err, "disk full, start")
	if !errors.Is(err, fsync.ErrDiskFull) && !errors.Is(err, faultfs.ErrDied) && !errors.Is(err, errInjected) {
		n.fail("%v does not come up: %v", n, err)
	}
	n.check.powerCut(n)
	n.down("died while it came up", func() { n.disk.Kill() })
	n.after(n.between(100*millisecond, 2*second), n.bootAgain())
}

// bootAgain boots a node that is down, unless somebody else did.
func (n *node) bootAgain() func() {
	life := n.life
	return func() {
		if n.life == life {
			n.boot()
		}
	}
}

// told takes an event of the host.
func (n *node) told(e raftstore.Event) {
	n.stats.told[e.Kind]++
	if e.Kind == raftstore.SnapshotFailed || e.Kind == raftstore.SnapshotRefused || e.Kind == raftstore.JobFailed {
		n.full(e.Err, "disk full, snapshot")
	}
	n.note("%v g%d %s index %d node %d: %v", n, e.Group, e.Kind, e.Index, e.Node, e.Err)
}

// full counts what a full disk got in the way of.
func (n *node) full(err error, what string) {
	if errors.Is(err, fsync.ErrDiskFull) {
		n.stats.fault(what)
	}
}

// kill ends the process; what was written stays.
func (n *node) kill(why string) {
	if n.up {
		n.stats.fault("kill -9")
		n.down(why, func() { n.disk.Kill() })
	}
}

// cutPower ends the machine; what was not flushed may go.
func (n *node) cutPower(keep memfs.Keep) {
	word := map[memfs.Keep]string{
		memfs.KeepNone: "nothing", memfs.KeepRandom: "something", memfs.KeepAll: "all", memfs.KeepAstray: "something astray",
	}[keep]
	n.stats.fault("power cut, " + word + " stays")
	n.down("power cut, "+word+" unflushed stays", func() {
		names, astray := n.disk.Files(), n.disk.Astray()
		n.disk.PowerCut(keep, rand.New(rand.NewPCG(n.rng.Uint64(), 1)))
		left := n.disk.Files()
		lost := slices.DeleteFunc(names, func(f string) bool { return slices.Contains(left, f) })
		n.stats.faults["name lost"] += uint64(len(lost))
		n.stats.faults["sector astray"] += uint64(n.disk.Astray() - astray)
	})
	n.check.powerCut(n)
}

func (n *node) down(why string, end func()) {
	n.note("%v down: %s", n, why)
	n.up, n.standsUntil, n.waiting = false, 0, nil
	n.life++ // nothing that was planned for it comes any more
	end()
	n.net.nodeDown(n)
	for _, g := range n.groups {
		if d := n.desks[g.id]; d != nil {
			d.vanish()
		}
	}
	n.desks = nil
}

// wake plans a step.
func (n *node) wake() {
	if n.up && !n.stepDue {
		n.stepDue = true
		n.alive(n.between(20, 300), n.step)
	}
}

// alive plans something of this life. What comes while the node stands still waits, in order.
func (n *node) alive(d micros, fn func()) {
	life := n.life
	n.after(d, func() {
		switch {
		case n.life != life:
		case n.stands():
			n.waiting = append(n.waiting, fn)
		default:
			fn()
		}
	})
}

// stands says whether the node stands still.
func (n *node) stands() bool { return n.now < n.standsUntil || len(n.waiting) > 0 }

// stand stops the node for a while.
func (n *node) stand(until micros) {
	n.stats.fault("pause")
	n.note("%v stands until %v", n, until)
	n.standsUntil = until
	life := n.life
	n.after(until-n.now, func() {
		if n.life == life && n.now >= n.standsUntil {
			n.goOn(life)
		}
	})
}

// goOn does what has waited.
func (n *node) goOn(life uint64) {
	for n.life == life && len(n.waiting) > 0 {
		fn := n.waiting[0]
		n.waiting = n.waiting[1:]
		fn()
	}
}

// step does one round of all shards.
func (n *node) step() {
	n.stepDue = false
	worked := n.host.Step()
	if n.died() {
		return
	}
	if worked {
		n.wake()
	}
	n.planFlush()
}

func (n *node) planFlush() {
	if !n.flushDue {
		n.flushDue = true
		n.alive(n.between(n.flushTakes/2+1, n.flushTakes*3/2+2), n.flushRound)
	}
}

func (n *node) flushRound() {
	n.flushDue = false
	if worked := n.flush.Step(); n.died() || !worked {
		return
	}
	n.wake()
	n.planFlush()
}

// died notices that the process came to its end in a call, or has to end because its storage failed.
func (n *node) died() bool {
	select {
	case <-n.host.Failed():
		n.stats.fault("storage failed")
		n.check.powerCut(n)
		n.down("its storage failed", func() { n.disk.Kill() })
	default:
		if !n.fs.Dead() {
			return !n.up
		}
		n.stats.fault("end in a call")
		n.note("%v ends in a call", n)
		n.dies(n)
	}
	n.after(n.between(50*millisecond, 3*second), n.bootAgain())
	return true
}

func (n *node) planTick() {
	d := micros(float64(tickEvery) / n.speed)
	n.alive(d+n.between(0, millisecond), func() {
		n.tick(1)
		n.planTick()
	})
}

func (n *node) tick(times int) {
	for range times {
		n.host.Tick()
	}
	n.wake()
}

// openAll opens the groups whose replicas are here, and removes those that are retired.
func (n *node) openAll() {
	for _, g := range n.groups {
		if n.up {
			n.open(g)
		}
	}
}

// open opens this node's replica of a group.
func (n *node) open(g *group) {
	rid, here := g.replicas[n.id]
	if err := n.removeRetired(g, rid); err != nil {
		n.openFailed(g, err)
		return
	}
	if !here || n.desks[g.id] != nil {
		return
	}
	d := newDesk(n, g, rid)
	n.desks[g.id] = d
	var err error
	if g.owned {
		_, err = n.host.OpenOwner(g.id, d, raftstore.OwnerOptions{Create: true})
	} else {
		_, err = n.host.OpenReplica(g.id, d, raftstore.ReplicaOptions{Self: rid, Genesis: g.genesisOf(rid)})
	}
	if err != nil {
		delete(n.desks, g.id)
		n.openFailed(g, err)
		return
	}
	g.onDisk[n.id] = rid
	n.note("%v g%d open as r%d at %d", n, g.id, rid, d.last)
	d.opened()
	n.wake()
}

func (n *node) openFailed(g *group, err error) {
	n.note("%v g%d not opened: %v", n, g.id, err)
	n.full(err, "disk full, start")
	if n.fs.Dead() {
		n.died()
		return
	}
	if !errors.Is(err, fsync.ErrDiskFull) && !errors.Is(err, errInjected) && !errors.Is(err, fsync.ErrPoisoned) {
		n.fail("%v g%d not opened: %v", n, g.id, err)
		return
	}
	n.alive(n.between(second, 2*second), func() { n.open(g) })
}

// removeRetired takes down what an earlier membership left here.
func (n *node) removeRetired(g *group, now raftstore.ReplicaID) error {
	was, ok := g.onDisk[n.id]
	if !ok || was == now {
		return nil
	}
	if d := n.desks[g.id]; d != nil {
		d.group.Stop()
		d.vanish()
		delete(n.desks, g.id)
	}
	if log := n.oracle.logOf(n, g.id); log != nil {
		g.past = append(g.past, log.Last().Index)
	}
	if err := n.store.RemoveLog(g.id); err != nil {
		return err
	}
	n.note("%v g%d r%d removed", n, g.id, was)
	delete(g.onDisk, n.id)
	delete(n.image.logs, g.id)
	g.removed[n.id] = true
	return nil
}

// retiredHere says whether a group had a replica here that was taken down.
func (n *node) retiredHere(id raftstore.GroupID) bool {
	if id == 0 || int(id) > len(n.groups) {
		return false
	}
	g := n.groups[id-1]
	return g.removed[n.id] && g.replicas[n.id] == 0
}

// mutateDisk makes the disk of this life as bad as the options say.
func (n *node) mutateDisk() {
	if n.o.mutate.ignoreFlush {
		n.fs.IgnoreSync("*.seg")
	}
	if n.o.mutate.ignoreDirs {
		n.fs.IgnoreDirSync("")
	}
}
