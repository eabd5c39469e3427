package control

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// life is a script with everything in it: making, changing, deleting with and without messages, making
// again under the same name, and a queue that is deleted before it was ever opened.
func life() []act {
	return []act{
		{always, apply("a", QueueSpec{})},
		{always, apply("b", QueueSpec{Placement: PlacementSpec{Nodes: []string{"elsewhere"}}})},
		{serving("a", 1), put("a", 3)},
		{always, apply("a", QueueSpec{Limits: QueueLimits{Messages: 7}})},
		{ready("a", 2), del("a", Duration(20*time.Second))},
		{always, del("b", 0)},
		{absent("a"), apply("a", QueueSpec{Durability: Written})},
		{serving("a", 1), apply("c", QueueSpec{})},
		{serving("c", 1), put("c", 5)},
		{always, del("c", 0)},
		{absent("c"), func(*world) {}},
	}
}

// TestLifeWithFaults lets every call of a whole life err, before and after its effect, lose its entry, and
// kill the node before and after it (T-20, T-21, T-24). The world checks the order of things in each call.
func TestLifeWithFaults(t *testing.T) {
	for _, consumers := range []bool{true, false} {
		for _, slow := range []bool{true, false} {
			clean := lifeWith(t, consumers, slow, 0, 0)
			if clean.calls < 25 {
				t.Fatalf("only %d calls: %v", clean.calls, clean.trace)
			}
			for f := range faultsEnd {
				for at := 1; at <= clean.calls; at++ {
					if w := lifeWith(t, consumers, slow, at, f); f == dieBefore && w.deaths != 1 {
						t.Fatalf("died %d times at call %d", w.deaths, at)
					}
				}
			}
		}
	}
}

func lifeWith(t *testing.T, consumers, slow bool, at int, f fault) *world {
	w := newWorld(t)
	w.consumers, w.slow, w.at, w.fault, w.script = consumers, slow, at, f, life()
	w.run()
	w.check(len(w.script) == 0, "%d acts left", len(w.script))
	q, ok := w.s.Queue("a")
	uid := q.Metadata.UID
	w.check(ok && len(w.s.Queues()) == 1, "queues left: %+v", w.s.Queues())
	w.check(len(w.disk) == 1 && w.disk[uid] && !w.gone[uid] && w.left[uid] == 0, "the second a shares with the first")
	w.check(q.Status.Phase == Ready && q.Status.ObservedGeneration == 1 && len(q.Status.Conditions) == 0, "%+v", q)
	p := q.Status.Placement[0] // T-32
	w.check(len(q.Status.Placement) == 1 && p.Node == "n-key" && p.Disk == "d1" && p.Number == 1 && p.Owner,
		"placement %+v", q.Status.Placement)
	w.check(w.admitting[uid] && len(w.open) == 1, "a is ready and does not take messages")
	return w
}

// TestLifeWithManyDeaths kills the node again and again: every number of calls between deaths.
func TestLifeWithManyDeaths(t *testing.T) {
	for every := 10; every < 40; every++ { // one that dies sooner does not come to write down anything
		w := newWorld(t)
		w.slow, w.script = every%2 == 0, life()
		for range 3000 {
			if w.at == 0 {
				w.at, w.fault = w.calls+every, dieBefore+fault(w.deaths%2)
			}
			if w.round() && len(w.script) == 0 {
				break
			}
		}
		w.check(len(w.script) == 0, "every %d calls: does not get on", every)
	}
}

// TestDrainEnds tells what users see of a deletion (T-20, W-28).
func TestDrainEnds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		left   uint64
		want   string
		finish int64 // seconds after the deletion
	}{
		{"empty", 0, "Drained", 0},
		{"in time", 4, "Drained", 4},
		{"deadline", 1000, "DrainDeadline", 20},
	} {
		w := newWorld(t)
		w.consumers = true
		w.script = []act{{always, apply("a", QueueSpec{})}, {serving("a", 1), put("a", tc.left)}}
		w.run()
		began, seen := w.now, ""
		del("a", Duration(20*time.Second))(w)
		if q, _ := w.s.Queue("a"); q.Status.Phase != Deleting || q.Status.Conditions[0].Reason != "Draining" {
			t.Errorf("%s: not seen as deleting: %+v", tc.name, q)
		}
		for !w.round() {
			q, ok := w.s.Queue("a")
			if ok && q.Status.Destroying && seen == "" {
				seen = q.Status.Conditions[0].Reason
				if at := w.now - began; at != tc.finish*1000 {
					t.Errorf("%s: draining ended after %d ms", tc.name, at)
				}
				want := fmt.Sprintf("%d messages go with the queue", w.left[q.Metadata.UID])
				if !strings.Contains(q.Status.Conditions[0].Message, want) {
					t.Errorf("%s: %+v", tc.name, q.Status.Conditions)
				}
			}
		}
		if seen != tc.want {
			t.Errorf("%s: draining ended with %q", tc.name, seen)
		}
	}
}

// TestDeadlineBroughtNearer deletes again with a shorter deadline while the queue drains.
func TestDeadlineBroughtNearer(t *testing.T) {
	w := newWorld(t)
	w.script = []act{
		{always, apply("a", QueueSpec{})},
		{serving("a", 1), put("a", 9)},
		{always, del("a", Duration(24*time.Hour))},
		{func(w *world) bool { return len(w.r.node.timers) > 0 }, del("a", Duration(3*time.Second))},
	}
	began := w.now
	w.run()
	if _, ok := w.s.Queue("a"); ok || w.now > began+60_000 {
		t.Errorf("still there, or it took %d ms", w.now-began)
	}
}

// TestRandomLives lets a user do anything at any time while calls err and the node dies, and then holds
// what is there to the registry. WEIDA_RUNS is the number of lives.
func TestRandomLives(t *testing.T) {
	seeds := 300
	if v := os.Getenv("WEIDA_RUNS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}
	for seed := range seeds {
		randomLife(t, uint64(seed))
	}
}

func randomLife(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	w.trace = append(w.trace, fmt.Sprint("seed ", seed))
	w.slow, w.consumers = rnd.IntN(2) == 0, rnd.IntN(2) == 0
	for range 200 {
		if w.at <= w.calls && rnd.IntN(3) == 0 {
			w.at, w.fault = w.calls+1+rnd.IntN(6), fault(rnd.IntN(int(faultsEnd)))
		}
		if rnd.IntN(4) == 0 {
			w.script = append(w.script, act{always, w.anything(rnd)})
		}
		w.round()
		if rnd.IntN(5) == 0 {
			w.r.Wake(rnd.Uint64N(uint64(len(w.log)) + 2))
		}
	}
	w.at = 0
	w.run()
	for _, q := range w.s.Queues() {
		uid := q.Metadata.UID
		if q.Status.ObservedGeneration > 0 {
			w.check(w.disk[uid] && w.admitting[uid], "%+v is not there", q)
		}
		done := q.Status.Phase == Ready && q.Status.ObservedGeneration == q.Metadata.Generation
		w.check(done == (len(q.Spec.Placement.Nodes) == 0), "%+v", q)
		w.check(w.open[uid] == q.Spec.Limits || !done, "open with %+v: %+v", w.open[uid], q)
	}
	for uid := range w.disk {
		// One that was made and then pinned elsewhere, before it was written down, waits for its queue.
		_, ok := w.s.QueueOf(uid)
		w.check(ok, "the group %d is nobody's", uid)
	}
}

// anything is a random doing of a user.
func (w *world) anything(rnd *rand.Rand) func(*world) {
	name := string(rune('a' + rnd.IntN(3)))
	m := Mutation{Verb: Apply, Kind: KindQueue, Name: name, Queue: &QueueSpec{}}
	switch rnd.IntN(7) {
	case 0:
		m.Queue.Limits.Messages = rnd.Uint64N(3)
	case 1:
		m.Queue.Placement.Nodes = []string{"elsewhere"}
	case 2:
		m.Verb = Create
	case 3:
		return func(w *world) {
			if q, _ := w.s.Queue(name); w.admitting[q.Metadata.UID] {
				w.left[q.Metadata.UID] += rnd.Uint64N(4)
			}
		}
	case 4, 5:
		m.Verb, m.Queue = Delete, nil
		if rnd.IntN(2) == 0 {
			m.Drain = new(Duration(rnd.IntN(10)) * Duration(time.Second))
		}
	}
	return func(w *world) { w.user(m) } // a refusal is fine
}
