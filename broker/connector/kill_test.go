package connector_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"weida/broker/connector"

	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/fsync"
)

// errand is what a child process runs. Its keys are in Keys.
type errand struct {
	Spec            control.ConnectorSpec
	Dir, Keys, Addr string
}

const errandVar = "WEIDA_CONNECTOR_ERRAND"

// TestErrand is a connector in a process of its own, which tells how far it is until it is killed.
func TestErrand(t *testing.T) {
	var e errand
	if err := json.Unmarshal([]byte(os.Getenv(errandVar)), &e); err != nil {
		t.Skip("it is a part of TestKill")
	}
	key, err := endpoint.LoadOrCreateIdentity(fsync.OS(), e.Keys, "client")
	if err != nil {
		t.Fatal(err)
	}
	own, err := endpoint.LoadOrCreateIdentity(fsync.OS(), e.Keys, "node")
	if err != nil {
		t.Fatal(err)
	}
	c := connector.New(connector.Options{
		UID: 7, Spec: e.Spec, Dir: e.Dir, Client: options(e.Addr, key, own), Poll: time.Millisecond,
	})
	go func() {
		for t.Context().Err() == nil {
			fmt.Println(c.Status().Messages)
			connector.Pause(t.Context(), time.Millisecond)
		}
	}()
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// killed runs a connector in a process and kills it once it has moved n messages. It returns what it had told.
func (r *rig) killed(spec control.ConnectorSpec, n uint64) (told uint64) {
	r.t.Helper()
	job, err := json.Marshal(errand{spec, r.dir, r.keys, r.c.Listen})
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.ctx, os.Args[0], "-test.run=^TestErrand$")
	cmd.Env = append(os.Environ(), errandVar+"="+string(job))
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); told < n && lines.Scan(); {
		if told, err = strconv.ParseUint(lines.Text(), 10, 64); err != nil {
			r.t.Errorf("it says %q", lines.Text())
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	return told
}

// A kill -9 in the middle, again and again: a source loses and doubles nothing, as its spec says.
func TestKillSource(t *testing.T) {
	const n = 30_000
	r := newRig(t)
	lines := numbered(1, n)
	r.write("f", text(lines))
	rng := seeded(t)
	for range 5 {
		told := r.killed(sourceSpec(), 1+rng.Uint64N(4000))
		if rng.IntN(2) == 0 {
			_ = os.Remove(r.path(stateName)) // there may be none yet
		}
		if u := uint64(len(r.inQueue())); u < told {
			t.Fatalf("%d lines are in the queue, and %d were confirmed", u, told)
		}
	}
	u := r.run(r.options(sourceSpec()))
	u.untilAt(n)
	u.stop()
	r.holds(1, lines...)
}

// A sink that is killed in the middle has every message whole, some perhaps twice.
func TestKillSink(t *testing.T) {
	const n = 30_000
	r := newRig(t)
	r.publish(numbered(1, n)...)
	rng := seeded(t)
	for range 5 {
		r.killed(sinkSpec(), 1+rng.Uint64N(4000))
	}
	u := r.run(r.options(sinkSpec()))
	for r.left() > 0 {
		if r.ctx.Err() != nil {
			t.Fatalf("%+v", u.Status())
		}
	}
	u.stop()
	t.Logf("%d of %d are there twice", complete(t, r.read("f"), n), n)
}

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
