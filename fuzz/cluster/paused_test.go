package cluster

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"weida/broker/admin"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
)

// witness publishes to a queue and has a checker hear all of it.
type witness struct {
	r         *rig
	q         history.Queue
	confirmed atomic.Int64

	mu   sync.Mutex
	last history.Time // guarded by mu
	// judge is guarded by mu.
	judge *history.Checker
}

func newWitness(r *rig, name string) *witness {
	r.t.Helper()
	q, err := r.queue(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return &witness{
		r: r, q: history.Queue{Name: name, UID: q.Metadata.UID}, judge: history.New(history.Options{LinearMax: -1}),
	}
}

func (w *witness) note(who string, e history.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = max(history.Now(), w.last)
	w.judge.Add(&history.Line{T: w.last, Client: who, Event: e})
}

// publish sends one message after the other until ctx ends. A message may be refused, or end as indeterminate: the
// checker knows what that means.
func (w *witness) publish(ctx context.Context, id string) error {
	want := wire.Replicated(2, wire.Flushed)
	p, err := w.r.client().Producer(w.r.ctx, w.q.Name, client.ProducerOptions{ID: id, Want: want, Patience: patience})
	if err != nil {
		return err
	}
	for n := uint64(1); ctx.Err() == nil; n++ {
		body := fmt.Appendf(nil, "%s %d", id, n)
		m := history.Message{Producer: id, Seq: p.Next(), Length: int64(len(body)), Digest: history.DigestOf(body)}
		w.note(id, &history.Publish{Ref: n, Queue: w.q, Message: m, Want: history.Of(want)})
		res, err := p.Publish(w.r.ctx, client.Message{Bytes: body, Seq: m.Seq})
		if err != nil {
			return err
		}
		a := &history.Answer{
			Ref: n, Outcome: res.Outcome, Evidence: history.Of(res.Evidence), Committed: res.Committed,
			Offset: res.Offset, Term: res.Term,
		}
		w.note(id, a)
		if a.Outcome == client.OK {
			w.confirmed.Add(1)
		}
	}
	return p.Close(w.r.ctx)
}

// more waits until some more are confirmed.
func (w *witness) more() {
	w.r.t.Helper()
	goal := w.confirmed.Load() + 20
	w.r.within(hang, "some more are confirmed", func() error {
		if n := w.confirmed.Load(); n < goal {
			return fmt.Errorf("%d of %d", n, goal)
		}
		return nil
	})
}

// audit shows the checker what is in the queue.
func (w *witness) audit() {
	w.r.t.Helper()
	e := &history.Audit{Queue: w.q}
	for d, err := range w.r.client().Peek(w.r.ctx, w.q.Name, client.PeekOptions{}) {
		if err != nil {
			w.r.t.Fatal(err)
		}
		body, err := io.ReadAll(d.Body())
		if err != nil {
			w.r.t.Fatal(err)
		}
		e.Messages = append(e.Messages, history.Stored{Offset: d.Offset, Term: d.Term, Message: history.Message{
			Producer: d.Producer, Seq: d.Seq, Length: d.Length, Digest: history.DigestOf(body),
		}})
	}
	w.note("audit", e)
}

// disks shows the checker what the disks of the stopped nodes hold.
func (w *witness) disks() {
	w.r.t.Helper()
	for _, x := range w.r.nodes {
		o := history.DiskOptions{Node: x.Name, At: history.AtStop, Scratch: w.r.t.TempDir()}
		if err := history.DumpDisk(x.Dir, o, func(e history.Event) { w.note("disks", e) }); err != nil {
			w.r.t.Fatal(err)
		}
	}
}

// Field case 2 (nats-server 7567): two nodes stand still, the third loses its power and comes back; then one stands
// still and another loses its power; again and again, whoever leads. Everything that was confirmed is there, on as
// many disks as was said, and the replicas agree on every entry.
func TestPausedAndCut(t *testing.T) {
	powered(t)
	rng := seeded(t)
	r := poweredRig(t, 3, "ext4", rng)
	r.applyAll(control.QueueSpec{Replicas: 3}, "q")
	w := newWitness(r, "q")
	var work []func(context.Context)
	for _, id := range []string{"p1", "p2"} {
		work = append(work, func(ctx context.Context) {
			if err := w.publish(ctx, id); err != nil {
				t.Errorf("producer %s: %v", id, err)
			}
		})
	}
	stop := r.background(work...)
	w.more()
	for round := range count(4, 40) {
		order := rng.Perm(3)
		a, b, x := r.nodes[order[0]], r.nodes[order[1]], r.nodes[order[2]]
		paused := []*node{a}
		if round%2 == 0 { // nothing is committed while the third loses its power
			paused = append(paused, b)
		}
		for _, p := range paused {
			if err := p.Freeze(); err != nil {
				t.Fatal(err)
			}
		}
		ref := uint64(round) + 1
		w.note("faults", &history.Fault{
			Ref: ref, Fault: history.PowerCut, Nodes: []string{x.Name}, Detail: fmt.Sprint(len(paused), " are paused"),
		})
		r.cut(rng, x)
		w.note("faults", &history.FaultDone{Ref: ref})
		if len(paused) == 2 {
			if err := b.Thaw(); err != nil {
				t.Fatal(err)
			}
		}
		r.start(x)
		w.more() // by the one that lost its power and one that did not
		if err := a.Thaw(); err != nil {
			t.Fatal(err)
		}
		w.more()
	}
	stop()
	r.within(hang, "all replicas hold everything", func() error {
		g, err := r.group(admin.QueueGroup("q"))
		if err == nil && (g.InStep != 3 || g.BehindEntries != 0) {
			err = fmt.Errorf("%d are in step, one is %d entries behind", g.InStep, g.BehindEntries)
		}
		return err
	})
	w.audit()
	r.stop(r.nodes...)
	w.disks()
	report := w.judge.Finish()
	t.Log("\n" + report.Table())
	for i := range report.Safety {
		t.Error(report.Safety[i].Text(nil))
	}
	if report.Rules[history.Held].Judged == 0 || report.Rules[history.Agreement].Judged == 0 {
		t.Error("nothing was compared")
	}
}
