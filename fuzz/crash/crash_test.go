package main

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"weida/fuzz/internal/history"
	"weida/fuzz/powercut"
)

// Disks that say that they flushed and did not lose what was confirmed when all lose power, and the run says so: what
// is not found on honest disks is not there.
func TestLyingDisksAreFound(t *testing.T) {
	if os.Getenv("WEIDA_POWERCUT") == "" {
		t.Skip("WEIDA_POWERCUT=1 runs it, as root: it takes half a minute")
	}
	if err := powercut.Available(); err != nil {
		t.Skip(err)
	}
	o := options{
		nodes: 3, queues: 5, duration: 20 * time.Second, fs: "ext4", rate: 200, heal: time.Minute, dir: t.TempDir(),
		kinds: []kind{powerOff}, seed: rand.Uint64() >> 16, lieAt: 5 * time.Second,
	}
	o.plan = []fault{{At: 12 * time.Second, For: time.Second, Kind: powerOff, How: "none", Nodes: []int{0, 1, 2}}}
	o.again = o.repeat()
	t.Logf("seed %d", o.seed)
	if err := o.build(); err != nil {
		t.Fatal(err)
	}
	res, err := attackAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", res.table())
	if res.report.Rules[history.Loss].Broken == 0 {
		t.Fatal("all disks forgot what they had confirmed, and nothing is missing")
	}
}
