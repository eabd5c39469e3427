// Package cluster has no code of its own: its tests run clusters of real nodes, each `weida serve` in a process of its
// own, and kill, stop and start them while messages are published and consumed.
//
// A ledger notes what was sent, what was confirmed with which evidence, what was delivered and what was settled, and
// judges it: what was confirmed is there once, as it was sent, in the order of sending; nothing is there that nobody
// sent; an offset names one message; evidence covers what was asked or the outcome is not ok; and as many disks hold
// body and commit record as the evidence says, which is read from the data directories of stopped nodes.
//
//	WEIDA_CLUSTER=1 go test -v ./fuzz/cluster
//	WEIDA_LONG=1 go test -timeout 60m -v ./fuzz/cluster
//
// The first has small counts, the second large ones; without either only the first scenarios run. What a cluster is
// and what it promises is in docs/explanation/architecture.md and docs/explanation/fault-model.md.
package cluster
