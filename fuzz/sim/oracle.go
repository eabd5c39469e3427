package main

import (
	"errors"
	"io"
	"math/rand/v2"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/raftstore"
	"weida/segment"
	"weida/wal"
)

// oracle looks at the disks of a cluster as a power cut would leave them at this moment (Q8).
type oracle struct {
	*cluster
	looks uint64
}

// image is such a copy of one disk. It stands until the disk changes.
type image struct {
	life  uint64
	ops   int
	store *wal.Store
	logs  map[raftstore.GroupID]*wal.Log
}

// imageOf is the copy of a node's disk.
func (o *oracle) imageOf(n *node) *image {
	ops := 0
	if n.up {
		ops = n.fs.Ops()
	}
	if n.image.store != nil && n.image.life == n.life && n.image.ops == ops {
		return &n.image
	}
	o.looks++
	n.image = image{life: n.life, ops: ops, logs: map[raftstore.GroupID]*wal.Log{}}
	disk := n.disk.Clone()
	disk.SetCapacity(0)
	disk.PowerCut(memfs.KeepNone, nil)
	root, err := disk.OpenDir("/")
	if err == nil {
		fl := fsync.NewFlusher(fsync.Options{Root: root, Strategy: fsync.Files})
		n.image.store, err = wal.OpenStore(disk, dataDir, wal.Options{
			Flusher: fl, Boot: segment.Boot(disk.BootID()), SegmentBytes: segmentBytes,
			Rand: rand.NewChaCha8([32]byte{byte(n.id)}),
		})
	}
	if err != nil {
		o.fail("Q8 %v, if its power were cut now: %v", n, err)
	}
	return &n.image
}

func (o *oracle) logOf(n *node, g raftstore.GroupID) *wal.Log {
	m := o.imageOf(n)
	if log, ok := m.logs[g]; ok || m.store == nil {
		return log
	}
	var log *wal.Log
	ok, err := m.store.HasLog(g)
	if ok && err == nil {
		log, err = m.store.OpenLog(g)
	}
	if err != nil {
		o.fail("Q8 %v g%d, if its power were cut now: %v", n, g, err)
		return nil
	}
	m.logs[g] = log
	return log
}

// prove fails unless as many disks hold what an acknowledgement says.
func (o *oracle) prove(d *desk, e evidence) {
	if e.n == 0 || !e.flushed {
		return
	}
	o.stats.proofs++
	o.proveEntry(d, e.n, wal.Mark{Term: e.term, Index: e.index}, "acknowledgement")
}

func (o *oracle) proveEntry(d *desk, n int, m wal.Mark, what string) {
	var on []raftstore.NodeID
	for _, other := range o.nodes {
		if _, here := d.g.onDisk[other.id]; here && o.holds(other, d.g.id, m) {
			if on = append(on, other.id); len(on) == n {
				return
			}
		}
	}
	// A leader that stood still, and does not know that another one leads, may name replicas that were taken down since.
	if top := o.leader(d.g); top != nil && top.term > d.term {
		held := len(on)
		for _, end := range d.g.past {
			if end >= m.Index {
				held++
			}
		}
		if held >= n {
			return
		}
	}
	o.fail("Q8 g%d: the %s of entry %d of term %d says that %d hold it, the disks of %v do",
		d.g.id, what, m.Index, m.Term, n, on)
}

// proveHeld does it for everything that a leader knows.
func (o *oracle) proveHeld(d *desk, m *raftstore.Marks) {
	for k := raftstore.MaxVoters; k > 0; k-- {
		i := m.Held[k-1]
		sum, ok := o.check.ledger(d.g.id).entries[i]
		if i == 0 || !ok || k < raftstore.MaxVoters && m.Held[k] == i {
			continue
		}
		o.stats.proofs++
		o.proveEntry(d, k, wal.Mark{Term: sum.term, Index: i}, "mark")
	}
}

// holds reports whether a disk has an entry and its bodies. What an earlier copy has, in this life of its node, it has.
func (o *oracle) holds(n *node, g raftstore.GroupID, m wal.Mark) bool {
	if log := n.image.logs[g]; log != nil && n.image.life == n.life && o.inLog(n, g, log, m) {
		return true
	}
	return o.inLog(n, g, o.logOf(n, g), m)
}

// inLog reports whether a log has an entry and its bodies.
func (o *oracle) inLog(n *node, g raftstore.GroupID, log *wal.Log, m wal.Mark) bool {
	if log == nil || log.Last().Index < m.Index {
		return false
	}
	term, err := log.Term(m.Index)
	if errors.Is(err, wal.ErrTrimmed) {
		return true // a snapshot has taken its place
	}
	if err != nil || term != m.Term {
		return false
	}
	list, err := log.Entries(m.Index, m.Index+1, 1<<20)
	if errors.Is(err, wal.ErrTrimmed) {
		return true
	}
	if err == nil && len(list) == 1 && list[0].Type == segment.EntryNormal {
		err = segment.EachCommit(list[0].Data, func(c segment.Commit) error { return onDisk(log, c) })
	}
	if err != nil {
		o.note("%v g%d entry %d, if its power were cut now: %v", n, g, m.Index, err)
		return false
	}
	return true
}

// onDisk says what is wrong with a body that an entry names: nothing if it, or a tombstone for it, is there.
func onDisk(log *wal.Log, c segment.Commit) error {
	r, err := log.OpenBody(c)
	if errors.Is(err, wal.ErrAbsent) {
		if ok, herr := log.Holds(c); ok || herr != nil {
			return herr
		}
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}
