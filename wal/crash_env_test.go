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

// secondCrash is how many crashes there are for one whose recovery is crashed as well.
func secondCrash() int {
	if os.Getenv("WEIDA_FULL") != "" {
		return 1
	}
	return 60
}

// hurry makes the collector run seldom: thousands of small disks are made and thrown away.
func hurry(t testing.TB) {
	was := debug.SetGCPercent(1000)
	t.Cleanup(func() { debug.SetGCPercent(was) })
}
