package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// TestKill kills a real node a few times under everything that can be done to it (D-1, D-17, D-18, T-33; field
// case 6: nats-server 6888). WEIDA_KILLS sets how often, WEIDA_SEED repeats a load.
func TestKill(t *testing.T) {
	o := options{kills: 6, seed: rand.Uint64() >> 16, dir: os.TempDir(), loadMS: 2000}
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
	t.Logf("seed %d; repeat with WEIDA_SEED=%d WEIDA_KILLS=%d go test -run TestKill ./fuzz/kill", o.seed, o.seed, o.kills)
	var list []event
	if o.kills <= 20 {
		o.record = func(e event) { list = append(list, e) }
	}
	c, err := crash(o)
	t.Logf("\n%s", table(o, c))
	if err != nil {
		t.Fatal(err)
	}
	if c.written+c.flushed == 0 {
		t.Fatal("no message was confirmed: the run shows nothing")
	}
	if list != nil {
		t.Run("Lies", func(t *testing.T) { spoil(t, list, o.seed) })
	}
}

// TestKillSeesLoss: a disk that forgets what it was given between two lives is found out, though all that stands on it
// is whole.
func TestKillSeesLoss(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "saved")
	rollBack := func(data string, kills int) error {
		if kills < 2 {
			return nil
		}
		if _, err := os.Stat(saved); err != nil {
			return exec.Command("cp", "-a", data, saved).Run()
		}
		return errors.Join(os.RemoveAll(data), exec.Command("cp", "-a", saved, data).Run())
	}
	o := options{kills: 6, seed: rand.Uint64() >> 16, dir: t.TempDir(), loadMS: 2000, tamper: rollBack}
	_, err := crash(o)
	var found *violation
	if !errors.As(err, &found) {
		t.Fatalf("seed %d: written bytes were taken away, and the check says %v", o.seed, err)
	}
	t.Logf("%.300v", err)
}
