// Package process runs a real node for the suites that kill it: `weida serve` on one node file, life after life.
//
// A Node belongs to one goroutine, but for Alive, which any may ask. A life ends with Kill, Stop or by itself, and with
// the process that started it: a suite that is killed leaves no node behind. Everything that the lives write goes to
// one file, and errors name it. What a suite does with nodes is in fuzz/kill and fuzz/cluster.
package process
