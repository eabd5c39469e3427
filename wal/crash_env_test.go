package wal

import (
	"os"
	"runtime/debug"
	"strconv"
	"testing"
)

// seedOf is the seed of a random test: WEIDA_SEED, or 1 so that an ordinary run repeats.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	return uint64(numberEnv(t, "WEIDA_SEED", 1))
}

// runsOf is how many random runs a test makes: WEIDA_RUNS or few.
func runsOf(t testing.TB, few int) int {
	t.Helper()
	return numberEnv(t, "WEIDA_RUNS", few)
}

func numberEnv(t testing.TB, name string, or int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return or
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, s)
	}
	return n
}

// full reports whether tests are to try every place, which takes minutes, and not a part of them.
func full() bool { return os.Getenv("WEIDA_FULL") != "" }

// secondCrash is how many crashes there are for one whose recovery is crashed as well.
func secondCrash() int {
	if full() {
		return 1
	}
	return 60
}

// sparse says where a test begins and how far apart the places are that it tries of many alike: n, every one with
// WEIDA_FULL=1. The seed moves them.
func sparse(t testing.TB, n int64) (first, stride int64) {
	t.Helper()
	if full() {
		return 0, 1
	}
	return int64(seedOf(t) % uint64(n)), n
}

// hurry makes the collector run seldom: thousands of small disks are made and thrown away.
func hurry(t testing.TB) {
	was := debug.SetGCPercent(1000)
	t.Cleanup(func() { debug.SetGCPercent(was) })
}
