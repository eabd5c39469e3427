package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/admin"
	"weida/broker/client"
	"weida/broker/wire"
	"weida/fuzz/internal/history"
)

// recorder writes the history of a run, counts, and has it judged as it grows.
type recorder struct {
	*history.Writer
	sessions atomic.Int64
	broken   atomic.Int64

	judge *history.Checker // guarded by the writer

	mu    sync.Mutex
	c     counts         // guarded by mu
	holds map[uint64]int // guarded by mu; messages in a queue, about, by uid
}

// counts are what the live line and the table say.
type counts struct {
	sent, acked, accepted, below, refused, unknown int
	delivered, settled                             int
}

// Brief queues have few enough operations for one order of them to be looked for; what is not decided in time counts as
// not judged.
const (
	linearMax  = 250
	linearTime = 5 * time.Second
)

// newRecorder begins the history of a run in a directory. One file holds all of it: one process is everybody.
func newRecorder(dir string, heal time.Duration) (h *recorder, err error) {
	h = &recorder{holds: make(map[uint64]int)}
	h.judge = history.New(history.Options{HealMax: heal, LinearMax: linearMax, LinearTime: linearTime, Pictures: dir})
	h.Writer, err = history.NewWriter(filepath.Join(dir, "history"), "run", func(l *history.Line) {
		h.judge.Add(l)
		h.broken.Store(int64(h.judge.Broken()))
	})
	return h, err
}

func (h *recorder) count(change func(*counts)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.c)
}

func (h *recorder) counts() counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.c
}

// backlog is how many messages a queue holds, about.
func (h *recorder) backlog(q *queue) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds[q.uid]
}

func (h *recorder) hold(q *queue, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds[q.uid] += n
}

// sent notes that a message is about to be handed to a client, and returns what names this sending.
func (h *recorder) sent(m *message) uint64 {
	h.count(func(c *counts) { c.sent++ })
	ref := h.Ref()
	h.Note(&history.Publish{Ref: ref, Queue: m.queue.id(), Message: m.Message, Stream: m.stream, Want: history.Of(m.want)})
	return ref
}

// refused notes that a client did not take a message.
func (h *recorder) refused(ref uint64, err error) {
	h.count(func(c *counts) { c.refused++ })
	a := &history.Answer{Ref: ref, Outcome: client.Refused, Code: wire.ConnectionLost}
	var coded *wire.Error
	if errors.As(err, &coded) {
		a.Code = coded.Code
	}
	h.Note(a)
}

// answered notes what became of a sending.
func (h *recorder) answered(m *message, ref uint64, res client.Result) {
	a := &history.Answer{
		Ref: ref, Outcome: res.Outcome, Evidence: history.Of(res.Evidence), Committed: res.Committed, Offset: res.Offset,
		Term: res.Term,
	}
	if res.Err != nil {
		a.Code = res.Err.Code
	}
	h.Note(a)
	h.count(func(c *counts) {
		switch {
		case res.Outcome == client.Refused:
			c.refused++
		case res.Outcome == client.Indeterminate:
			c.unknown++
		case res.Outcome == client.BelowRequest:
			c.acked, c.below = c.acked+1, c.below+1
		case res.Committed:
			c.acked++
		default:
			c.accepted++
		}
		if res.Committed {
			h.holds[m.queue.uid]++
		}
	})
}

// session is a name for one attachment of one consumer.
func (h *recorder) session() string { return fmt.Sprintf("session %d", h.sessions.Add(1)) }

// delivered notes a delivery.
func (h *recorder) delivered(x *taking, d *delivery, digest history.Digest) {
	h.count(func(c *counts) { c.delivered++ })
	h.Note(&history.Deliver{
		Queue: x.q.id(), Subscription: x.id, Session: x.name, Stored: stored(d.Delivery, digest), Attempt: d.Attempt,
	})
}

// stored is a message as a node showed it.
func stored(d *client.Delivery, digest history.Digest) history.Stored {
	return history.Stored{Offset: d.Offset, Term: d.Term, Message: history.Message{
		Producer: d.Producer, Seq: d.Seq, Length: d.Length, Digest: digest,
	}}
}

// settles notes that a delivery is about to be settled.
func (h *recorder) settles(x *taking, d *delivery) {
	d.ref = h.Ref()
	h.Note(&history.Settle{
		Ref: d.ref, Queue: x.q.id(), Offset: d.Offset, Term: d.Term, Attempt: d.Attempt, Verb: d.verb,
	})
}

// settled notes how that ended.
func (h *recorder) settled(x *taking, d *delivery, fate history.Fate) {
	h.Note(&history.Settled{Ref: d.ref, Fate: fate})
	if fate == history.Done {
		h.count(func(c *counts) { c.settled++ })
		if d.verb != history.Release {
			h.hold(x.q, -1)
		}
	}
}

// changing notes that a queue is about to be made, changed or deleted.
func (h *recorder) changing(name string, do history.Do, replicas int) uint64 {
	ref := h.Ref()
	c := &history.Change{Ref: ref, Name: name, Do: do, Replicas: replicas}
	if do != history.Delete {
		c.Durability = "flushed"
	}
	h.Note(c)
	return ref
}

func (h *recorder) changed(ref uint64, fate history.Fate, uid uint64) {
	h.Note(&history.Changed{Ref: ref, Fate: fate, UID: uid})
}

// faultKinds are the history's names of faults.
var faultKinds = map[kind]history.FaultKind{
	kill: history.Kill, powerOff: history.PowerCut, restart: history.Restart, pause: history.Pause,
	partition: history.Partition, diskfull: history.DiskFull, bitflip: history.DiskFault,
	// What lies aside meanwhile comes back: it costs nothing.
	rollback: history.Kill, emptied: history.Kill, limits: history.Restart,
}

// fault notes that something is about to be done to nodes.
func (h *recorder) fault(f fault, names []string) uint64 {
	ref := h.Ref()
	e := &history.Fault{Ref: ref, Fault: faultKinds[f.Kind], Detail: f.String()}
	for _, i := range f.Nodes {
		e.Nodes = append(e.Nodes, names[i])
	}
	h.Note(e)
	return ref
}

// audit notes everything that is in a queue that nobody uses any more.
func (h *recorder) audit(q *queue, list []history.Stored, live *admin.Live) {
	h.Note(&history.Audit{Queue: q.id(), Messages: list, Final: true, Books: &history.Books{
		In: live.In, Ready: live.Ready, Unsettled: live.Unsettled, Accepted: live.Accepted, Rejected: live.Rejected,
		Purged: live.Purged, Released: live.Released,
	}})
}
