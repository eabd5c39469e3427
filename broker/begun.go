package broker

import (
	"cmp"
	"encoding/binary"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"weida/broker/control"
	"weida/fsync"
	"weida/raftstore"
	"weida/segment"
)

// begunFile names the replicas that were begun on this node and that the registry does not say are made yet: 8 bytes of
// an id up to which all replicas may have been, for an earlier file was damaged, else 0; 8 of the group and 8 of the
// replica each, big-endian, in that order; and the digest of all. One that an earlier life named, or this one opened,
// and that is not here, was here: it may have voted and confirmed, and is never begun again under its id. The registry
// alone cannot tell, for a queue serves before it is told that its replicas are made.
const begunFile = "begun"

// begunReplica is one of them.
type begunReplica struct{ group, replica uint64 }

// begunSet is that file. Its methods may be called from any goroutine.
type begunSet struct {
	files fsync.FS
	dir   string

	mu    sync.Mutex
	set   map[begunReplica]bool // guarded by mu; whether it may have been made: a life before named it, or it was opened
	asked uint64                // guarded by mu; counts changes of set
	// unknown says that the file was damaged: whatever the registry had placed then may have been begun, which is
	// replicas up to this id.
	unknown bool                // guarded by mu
	below   raftstore.ReplicaID // guarded by mu

	writing sync.Mutex
	written uint64 // guarded by writing; of asked, what the file has
}

// readBegun reads the file of a data directory.
func readBegun(files fsync.FS, dir string, log *slog.Logger) (*begunSet, error) {
	b := &begunSet{files: files, dir: dir, set: make(map[begunReplica]bool)}
	text, err := readSmall(files, dir, begunFile)
	if err != nil || text == nil || b.parse(text) {
		return b, err
	}
	b.unknown = true
	return b, keepDamaged(files, dir, begunFile, text, log, "it said which replicas were begun here before the cluster "+
		"knew; one that is not here now is taken for lost")
}

func (b *begunSet) parse(text []byte) bool {
	n := len(text) - len(segment.Digest{})
	if n < 8 || n%16 != 8 || segment.DigestOf(text[:n]) != segment.Digest(text[n:]) {
		return false
	}
	b.below = raftstore.ReplicaID(binary.BigEndian.Uint64(text))
	for at := 8; at < n; at += 16 {
		b.set[begunReplica{binary.BigEndian.Uint64(text[at:]), binary.BigEndian.Uint64(text[at+8:])}] = true
	}
	return true
}

// has says whether a replica that the registry does not call made may have been made here. newest is the last id that
// was given out.
func (b *begunSet) has(group raftstore.GroupID, id, newest raftstore.ReplicaID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unknown {
		b.unknown, b.below = false, newest
	}
	return id <= b.below || b.set[begunReplica{uint64(group), uint64(id)}]
}

// add names a replica, durably, before anything of it is made; those that over says are over go. Calls at the same time
// share a write.
func (b *begunSet) add(group raftstore.GroupID, id raftstore.ReplicaID, over func(group, replica uint64) bool) error {
	b.mu.Lock()
	if x := (begunReplica{uint64(group), uint64(id)}); !b.set[x] {
		b.set[x] = false
	}
	b.asked++
	mine := b.asked
	b.mu.Unlock()
	b.writing.Lock()
	defer b.writing.Unlock()
	if b.written >= mine {
		return nil
	}
	text, upTo := b.text(over)
	if err := fsync.WriteFileAtomic(b.files, b.dir, begunFile, text); err != nil {
		return err
	}
	b.written = upTo
	return nil
}

// opened says that a replica that add named is made. Where its making failed it is tried again.
func (b *begunSet) opened(group raftstore.GroupID, id raftstore.ReplicaID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := (begunReplica{uint64(group), uint64(id)}); !b.set[x] {
		b.set[x] = true
	}
}

func (b *begunSet) text(over func(group, replica uint64) bool) (text []byte, upTo uint64) {
	b.mu.Lock()
	list, upTo := slices.SortedFunc(maps.Keys(b.set), func(x, y begunReplica) int {
		return cmp.Or(cmp.Compare(x.group, y.group), cmp.Compare(x.replica, y.replica))
	}), b.asked
	text = binary.BigEndian.AppendUint64(nil, uint64(b.below))
	b.mu.Unlock()
	var gone []begunReplica
	for _, x := range list {
		if over(x.group, x.replica) {
			gone = append(gone, x)
			continue
		}
		text = binary.BigEndian.AppendUint64(text, x.group)
		text = binary.BigEndian.AppendUint64(text, x.replica)
	}
	digest := segment.DigestOf(text)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range gone {
		delete(b.set, x)
	}
	return append(text, digest[:]...), upTo
}

// beginning is asked before a replica is opened that the registry does not call made. It refuses one that was begun
// here and is gone, and names one that is to be begun.
func (n *Node) beginning(group raftstore.GroupID, id raftstore.ReplicaID) error {
	here, err := n.store.HasLog(group)
	if err != nil || here {
		return err
	}
	if n.begunHere.has(group, id, n.newestReplica()) {
		return raftstore.ErrNoSuchGroup
	}
	return n.begunHere.add(group, id, n.begunIsOver)
}

// begunIsOver says that the registry tells of a replica itself: it is made, or is none any more. A node whose copy may
// be behind does not know.
func (n *Node) begunIsOver(group, replica uint64) bool {
	if !n.upToDate.Load() {
		return false
	}
	q, ok := n.registry.queueOf(group)
	if !ok {
		return true
	}
	i := slices.IndexFunc(q.Status.Placement, func(p control.Replica) bool { return p.Replica == replica })
	return i < 0 || q.Status.Placement[i].Made
}

// newestReplica is the last id that may have been given out, by this node's copy of the registry.
func (n *Node) newestReplica() raftstore.ReplicaID {
	r := n.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	return raftstore.ReplicaID((r.state.Version()+1)*control.ReplicasPerEntry - 1)
}
