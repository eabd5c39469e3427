package raftstore

// Event is one thing worth telling an operator.
type Event struct {
	Kind  EventKind
	Group GroupID
	Index Index  // of the snapshot, 0 otherwise
	Node  NodeID // that a frame or snapshot came from, or whose disk it is; 0 otherwise
	Err   error
}

// EventKind names what happened.
type EventKind string

// The kinds of events.
const (
	// GroupReadOnly: the group takes no more proposals until it is opened anew; Err says why.
	GroupReadOnly EventKind = "group_read_only"
	// DiskFull: a proposal was refused for want of space; told once until one succeeds again.
	DiskFull EventKind = "disk_full"
	// DiskFullOver: a proposal was written after DiskFull.
	DiskFullOver EventKind = "disk_full_over"
	// DiskAils: the disk of the node named, which may be this one, has no room or is slow; Err says what.
	DiskAils EventKind = "disk_ails"
	// DiskWell: it is well again.
	DiskWell EventKind = "disk_well"
	// SnapshotTaken: a snapshot is flushed and the log was trimmed as far as it allows.
	SnapshotTaken EventKind = "snapshot_taken"
	// SnapshotFailed: a snapshot could not be written; the log stays as it was and it is tried again later.
	SnapshotFailed EventKind = "snapshot_failed"
	// JobFailed: slow work of a log failed without harm to what is stored; it is tried again later. Told
	// once until a job succeeds.
	JobFailed EventKind = "job_failed"
	// BadFrame: a node sent what this build can't read; nothing of it was used.
	BadFrame EventKind = "bad_frame"
	// SnapshotInstalled: this replica was brought up by a snapshot of the node named.
	SnapshotInstalled EventKind = "snapshot_installed"
	// SnapshotRefused: a snapshot that came was given up; the replica is as it was, and gets another if it needs one.
	SnapshotRefused EventKind = "snapshot_refused"
	// SnapshotNotSent: a snapshot for another replica did not arrive; it is sent again while it is needed.
	SnapshotNotSent EventKind = "snapshot_not_sent"
	// DamageFound: something on the disk is not what was written; Err says what, where and what it means.
	DamageFound EventKind = "damage_found"
	// DamageMended: what was told of by DamageFound is whole again, or nothing needs it any more.
	DamageMended EventKind = "damage_mended"
	// DamageStays: the group could not mend itself; Err says why this replica has to be made anew.
	DamageStays EventKind = "damage_stays"
	// CloseFailed: a log could not be flushed or closed in order.
	CloseFailed EventKind = "close_failed"
)
