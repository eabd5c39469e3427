package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/raftstore"
)

// Replicated evidence over real replicas: every node is a way to the leader, and what is asked is reached with three
// nodes, ends below request or is reached with two, and is refused in bounded time with one.
func TestReplicatedQueue(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	lead := tr.leader()
	for i := range tr.seats { // whichever is asked
		p, err := tr.client(tr.dial.Addrs[i]).Producer(tr.ctx, "far", client.ProducerOptions{
			Want: replicated(3), ID: fmt.Sprint("n", i), // a machine that is busy may have another election
		})
		if err != nil {
			t.Fatal(err)
		}
		if p.Offer() != replicated(3) {
			t.Errorf("the offer is %v", p.Offer())
		}
		r, err := p.Publish(tr.ctx, client.Message{Bytes: []byte("small")})
		if err != nil || r.Outcome != client.OK || r.Evidence != replicated(3) {
			t.Fatalf("by node %d: %+v, %v", i, r, err)
		}
		if err := p.Close(tr.ctx); err != nil {
			t.Error(err)
		}
	}
	tr.large(lead)
	tr.lose((lead + 1) % 3)
	p, err := tr.client(tr.dial.Addrs[lead]).Producer(tr.ctx, "far", client.ProducerOptions{
		Want: replicated(2), ID: "two",
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Publish(tr.ctx, client.Message{Bytes: []byte("x")}); err != nil || r.Evidence != replicated(2) {
		t.Errorf("%+v, %v", r, err)
	}
	r, err := p.Publish(tr.ctx, client.Message{Bytes: []byte("x"), Want: replicated(3), Within: 200 * time.Millisecond})
	if err != nil || r.Outcome != client.BelowRequest || r.Evidence != replicated(2) || r.Err.Code != wire.NotReached {
		t.Errorf("%+v, %v", r, err)
	}
	once, err := tr.client(tr.dial.Addrs[lead]).Producer(tr.ctx, "far", client.ProducerOptions{Want: storedFlushed})
	if err != nil {
		t.Fatal(err)
	}
	tr.lose((lead + 2) % 3)
	// Until the leader notices that it is alone, a message may be on its way for good.
	r, err = once.Publish(tr.ctx, client.Message{Bytes: []byte("x")})
	if err == nil && r.Outcome != client.Indeterminate && r.Outcome != client.Refused {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = tr.client(tr.dial.Addrs[lead]).Producer(tr.ctx, "far", client.ProducerOptions{Want: storedFlushed})
	var refused *wire.Error
	if !errors.As(err, &refused) || refused.Code != wire.NoQuorum {
		t.Errorf("%v", err)
	}
}

// The leadership moves while messages come and go, by order and by the loss of a node: every message is confirmed, is
// in the queue once and in order, and is delivered; a client that is led about and one that knows one node only are no
// different in this (W-42, W-43, W-76, X-3).
func TestLeadershipMovesUnderLoad(t *testing.T) {
	const messages = 3000
	for name, single := range map[string]bool{"aware": false, "single": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t)
			lead := tr.leader()
			other := (lead + 1) % 3
			tr.dial.Single = single
			// The node that is asked stays; the others lead in turn.
			via := tr.dial.Addrs[(lead+2)%3]
			p, err := tr.client(via).Producer(tr.ctx, "far", client.ProducerOptions{Want: replicated(2), ID: "p1"})
			if err != nil {
				t.Fatal(err)
			}
			k, err := tr.client(via).Consumer(tr.ctx, "far", client.ConsumerOptions{Subscription: "s", Credit: 100})
			if err != nil {
				t.Fatal(err)
			}
			var got sync.WaitGroup
			got.Go(func() { tr.consume(k, messages) })
			for i := range messages {
				switch i {
				case messages / 3:
					tr.transfer(lead, other)
				case 2 * messages / 3:
					tr.lose(tr.leader())
				}
				if err := p.Send(tr.ctx, client.Message{Bytes: fmt.Append(nil, i)}, func(r client.Result) {
					if r.Outcome != client.OK || r.Offset != uint64(i) || r.Evidence.Replicas < 2 {
						t.Errorf("message %d: %+v", i, r)
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Close(tr.ctx); err != nil {
				t.Fatal(err)
			}
			got.Wait()
			k.Close()
		})
	}
}

// transfer moves the leadership.
func (tr *trio) transfer(from, to int) {
	tr.t.Helper()
	q := tr.seats[from].q
	if err := q.group.Reconfigure(raftstore.Change{TransferTo: raftstore.ReplicaID(to + 1)}); err != nil {
		tr.t.Fatal(err)
	}
	for tr.leader() == from && tr.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// consume accepts messages until each has come.
func (tr *trio) consume(k *client.Consumer, messages int) {
	attempts := make(map[uint64]uint64)
	for d, err := range k.Deliveries(tr.ctx) {
		if err != nil {
			tr.t.Error(err)
			return
		}
		b, err := io.ReadAll(d.Body())
		if err != nil || string(b) != fmt.Sprint(d.Offset) || d.Attempt <= attempts[d.Offset] {
			tr.t.Errorf("offset %d, attempt %d after %d: %q, %v", d.Offset, d.Attempt, attempts[d.Offset], b, err)
			return
		}
		attempts[d.Offset] = d.Attempt
		_ = d.Accept(tr.ctx) // on a stream that was lost it is stale, and the message comes again
		if len(attempts) == messages {
			return
		}
	}
	tr.t.Errorf("%d of %d messages came", len(attempts), messages)
}

// large publishes a large body by way of another node than the leader, and reads it back.
func (tr *trio) large(lead int) {
	tr.t.Helper()
	c := tr.client(tr.dial.Addrs[(lead+2)%3])
	p, err := c.Producer(tr.ctx, "far", client.ProducerOptions{Want: replicated(3), ID: "large"})
	if err != nil {
		tr.t.Fatal(err)
	}
	body := pattern(1 << 20)
	r, err := p.Publish(tr.ctx, client.Message{Body: bytes.NewReader(body), Length: int64(len(body))})
	if err != nil || r.Outcome != client.OK || r.Evidence != replicated(3) {
		tr.t.Fatalf("%+v, %v", r, err)
	}
	for d, err := range c.Peek(tr.ctx, "far", client.PeekOptions{From: r.Offset}) {
		if err != nil {
			tr.t.Fatal(err)
		}
		if got, err := io.ReadAll(d.Body()); err != nil || !bytes.Equal(got, body) {
			tr.t.Errorf("%d bytes came, %v", len(got), err)
		}
	}
	if err := p.Close(tr.ctx); err != nil {
		tr.t.Error(err)
	}
}

// a leader that is cut off shows nothing while it still takes itself for one: the others may have another by
// then.
func TestStaleLeaderShowsNothing(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	p, err := tr.client().Producer(tr.ctx, "far", client.ProducerOptions{Want: replicated(2), ID: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Publish(tr.ctx, client.Message{Bytes: []byte("old")}); err != nil || r.Outcome != client.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	lead := tr.leader()
	stale := tr.client(tr.dial.Addrs[lead])
	l := tr.seats[lead].q.leadership()
	tr.net.cut(raftstore.NodeID(lead + 1))
	tr.seats[lead].post.set(nil) // it hears of nobody else
	for d, err := range stale.Peek(tr.ctx, "far", client.PeekOptions{}) {
		var refused *wire.Error
		if !errors.As(err, &refused) || refused.Code != wire.LeaderChanged && refused.Code != wire.NoQuorum {
			t.Errorf("it showed %+v, %v", d, err)
		}
	}
	if l.reign != nil {
		<-l.reign.over
	}
}
