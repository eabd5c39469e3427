// Package history is what a run of a cluster leaves behind, and the judge of it: everything that clients asked for and
// were told, every fault that was done to the nodes, and what their disks held in the end.
//
// A history is a directory of files, one per client, one event per line as JSON. Who writes one notes what it asks for
// before it asks and what it was told after it was told, with the machine's monotonic clock, so that the files of all
// processes of one machine merge into one order. A Checker takes the events in that order, live or from the files, and
// notes what contradicts the rules; its work and its memory are linear in the history. It never guesses: what was
// asked for without an answer may have been done or not. What a fault may cost is decided by the evidence that was
// given and by the faults that were noted, and by nothing else.
//
// A Writer may be used by any goroutine, a Checker by one at a time. Neither starts goroutines. A Writer that cannot
// write keeps the error and gives it back when it is closed; a history that cannot be read is refused as a whole, so
// that a missing piece is never taken for silence.
//
// The rules are in rules.go, the events in event.go. `go run ./fuzz/history DIR` judges a kept history.
package history
