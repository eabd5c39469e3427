package main

import (
	"testing"

	"weida/raftstore"
	"weida/wal"
)

// mutation is a rule that is not applied.
type mutation struct {
	name   string
	off    func() (restore func())
	change func(*options)
}

func replicaRule(name string) mutation {
	return mutation{name: name, off: func() func() { return raftstore.SwitchOff(name) }}
}

func logRule(name string) mutation {
	return mutation{name: name, off: func() func() { return wal.SwitchOff(name) }}
}

func worldRule(name string, change func(*options)) mutation {
	return mutation{name: name, change: change}
}

// seedsToCatch bounds the seeds that a mutation may survive.
const seedsToCatch = 40

// Each mutation is noticed by the random runs, within a fixed number of seeds.
func TestMutations(t *testing.T) {
	for _, m := range []mutation{
		replicaRule("answersWait"),
		replicaRule("truncatedAnswers"),
		replicaRule("hardWait"),
		replicaRule("gate"),
		replicaRule("incarnation"),
		replicaRule("firstEntry"),
		replicaRule("forgetLeader"),
		replicaRule("quietEqual"),
		replicaRule("tombstones"),
		replicaRule("bodyProof"),
		replicaRule("installBodies"),
		replicaRule("installFlush"),
		replicaRule("handOver"),
		replicaRule("decided"),
		logRule("truncateRecord"),
		logRule("flushedVoid"),
		logRule("advanceEarly"),
		logRule("recoverFlush"),
		logRule("createDirFlush"),
		logRule("largeFlush"),
		logRule("sealFlush"),
		worldRule("overstate", func(o *options) { o.mutate.overstate = 1 }),
		worldRule("ignoreFlush", func(o *options) { o.mutate.ignoreFlush = true }),
		worldRule("ignoreDirs", func(o *options) { o.mutate.ignoreDirs = true }),
		worldRule("staleFrames", func(o *options) { o.mutate.staleFrames = true }),
	} {
		t.Run(m.name, func(t *testing.T) {
			if m.off != nil {
				defer m.off()()
			}
			for seed := uint64(1); seed <= seedsToCatch; seed++ {
				if out := runSeed(seed, m.change); len(out.problems) > 0 {
					t.Logf("seed %d: %.300s", seed, out.problems[0])
					return
				}
			}
			t.Errorf("%d seeds, and nobody noticed", seedsToCatch)
		})
	}
}
