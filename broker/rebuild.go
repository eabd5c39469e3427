package broker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"weida/broker/control"
	"weida/fsync"
	"weida/raftstore"
	"weida/segment"
	"weida/wal"
)

// This file is how a replica whose files are damaged leaves its place to another one. What its id has promised is not
// known any more, so it never speaks again:
//
//	opening or running fails ─▶ told once ─▶ Lost in the registry ─▶ set aside ─▶ another id learns ─▶ it votes
//
// The registry refuses the second step where the other voters would be no majority, and for an owner: then nothing
// is moved. All of it goes on from wherever a crash left it.

// Reasons why a replica is given up.
const (
	reasonMissing    = "Missing"    // its directory is gone
	reasonCorrupt    = "Corrupt"    // a file of it is damaged, cut short or gone
	reasonUnreadable = "Unreadable" // the disk does not give a file of it back
	reasonPoisoned   = "Poisoned"   // a flush failed: nobody knows what is on the disk
	reasonForgot     = "Forgot"     // it has less than it has confirmed
)

// damage is why a replica with this error can never serve again, "" if it may: an error that another start, or more
// room, may mend is none.
func damage(err error) string {
	var corrupt *segment.CorruptError
	switch {
	case errors.Is(err, raftstore.ErrNoSuchGroup):
		return reasonMissing
	case errors.Is(err, raftstore.ErrForgot):
		return reasonForgot
	case errors.As(err, &corrupt):
		return reasonCorrupt
	case errors.Is(err, fsync.ErrPoisoned):
		return reasonPoisoned
	case fsync.DeviceFailed(err):
		return reasonUnreadable
	}
	return ""
}

// damages are the replicas that were found damaged in this life of the node.
type damages struct {
	mu    sync.Mutex
	told  map[wal.Aside]bool   // guarded by mu
	count map[string]uint64    // guarded by mu; by reason
	moved map[uint64]time.Time // guarded by mu; when a replica of a group was set aside last
	aside uint64               // guarded by mu; how many were
}

// note counts a damaged replica; false if it was counted before.
func (d *damages) note(a wal.Aside, reason string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told[a] {
		return false
	}
	if d.told == nil {
		d.told, d.count = make(map[wal.Aside]bool), make(map[string]uint64)
	}
	d.told[a] = true
	d.count[reason]++
	return true
}

// lost is the error of a replica here as the reconciler is to take it: one that is damaged can be given up. It is told
// and counted once.
func (n *Node) lost(k *control.Queue, row *control.Replica, err error) error {
	reason := damage(err)
	if reason == "" || n.host.Err() != nil { // where the whole disk fails no replica of it is given up
		return err
	}
	doing := fmt.Sprintf("the replica is given up if the others are a majority: what is left of it is kept in groups/%d, "+
		"set aside under another name, and another replica takes its place here", k.Metadata.UID)
	if row.Owner {
		doing = "it is the only copy: nothing was moved or changed; restore its directory, or delete the queue"
	}
	if n.damages.note(wal.Aside{Group: raftstore.GroupID(k.Metadata.UID), Replica: row.Replica}, reason) {
		file, pos := whereDamaged(err)
		n.c.Log.Error("replica damaged", "queue", k.Metadata.Name, "group", k.Metadata.UID, "replica", row.Replica,
			"reason", reason, "file", file, "position", pos, "doing", doing, "err", err)
	}
	return &control.Trouble{Reason: reason, Lost: !row.Owner, Message: fmt.Sprintf("%v; %s", err, doing)}
}

// whereDamaged is the file and the position in it that an error names.
func whereDamaged(err error) (file string, pos int64) {
	var corrupt *segment.CorruptError
	var failed *fsync.Error
	switch {
	case errors.As(err, &corrupt):
		return cmp.Or(corrupt.Path, fmt.Sprintf("segment %d", uint64(corrupt.At.Segment))), corrupt.At.Pos
	case errors.As(err, &failed):
		return failed.Path, 0
	}
	return "", 0
}

// unset are those of some replicas of a queue that are lost, are on this node and disk, and do not lie aside yet, the
// oldest first: what is in the group's directory is the first one's, for nothing else is made there before.
func (n *Node) unset(group uint64, rows []control.Replica) (list []control.Replica) {
	me, disk := n.Fingerprint().String(), n.disk()
	for _, p := range rows {
		a := wal.Aside{Group: raftstore.GroupID(group), Replica: p.Replica}
		if p.Node == me && p.Disk == disk && p.Lost != "" && !n.store.IsAside(a) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b control.Replica) int { return cmp.Compare(a.Replica, b.Replica) })
	return list
}

// SetAside implements control.NodeRuntime.
func (c *controller) SetAside(k control.Queue, r control.Replica) (bool, error) {
	uid := k.Metadata.UID
	if c.node.store.IsAside(wal.Aside{Group: raftstore.GroupID(uid), Replica: r.Replica}) {
		return true, nil
	}
	if left := c.node.damages.rests(uid, time.Now()); left > 0 {
		return false, fmt.Errorf("replica %d of queue %q is lost, and another one was a moment ago: it is set aside in %v; "+
			"a disk that damages one replica after the other is to be looked at", r.Replica, k.Metadata.Name,
			left.Round(time.Second))
	}
	return false, c.do(uid, func() error { return c.node.setAside(uid) })
}

// rests is for how long a replica of the group is not set aside, because another one was a moment ago.
func (d *damages) rests(group uint64, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, ok := d.moved[group]
	if !ok {
		return 0
	}
	return max(0, asideRest-now.Sub(last))
}

// setAside closes what is open of a group and sets the lost replicas aside that do not lie there yet.
func (n *Node) setAside(group uint64) error {
	n.registry.mu.Lock()
	q, _ := n.registry.state.QueueOf(group)
	rows := q.Status.Placement
	for _, r := range n.registry.state.RetiredOf(group) {
		rows = append(rows, r.Replica)
	}
	n.registry.mu.Unlock()
	list := n.unset(group, rows)
	if len(list) == 0 {
		return nil
	}
	if open := n.open(group); open != nil {
		n.close(open)
	}
	for _, r := range list {
		if err := n.store.SetAside(wal.Aside{Group: raftstore.GroupID(group), Replica: r.Replica}); err != nil {
			return err
		}
		n.damages.set(group)
	}
	return nil
}

// counts are the damaged replicas by reason, and how many were set aside.
func (d *damages) counts() (damaged map[string]uint64, aside uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	damaged = make(map[string]uint64, len(d.count))
	maps.Copy(damaged, d.count)
	return damaged, d.aside
}

// set counts a replica that was set aside.
func (d *damages) set(group uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved == nil {
		d.moved = make(map[uint64]time.Time)
	}
	d.moved[group] = time.Now()
	d.aside++
}

// open is the queue of a group that is open here, nil if it is not.
func (n *Node) open(group uint64) *nodeQueue {
	n.queuesMu.RLock()
	defer n.queuesMu.RUnlock()
	for _, q := range n.queues {
		if uint64(q.id) == group {
			return q
		}
	}
	return nil
}
