package main

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// TestKill kills a real node a few times (D-1). WEIDA_KILLS sets how often, WEIDA_SEED repeats a load.
func TestKill(t *testing.T) {
	o := options{kills: 3, seed: rand.Uint64() >> 16, dir: os.TempDir(), loadMS: 300}
	for name, set := range map[string]func(uint64){
		"WEIDA_KILLS": func(v uint64) { o.kills = int(v) },
		"WEIDA_SEED":  func(v uint64) { o.seed = v },
	} {
		if text := os.Getenv(name); text != "" {
			v, err := strconv.ParseUint(text, 10, 63)
			if err != nil {
				t.Fatal(err)
			}
			set(v)
		}
	}
	t.Logf("seed %d; repeat with WEIDA_SEED=%d WEIDA_KILLS=%d go test -run TestKill ./fuzz/crash", o.seed, o.seed, o.kills)
	c, err := crash(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(summary(o, c))
	if c.written+c.flushed == 0 {
		t.Fatal("no message was confirmed: the run shows nothing")
	}
}
