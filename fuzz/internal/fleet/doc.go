// Package fleet makes clusters of real nodes, each `weida serve` in a process of its own, for the suites that hurt
// them: identities, node files, data directories and addresses, and what an administrator may ask of one.
//
// A Fleet belongs to one goroutine; what asks over HTTP, any may call. Nodes are started and ended one by one, with
// package process, and End ends what still runs. What a suite does with a fleet is in fuzz/cluster and fuzz/crash.
package fleet
