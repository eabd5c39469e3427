// Package control holds the registry of resources, Queue and Connector, and the reconciler that makes
// what it says true.
//
// # What it is for
//
// A State is the deterministic state machine of the control group's log: which resources exist, what is
// wanted of them and what was done. Every mutation is one entry of that log, so its index is the
// resource's version (T-14, T-22).
//
// # What it promises
//
//   - A mutation is taken when it is committed; that says what is wanted, not that it is done (T-23).
//   - Ids, generations and versions only rise and are never used again, not by a resource of the same name
//     either (T-12, T-19).
//   - What carries an expected version is refused when that is stale (T-15).
//   - A deletion is an intent that survives every crash; the record goes last (T-20, T-21).
//   - The Reconciler is idempotent and may be interrupted anywhere.
//
// # Who may call what
//
// One goroutine at a time; nothing here blocks, starts goroutines or reads a clock: time comes with
// commands and steps.
//
// # On failure
//
// A refused command changes nothing and says why with a code of the one error table. A command that
// cannot be decoded is an error; the caller has to stop.
package control
