// Package control holds the registry of resources, Queue and Connector, and the reconciler that makes
// what it says true.
//
// # What it is for
//
// A State is the deterministic state machine of the control group's log: which resources exist, what is
// wanted of them and what was done. Every mutation is one entry of that log, so its index is the
// resource's version (T-14, T-22). A Reconciler compares that with what runs on its node, through a
// Runtime that the node implements, works on the difference and writes down what it found.
//
// # What it promises
//
//   - A mutation is taken when it is committed; that says what is wanted, not that it is done (T-23).
//   - Ids, generations and versions only rise and are never used again, not by a resource of the same name
//     either (T-12, T-19).
//   - What carries an expected version is refused when that is stale (T-15).
//   - The same spec again, defaults filled in, changes nothing (T-17).
//   - A deletion is an intent that survives every crash; the record goes last (T-20, T-21). Its steps are:
//     admission stops; consumers drain the queue, until it is empty or the deadline has passed; their streams
//     end and what was unsettled goes back; the registry notes that the data goes (Status.Destroying); the
//     group is destroyed; the record is removed. What has Destroying is never opened again.
//   - Nothing is destroyed on doubt: only what a committed deletion names by its uid. A group that was made
//     and is missing, or is on another disk, is reported and never made anew.
//   - The observed generation rises only after the work is done (T-24).
//   - The Reconciler may be interrupted anywhere and forgotten at any time: all that matters is in the
//     registry or on disk. One resource's trouble holds up no other; a step costs what has changed.
//
// # Who may call what
//
// One goroutine at a time, State and Reconciler together; nothing here blocks, starts goroutines or reads
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
// An error of the Runtime becomes a condition and is tried again with a bounded back-off.
//
// # What changes later
//
// Commands and snapshots carry a version. A build that allows more, or less, than this one has to raise
// the version of commands and go on judging old ones by the old rules: replay must not make what was
// refused when it was asked for. No history is kept; a watch will be fed from the results of Apply.
package control
