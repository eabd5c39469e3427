// Command kill ends a real node with SIGKILL at random moments while everything is done to it that can be done:
// messages of every size are published with and without producer ids, again after a crash, and with every evidence
// that one node gives; consumers accept, release, reject, leave and crash; queues are made, limited, purged, deleted
// and made again. After each kill the node starts on the same directory.
//
// Everything that is asked and answered is an event of one history, and a model of what the history allows is told
// of each. What was confirmed has to be there, once, as it was; what was settled, purged or deleted must not return;
// what was not settled returns with a higher attempt; a queue that is made again shares nothing with the one before;
// versions and generations only rise. What was asked for without an answer may have been done or not, and the model
// says so for each message. Now and then, and at the end, everybody is asked to be quiet and the queues are looked
// through; at the end they are drained, and the files of the stopped node are verified.
//
//	go run ./fuzz/kill --kills 10000
//
// A live line shows how far it is. At the first contradiction it stops, prints the history of what it is about, keeps
// the data directory, what the node said and the last events in kill-artefacts-SEED, and ends with status 1. A seed
// decides load and moments; what the moments hit is the operating system's. `go test ./fuzz/kill` does a few kills;
// WEIDA_KILLS sets how many, WEIDA_SEED repeats a load. The fault model is in docs/explanation/fault-model.md.
package main
