package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
)

// This file is attacks on what a queue keeps.

// crowdProducers registers producers until no more are taken, and goes on asking.
func crowdProducers(f *foe) {
	var taken, number atomic.Int64
	f.each(16*f.Size, func(int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		for f.ctx.Err() == nil {
			n := number.Add(1)
			id := fmt.Sprintf("%d-%s", n, strings.Repeat("x", wire.IDMax))[:wire.IDMax]
			s, err := f.open(c, &wire.OpenProducer{Queue: f.Queue, Producer: id, Want: asked},
				&wire.Publish{Seq: 1, Low: 1, Body: []byte("x")}, &wire.Publish{Seq: 1 << 60, Low: 1, Body: []byte("x")})
			if err != nil {
				return err
			}
			err = f.firstAnswer(s, func(x wire.Frame) {
				if _, ok := x.(*wire.Opened); ok && taken.Add(1) > queue.ProducersMax {
					f.broken("%d producers with one queue, at most %d", taken.Load(), queue.ProducersMax)
				}
			})
			if err != nil {
				return err
			}
			f.did("producers", 1)
		}
		return nil
	})
}

// crowdSubscriptions makes durable subscriptions until no more are taken, and goes on asking.
func crowdSubscriptions(f *foe) {
	var taken, number atomic.Int64
	f.each(16*f.Size, func(int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		for f.ctx.Err() == nil {
			id := fmt.Sprintf("%d-%s", number.Add(1), strings.Repeat("x", wire.IDMax))[:wire.IDMax]
			s, err := f.open(c, &wire.OpenConsumer{Queue: f.Queue, Subscription: id, Credit: 10})
			if err != nil {
				return err
			}
			err = f.firstAnswer(s, func(x wire.Frame) {
				if _, ok := x.(*wire.Opened); ok && taken.Add(1) > queue.SubscriptionsMax {
					f.broken("%d subscriptions of one queue, at most %d", taken.Load(), queue.SubscriptionsMax)
				}
			})
			if err != nil {
				return err
			}
			f.did("subscriptions", 1)
		}
		return nil
	})
}

// firstAnswer reads one frame and gives the stream up.
func (f *foe) firstAnswer(s *quic.Stream, see func(wire.Frame)) error {
	defer drop(s)
	x, err := wire.NewReader(s).Next()
	if err != nil {
		return err
	}
	f.refusal(x)
	see(x)
	return nil
}

// neverRead attaches consumers that read nothing. Each takes over what the one before it had.
func neverRead(f *foe) {
	f.each(f.Size, func(i int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		for range endpoint.StreamsMax {
			first := &wire.OpenConsumer{Queue: f.Queue, Subscription: fmt.Sprint(i), Credit: giant}
			if _, err := f.open(c, first); err != nil {
				return err
			}
			f.did("consumers", 1)
			f.pause(20 * time.Millisecond) // so that it is given something before the next one comes
		}
		select {
		case <-c.Context().Done():
		case <-time.After(2 * time.Second):
		case <-f.ctx.Done():
		}
		return nil
	})
}

// peeks looks at as much as is shown, all the time; every other one does not read what it asked for.
func peeks(f *foe) {
	f.each(2*f.Size, func(i int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		if i%2 == 1 {
			for range endpoint.StreamsMax {
				if _, err := f.open(c, &wire.OpenPeek{Queue: f.Queue, Count: giant}); err != nil {
					return err
				}
				f.did("peeks not read", 1)
			}
			select {
			case <-c.Context().Done():
			case <-f.ctx.Done():
			}
			return nil
		}
		for f.ctx.Err() == nil {
			s, err := f.open(c, &wire.OpenPeek{Queue: f.Queue, Count: giant})
			if err != nil {
				return err
			}
			messages := 0
			err = f.read(s, func(x wire.Frame) {
				if _, ok := x.(*wire.Deliver); ok {
					messages++
				}
			})
			drop(s)
			f.did("messages peeked at", messages)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// requests asks for what is not there, or not allowed, on as many streams as there are.
func requests(f *foe) {
	firsts := []wire.Frame{
		&wire.Unsubscribe{Queue: f.Queue, Subscription: "nobody"},
		&wire.Retire{Queue: f.Queue, Producer: "nobody"},
		&wire.Purge{Queue: f.Queue},
		&wire.OpenConsumer{Queue: "no such queue"},
		&wire.OpenProducer{Queue: goodQueue, Want: wire.Replicated(5, wire.Flushed)},
	}
	f.each(8*f.Size, func(int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		for k := 0; f.ctx.Err() == nil; k++ {
			s, err := f.open(c, firsts[k%len(firsts)])
			if err != nil {
				return err
			}
			err = f.firstAnswer(s, func(wire.Frame) {})
			f.did("requests", 1)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
