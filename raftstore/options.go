package raftstore

import (
	"runtime"

	"weida/wal"
)

// HostOptions says how a node hosts its groups. Store is required; everything else works when zero.
type HostOptions struct {
	// Store holds the groups' logs. The host does not close it.
	Store *wal.Store
	// Shards is how many goroutines share the groups; GOMAXPROCS if zero.
	Shards int
	// InboxMessages bounds the items that wait in one group's inbox; 4096 if zero.
	InboxMessages int
	// InboxBytes bounds what they cost (Batch.Size); 16 MiB if zero, never less than one batch.
	InboxBytes int64
	// JobWorkers bounds the slow jobs that run at a time, at most one per group; 64 if zero.
	JobWorkers int
	// SnapshotBytes is by how much a group's log, or what it could free, has to grow before its machine
	// is asked for a snapshot; 16 MiB if zero.
	SnapshotBytes int64
	// ParkTicks is after how many ticks without work a group gives its descriptors back; 10 if zero.
	ParkTicks int
	// Node is this node's number, named as leader of the groups it owns; 0 is "unknown".
	Node NodeID
	// Transport reaches the other nodes; without it no replicated group can be opened.
	Transport Transport
	// ElectionTicks is after how many ticks without its leader a replica calls an election, spread to twice that;
	// 15 if zero. One setting for all groups of a node (T-55), and the same on all nodes.
	ElectionTicks int
	// HeartbeatTicks is after how many ticks a leader is heard again; 2 if zero. One setting like ElectionTicks.
	HeartbeatTicks int
	// Transfers is how many snapshots and large bodies that were asked for this node sends at a time; 2 if zero.
	Transfers int
	// TransferBytes is how many bytes of them it sends in a second; 64 MiB if zero.
	TransferBytes int64
	// RoomBytes bounds the inline bodies that all replicas hold together before they can be appended, beyond what each may
	// always hold; 64 MiB if zero.
	RoomBytes int64
	// ScrubBytes is how many bytes of what the logs hold are read again in a second, to find damage; 8 MiB if zero.
	ScrubBytes int64
	// ScrubEvery is after how many ticks at the earliest the next pass over all groups begins; those of a day if zero.
	// The first one begins after a minute, or after as many ticks if they are fewer.
	ScrubEvery int
	// ScrubOff keeps damage from being looked for; what a reader meets is mended all the same.
	ScrubOff bool
	// Retired says whether a group was taken down for good, which is what is answered to those who still ask for it;
	// nil is never. Any goroutine calls it.
	Retired func(GroupID) bool
	// Event receives what an operator should know; nil drops it. Must not block or call the host.
	Event func(Event)
}

// ElectionTicksDefault and HeartbeatTicksDefault are those of HostOptions, in ticks.
const (
	ElectionTicksDefault  = 15
	HeartbeatTicksDefault = 2
)

const (
	// InboxMessagesDefault and InboxBytesDefault bound one group's inbox unless HostOptions say otherwise.
	InboxMessagesDefault = 4096
	InboxBytesDefault    = 16 << 20 // bytes

	defaultJobWorkers    = 64
	defaultSnapshotBytes = 16 << 20
	defaultParkTicks     = 10

	// roundBytesGroup and roundBytesShard bound what one round writes, so that one group's full
	// inbox does not make the others of its shard wait, and a round's memory is bounded.
	roundBytesGroup = 1 << 20
	roundBytesShard = 4 << 20
	// replayBytes bounds what OpenOwner reads of the log at a time.
	replayBytes = 1 << 20
)

func (o HostOptions) withDefaults() HostOptions {
	if o.Store == nil {
		panic("bug: raftstore: HostOptions without a Store")
	}
	setDefault(&o.Shards, runtime.GOMAXPROCS(0))
	setDefault(&o.InboxMessages, InboxMessagesDefault)
	setDefault(&o.InboxBytes, InboxBytesDefault)
	o.InboxBytes = max(o.InboxBytes, MaxBatchBytes)
	setDefault(&o.JobWorkers, defaultJobWorkers)
	setDefault(&o.SnapshotBytes, defaultSnapshotBytes)
	setDefault(&o.ParkTicks, defaultParkTicks)
	setDefault(&o.ElectionTicks, ElectionTicksDefault)
	setDefault(&o.HeartbeatTicks, HeartbeatTicksDefault)
	setDefault(&o.Transfers, defaultTransfers)
	setDefault(&o.TransferBytes, defaultTransferBytes)
	setDefault(&o.RoomBytes, defaultRoomBytes)
	setDefault(&o.ScrubBytes, ScrubBytesDefault)
	setDefault(&o.ScrubEvery, ScrubEveryDefault)
	if o.Event == nil {
		o.Event = func(Event) {}
	}
	return o
}

func setDefault[T int | int64](v *T, def T) {
	if *v < 0 {
		panic("bug: raftstore: negative option")
	}
	if *v == 0 {
		*v = def
	}
}

// OwnerOptions says how a group with one owner is opened. The zero value opens an existing group.
type OwnerOptions struct {
	// Create makes the group if this node does not have it; false refuses with ErrNoSuchGroup.
	Create bool
	// Dissolved says that the log may be that of a replica whose group consists of it alone by now: it becomes an
	// owner's. A replica's log is refused by default. An owner's log is opened as always.
	Dissolved bool
}
