// Command crash attacks a cluster of real nodes under load and judges every acknowledgement that it gave.
//
//	go run ./fuzz/crash --nodes 3 --queues 20 --duration 5m --faults kill,powercut,partition,pause,bitflip,diskfull \
//	  --fs ext4 --seed N
//
// It starts `weida serve` processes, makes queues of one replica and of several, and lets producers with ids and
// sequences, and consumers that accept, release, reject and crash, work on them, while queues are made, moved and
// deleted and leaders moved. Faults come by a schedule that is a pure function of the seed and the options: kill -9
// and power cuts of one node, a majority or all; pauses; orderly restarts; networks that are split, one way or
// both, or lose packets; full disks; flipped bits. A correct cluster survives all of it: never are more disks
// damaged than a minority, so every loss is a bug. At the end everything is healed, every queue is drained up to a
// marker, the nodes are stopped, and package history judges what everybody was told.
//
// A live line says how far it is. Whatever is wrong ends the command with status 1 and leaves the history, the
// schedule, what the nodes said, their data directories and the command that repeats it in crash-artefacts-SEED; a
// picture of the run, run.svg, is there in any case. The same seed is the same schedule and the same load; what the
// moments hit is the operating system's.
//
// Power cuts, full disks and partitions need root; --target attacks nobody and only loads and judges a cluster of one's
// own. The page docs/how-to/attack-a-cluster.md shows all of it.
package main
