// Command hostile attacks a real node and looks at what that does to somebody else.
//
// A node is started as users start it. A well-behaved client publishes to one queue at a fixed modest rate with
// stored:flushed, and consumes what it publishes. One attack after another runs beside it, each in a process of its
// own, most with a key that the node trusts, some with one that it does not:
//
//	go run ./fuzz/hostile
//	go run ./fuzz/hostile -list
//	go run ./fuzz/hostile -attacks half-open,strangers -passes 5
//
// For each attack a table shows what the good client's publishes and deliveries took before and during it, counted from
// when they were meant to start, so that a stall shows in full; what the node held at most, and after it; and which
// typed refusals the attacker saw. Several passes are interleaved, so that a busy machine hurts all attacks alike. Two
// rows are no attacks: `calm` does nothing, which shows how far the figures wander by themselves, and `burn` only takes
// the processors, which shows what any neighbour on the machine does.
//
// Attackers are mostly somewhere else. Here they share the processors with whom they attack, so they get one of
// them at the lowest priority (-processors, -yield): what the node does for them is measured, and not what they do to
// the machine. An attack waits until others leave the machine alone (-patience), and times in which they do not are not
// judged.
//
// The status is 1 when the good client had an error, a limit did not hold, memory, goroutines, files or connections
// did not come back near the level before, or a p99 more than doubled. Times are not judged where `calm` itself wanders
// by half either. `go test ./fuzz/hostile` plays every attack for a moment and judges all of that but times.
//
// It promises nothing about what it does not try. An attack that finds something is mended beside a directed test in
// package broker; this command stays as it is.
package main
