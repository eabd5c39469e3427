package broker

import (
	"sync"
	"testing"
	"time"

	"weida/broker/wire"
)

// deletes asks for the deletion of demo without draining and waits until its record is away, while
// clients keep their connections.
func (r *rig) deletes() {
	r.t.Helper()
	r.change(remove("demo", 0))
	r.gone("demo")
}

// A consumer that reads nothing cannot hold up a deletion (W-28).
func TestDeletionPastAnUnreadingConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	body := string(pattern(60 << 10))
	for seq := uint64(1); seq <= 400; seq++ {
		p.put(seq, body)
	}
	r.consumer("s", 1000)
	r.deletes()
}

// A producer that reads no answers cannot hold up a deletion (W-28).
func TestDeletionPastAnUnreadingProducer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	p.flood(func(seq uint64) wire.Frame {
		return &wire.Publish{Seq: seq, Low: 1, Want: wire.Replicated(3, wire.Written)}
	})
	r.deletes()
}

// A large body that comes as slowly as is allowed cannot hold up a deletion (W-28).
func TestDeletionPastASlowBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	const n = 1 << 30
	s := p.large(1, n)
	stop := make(chan struct{})
	var feeding sync.WaitGroup
	defer feeding.Wait()
	defer close(stop)
	feeding.Go(func() {
		piece := wire.Append(nil, &wire.BodyHead{Length: n})
		for {
			if _, err := s.Write(piece); err != nil {
				return // nobody reads it any more
			}
			piece = make([]byte, bodyPace)
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
			}
		}
	})
	for r.node.counters.bodyBytes.Load() == 0 { // until it is being read
		select {
		case <-r.ctx.Done():
			t.Fatal("the body is not read")
		case <-time.After(time.Millisecond):
		}
	}
	r.deletes()
	p.refused(1, wire.QueueDeleted)
	p.end(wire.QueueDeleted)
}

// Messages whose bodies never come cannot hold up a deletion (W-28).
func TestDeletionPastBodiesThatDoNotCome(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.MessageMax = 1 << 20 })
	p := r.producer(wire.Stored(wire.Written))
	var all []wire.Frame
	for seq := uint64(1); seq <= 100; seq++ {
		all = append(all, &wire.Publish{Seq: seq, Low: 1, Large: true, Stream: 4*seq + 2, Length: 2 << 20})
	}
	p.send(all...)
	p.refused(1, wire.TooLarge)
	r.deletes()
}

// A consumer that ends its side and reads nothing gives back what it had.
func TestLeavingWithDeliveriesUnread(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.producer(wire.Stored(wire.Written))
	body := string(pattern(60 << 10))
	for seq := uint64(1); seq <= 400; seq++ {
		p.put(seq, body)
	}
	first := r.consumer("s", 1000)
	frame[*wire.Deliver](first)
	if err := first.stream.Close(); err != nil {
		t.Fatal(err)
	}
	second := r.consumer("t", 10)
	second.get(0, 2, body)
}
