// Command crash kills a real node with SIGKILL at random moments under load, starts it again on the same directory and
// checks that every message it had confirmed is there: byte for byte, at its offset, in order, once; that nothing it
// had refused is there; and that nothing is there which nobody sent.
//
// It promises nothing about timing: a seed decides the load and when to kill, the operating system decides what that
// hits. What it reports as lost is lost. The node is the binary that users run, built once per run; the load comes from
// broker/client in this process.
//
//	go run ./fuzz/crash --kills 10000
//
// A live line shows how far it is. At the first contradiction it stops, keeps the data directory, what the node said
// and the whole history in crash-artefacts-SEED, and ends with status 1. `go test ./fuzz/crash` does a few kills;
// WEIDA_KILLS sets how many, WEIDA_SEED repeats a load. The fault model is in docs/explanation/fault-model.md.
package main
