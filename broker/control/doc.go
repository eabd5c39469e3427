// Package control holds the registry of resources, Queue, Connector and Node, says where they are, and
// makes what it says true.
//
// # What it is for
//
// A State is the deterministic state machine of the control group's log: which resources exist, what is
// wanted of them, where they are and what was done. Every mutation is one entry of that log, so its index is
// the resource's version (T-14, T-22). A NodeReconciler compares that with what runs on its node, through a
// NodeRuntime that the node implements, works on the difference and writes down what it found. Where the
// control group is led, a LeaderReconciler decides where things are. A Reconciler is both.
//
// # What it promises
//
//   - A mutation is taken when it is committed; that says what is wanted, not that it is done (T-23).
//   - Ids, generations and versions only rise and are never used again, not by a resource of the same name
//     either (T-12, T-19); nor are the numbers of nodes and the ids of replicas.
//   - What carries an expected version is refused when that is stale (T-15).
//   - The same spec again, defaults filled in, changes nothing (T-17).
//   - Where a replica is, is a decision that stands in the log and names the one before (T-59, X-10). Of two
//     that are made at once one is refused. Its steps are entries too (Step), so it goes on from wherever a
//     crash left it; no step stops at two voters (X-1, X-5, T-36, T-37).
//   - What a step asks of a group is done by the replica that serves it, from its node's own copy of the
//     registry, and only where the group's members show that the copy is not behind them.
//   - A node's replicas are opened from its own copy, without a quorum of the control group too (X-6, T-48).
//   - A deletion is an intent that survives every crash; the record goes last (T-20, T-21). Its steps are:
//     admission stops; consumers drain the queue, until it is empty or the deadline has passed; their streams
//     end and what was unsettled goes back; the registry notes that the data goes (Status.Destroying); the
//     replicas are destroyed; the record is removed. What has Destroying is never opened again.
//   - Nothing is destroyed on doubt: only a replica that a committed entry gave up, by its id. What a node that
//     is away has still to destroy stays on a list until it has (Retired). A replica that was made and is
//     missing is reported and never made anew.
//   - The observed generation rises only after the work is done (T-24).
//   - A reconciler may be interrupted anywhere and forgotten at any time: all that matters is in the
//     registry or on disk. One resource's trouble holds up no other; a step costs what has changed.
//   - A watch from a version gets every later change once and in order, or is told to list again (B-229.3).
//
// # Who may call what
//
// One goroutine at a time, State and reconcilers together; nothing here blocks, starts goroutines or reads
// a clock: time comes with commands and steps. What is returned is the caller's.
//
// # Lifecycle
//
// A State starts empty or from Restore and sees the entries of the log in order. When the log is replayed,
// Reconciler.Load takes up all resources; from then on Applied follows every entry.
//
// # On failure
//
// A refused command changes nothing and says why with a reason. A command or snapshot that cannot be
// decoded is an error; the caller has to stop, for the log then holds what this build does not understand.
// An error of a runtime becomes a condition and is tried again with a bounded back-off. What no controller can
// do is said and left to an operator: an owner whose disk is gone, a group without a majority of its disks, and
// a group that lost the only replica it was being switched to in the moment between its two halves.
//
// # What changes later
//
// Commands and snapshots carry a version; those of older builds are read and judged by the rules of then:
// replay must not make what was refused when it was asked for. Why placements are decided and changed as they
// are stands in docs/decisions/2026-11-30-placement-steps.md.
package control
