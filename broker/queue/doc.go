// Package queue decides which message goes to whom, when it is settled, and what a retry is told.
//
// # What it is for
//
// A State is the deterministic state machine of one queue. It is driven by the queue's log alone: the
// same commands in the same order give the same state, the same effects and the same snapshot on every replica.
//
// # What it promises
//
//   - Offsets are dense and follow the order of commit. One queue, one order.
//   - A message is assigned to one subscription at a time, lowest offset first, and never beyond the
//     subscription's credit, which is an absolute limit: it starts at 0 and the highest one named stands (W-23). One
//     command assigns AssignMax at most; Behind asks for another.
//   - What was settled by accept or reject is never assigned again; what was not is, with the next attempt (W-55).
//   - A settle names offset, attempt and term; one that is not the open delivery changes nothing.
//   - A message that was published is discarded by nobody but who settles it or purges the queue; beyond a limit, new
//     ones are refused (W-27).
//   - A producer's sequence stands for one message: as long as it is at or above the producer's low, a repetition is
//     answered with the offset and term of the first one. What was refused is no outcome and can come again. There is
//     no window of time.
//   - In = ready + unsettled + out by reason, always (Counts).
//
// # Memory
//
// A ready message costs at most 16 bytes of heap, and next to none where messages are alike: they stand in runs in
// which offset, ref and sequence rise together; a run of up to 64 has a column for what differs, as wide as the
// differences. A large message is a run alone, about 150 bytes. A message under delivery, or one that came back, costs
// some 30 bytes more. A producer costs about 200 bytes and 32 for each stretch of sequences that it has not left
// behind, of which it has at most SequencesMax.
//
// # Who may call what
//
// One goroutine at a time has the State; no method blocks. A View may be read by any goroutine while the State goes on.
// Effects alias nothing of the state, but Effect.Large and Message.Large, which are never changed.
//
// # Lifecycle
//
// The zero State is an empty queue. Its snapshot is View.Pieces, which may be written while Apply goes on; a Restorer
// takes it back in pieces. Snapshots carry a version, the first byte; commands their kind.
//
// # On failure
//
// A command that cannot be decoded is an error and changes nothing; the log then holds what this build does not
// understand, and the caller has to stop applying it. A snapshot that no history leads to is refused with the rule that
// it breaks. A panic that starts with "bug:" means that the caller broke a rule of the log, or this package its own.
//
// Dead-lettering, time to live, delays and priorities are not here yet.
package queue
