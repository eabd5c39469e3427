// Command bench measures weida's parts beside the plain way of doing the same, in one run, on one disk.
//
// It promises comparisons, not records: every table names the baseline that ran interleaved with it, the raw disk is
// probed before and after, samples are medians of five with their extremes, and a file system that cannot lose
// anything (tmpfs) is refused. Files lie in a directory of its own that is removed at the end.
//
// `bench wal` measures the store: flush rounds, appends, memory, reopening after kill -9. `bench pub` measures the
// broker: messages confirmed per second and their latency, between a client and a node that are separate processes,
// beside what QUIC does alone. With --gate either ends with status 1 if a target is missed. Parts that need a process
// of their own run this binary again with a hidden command.
//
// A failing call ends the run with its error; nothing is retried. The design of what is measured is explained in
// docs/explanation/flush-rounds.md and docs/reference/bench.md.
package main
