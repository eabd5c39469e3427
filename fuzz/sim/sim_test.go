package main

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// TestSeeds runs some fixed seeds and one that is new. WEIDA_SEED runs another one, WEIDA_RUNS so many new ones.
func TestSeeds(t *testing.T) {
	seeds := []uint64{98, 1028, 1116, 2003} // each of the first three found something
	fresh := 1
	if s := os.Getenv("WEIDA_SEED"); s != "" {
		seeds, fresh = []uint64{number(t, s)}, 0
	} else if s := os.Getenv("WEIDA_RUNS"); s != "" {
		fresh = int(number(t, s))
	}
	first := rand.Uint64() >> 20
	t.Logf("new seeds from %d on", first)
	for i := range uint64(fresh) {
		seeds = append(seeds, first+i)
	}
	for _, seed := range seeds {
		out := runSeed(seed, nil)
		if len(out.problems) > 0 {
			t.Fatal(out.report(false))
		}
	}
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Two runs of one seed are the same, event by event.
func TestSameSeed(t *testing.T) {
	for _, seed := range []uint64{7, 8} {
		a, b := runSeed(seed, nil), runSeed(seed, nil)
		if a.hash != b.hash || a.stats.events != b.stats.events || a.stats.packets != b.stats.packets {
			for i := range min(len(a.lines), len(b.lines)) {
				if a.lines[i] != b.lines[i] {
					t.Fatalf("seed %d, line %d:\n%s\n%s", seed, i, a.lines[i], b.lines[i])
				}
			}
			t.Fatalf("seed %d: %d and %d events", seed, a.stats.events, b.stats.events)
		}
	}
}
