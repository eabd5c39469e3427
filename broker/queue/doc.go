// Package queue decides which message goes to whom and when it is settled.
//
// # What it is for
//
// A State is the deterministic state machine of one queue. It is driven by the queue's log alone: the
// same commands in the same order give the same state and the same effects on every replica.
//
// # What it promises
//
//   - Offsets are dense and follow the order of commit. One queue, one order.
//   - A message is assigned to one subscription at a time, lowest offset first, and never beyond the
//     subscription's credit, which is an absolute limit: the highest one named stands (W-23).
//   - What was settled by accept or reject is never assigned again; what was not is, with the next attempt (W-55).
//   - A settle names offset, attempt and term; one that is not the open delivery changes nothing.
//   - In = present + out by reason, always (Counts).
//   - A ready message costs no memory of its own: messages are kept as runs in which offset and ref
//     rise together.
//
// # Who may call what
//
// One goroutine at a time; no method blocks. Effects and views alias nothing of the caller's.
//
// # On failure
//
// A command that cannot be decoded is an error and changes nothing; the log then holds what this build does not
// understand, and the caller has to stop applying it. Snapshots are checked when they are restored.
//
// Dead-lettering, time to live, delays and priorities are not here yet; commands and snapshots carry a
// version so that they can come.
package queue
