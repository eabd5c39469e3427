package main

import (
	"testing"

	"weida/raftstore"
	"weida/wal"
)

// mutation is a rule that is not applied.
type mutation struct {
	name   string
	seeds  uint64 // within which it is noticed, from 1 on
	off    func() (restore func())
	change func(*options)
}

func replicaRule(name string, seeds uint64) mutation {
	return mutation{name: name, seeds: seeds, off: func() func() { return raftstore.SwitchOff(name) }}
}

func logRule(name string, seeds uint64) mutation {
	return mutation{name: name, seeds: seeds, off: func() func() { return wal.SwitchOff(name) }}
}

func worldRule(name string, seeds uint64, change func(*options)) mutation {
	return mutation{name: name, seeds: seeds, change: change}
}

// Each mutation is noticed by the random runs, within as many seeds as are named.
func TestMutations(t *testing.T) {
	for _, m := range []mutation{
		replicaRule("answersWait", 12),
		logRule("truncateRecord", 12),
		logRule("advanceEarly", 12),
		logRule("largeFlush", 12),
		worldRule("overstate", 12, func(o *options) { o.mutate.overstate = 1 }),
		worldRule("keepHeld", 12, func(o *options) { o.mutate.keepHeld = true }),
		worldRule("ignoreFlush", 12, func(o *options) { o.mutate.ignoreFlush = true }),
		worldRule("ignoreDirs", 12, func(o *options) { o.mutate.ignoreDirs = true }),
	} {
		t.Run(m.name, func(t *testing.T) {
			if m.off != nil {
				defer m.off()()
			}
			for seed := uint64(1); seed <= m.seeds; seed++ {
				if out := runSeed(seed, m.change); len(out.problems) > 0 {
					t.Logf("seed %d: %.300s", seed, out.problems[0])
					return
				}
			}
			t.Errorf("%d seeds, and nobody noticed", m.seeds)
		})
	}
}
