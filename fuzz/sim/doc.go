// Command sim runs whole clusters in one goroutine, with everything that can go wrong drawn from one seed.
//
// # What it is for
//
// Real raftstore hosts, real logs (wal, segment) on disks in memory that lose power (fsync/memfs) and fail
// (fsync/faultfs), and the real state machine of the queues (broker/queue), three or five nodes of them, a network and
// clients. Ticks, flushes, packets and faults are events of one clock; the same seed gives the same run, event by
// event.
//
//	go run ./fuzz/sim --seeds 2000          many seeds, a progress line, a table at the end
//	go run ./fuzz/sim --seed 17 --verbose   one seed again, with its transcript
//	go run ./fuzz/sim --mutations all       leaves out each rule in turn: how many seeds until it is noticed, and by what
//
// # The fault model
//
// Any of these may happen at any time, to any number of nodes at once, while the faults last:
//
//   - kill -9, also in the middle of a file system call: everything written stays.
//   - power cut: of what was not flushed nothing, all, or any subset of sectors, sizes and names stays, some of the
//     sectors where others belong.
//   - a full disk; a flush that fails once; a disk whose flushes are a thousand times slower.
//   - packets lost, delayed, doubled and reordered; connections cut one way or both; partitions, a bridge, a leader
//     alone with its clients; a transfer cut at any byte; a payload with another body than its commit record names;
//     a producer that sends half of a large body and then nothing.
//   - a node that stands still and goes on; clocks that run at half and at twice the speed, or jump.
//   - producers and consumers that vanish; membership that changes from one to three and back, and by swaps; leadership
//     that is moved.
//
// Disks that forget what they flushed are not among them, nor bytes that rot. What is acknowledged as flushed must
// therefore survive all of it, and a cluster whose faults have ended must go on by itself within a bound: first come
// faults (safety), then all is healed (liveness), then the books are compared.
//
// # What is checked
//
// Checkers know nothing of how the workload came about: they see what producers and consumers were told, what each
// replica applied, and the disks. Rules are numbered in check.go. The evidence oracle opens copies of the disks, as a
// power cut would leave them, at every acknowledgement: as many have to hold the entry and its bodies as it says.
//
// # Who may call what
//
// One goroutine does everything; crypto/rand.Reader is seeded meanwhile, so one process runs one cluster at a time.
//
// # On failure
//
// The seed, the last lines of the transcript, and the command that repeats the run. Rules of the store can be switched
// off, and the world can lie (mutation.go, stories_test.go): each has to be noticed. Each kind of fault is counted when
// it happens (matrix.go), and has to happen.
package main
