package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// TestKillSeesLoss: a disk that forgets what it was given between two lives is found out, though all that stands on it
// is whole.
func TestKillSeesLoss(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "saved")
	rollBack := func(data string) error {
		if _, err := os.Stat(data); err != nil {
			return nil // killed before there was anything
		}
		if _, err := os.Stat(saved); err != nil {
			return exec.Command("cp", "-a", data, saved).Run()
		}
		return errors.Join(os.RemoveAll(data), exec.Command("cp", "-a", saved, data).Run())
	}
	o := options{kills: 20, seed: rand.Uint64() >> 16, dir: t.TempDir(), loadMS: 100, tamper: rollBack}
	_, err := crash(o)
	if err == nil || !strings.Contains(err.Error(), "LOST") {
		t.Fatalf("seed %d: written bytes were taken away, and the check says %v", o.seed, err)
	}
	t.Log(err)
}
