package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// This file is attacks by what stands in frames.

const giant = 1<<62 - 1 // the largest number of the wire

// giantLengths claims sizes that nobody has.
func giantLengths(f *foe) {
	number := binary.BigEndian.AppendUint64(nil, 3<<62|giant)
	of := func(t wire.Type, rest ...byte) []byte { return append([]byte{byte(t)}, rest...) }
	producer := wire.Append(nil, &wire.OpenProducer{Queue: f.Queue, Want: asked})
	consumer := wire.Append(nil, &wire.OpenConsumer{Queue: f.Queue, Credit: giant})
	large := wire.Append(nil, &wire.Publish{Seq: 1, Low: 1, Large: true, Stream: 2, Length: giant})
	firsts := [][]byte{
		of(wire.TypeOpenProducer, number...),
		number,
		of(wire.TypeOpenProducer, append([]byte{9}, number...)...), // a queue name of that length
		append(producer[:len(producer):len(producer)], of(wire.TypePublish, number...)...),
		append(producer[:len(producer):len(producer)], large...),
		append(consumer[:len(consumer):len(consumer)], of(wire.TypeSettle, number...)...),
		wire.Append(consumer[:len(consumer):len(consumer)], &wire.Settle{Offset: giant, Attempt: giant, Term: giant}),
		wire.Append(nil, &wire.OpenPeek{Queue: f.Queue, From: giant, Count: giant}),
	}
	f.each(f.Size, func(int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		for k := 0; f.ctx.Err() == nil; k++ {
			s, err := f.openRaw(c, firsts[k%len(firsts)])
			if err != nil {
				return err
			}
			f.work.Go(func() {
				defer drop(s)
				if err := errors.Join(s.SetReadDeadline(time.Now().Add(time.Second)), f.read(s, nil)); err != nil {
					f.failed(err)
				}
			})
			f.pause(time.Millisecond)
		}
		return nil
	})
}

// replayFrames sends what was answered before: no message may be stored twice, no settle count twice.
func replayFrames(f *foe) {
	f.each(f.Size, func(i int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		if err := f.replayStream(c); err != nil {
			return err
		}
		if err := f.replayProducer(c, fmt.Sprintf("replay-%d", i)); err != nil {
			return err
		}
		return f.replaySettles(c, fmt.Sprintf("replay-%d", i))
	})
}

// replayStream sends one sequence twice on a stream without an id.
func (f *foe) replayStream(c *endpoint.Conn) error {
	m := &wire.Publish{Seq: 1, Low: 1, Body: []byte("once")}
	s, err := f.open(c, &wire.OpenProducer{Queue: f.Queue, Want: asked}, m, m, m)
	if err != nil {
		return err
	}
	defer drop(s)
	evidence := uint64(0)
	err = f.read(s, func(x wire.Frame) {
		if e, ok := x.(*wire.EvidenceFrame); ok {
			evidence += e.Count
		}
	})
	if err == nil && evidence > 1 {
		f.broken("one sequence of a stream was confirmed %d times", evidence)
	}
	return err
}

// replayProducer sends the same messages of a producer again: they keep their offsets.
func (f *foe) replayProducer(c *endpoint.Conn, id string) error {
	frames := []wire.Frame{&wire.OpenProducer{Queue: f.Queue, Producer: id, Want: asked}}
	const messages, rounds = 16, 20
	for range rounds {
		for seq := range uint64(messages) {
			frames = append(frames, &wire.Publish{Seq: seq + 1, Low: 1, Body: []byte("once")})
		}
	}
	s, err := f.open(c, frames...)
	if err != nil {
		return err
	}
	defer drop(s)
	if err := s.Close(); err != nil {
		return err
	}
	offsets := make(map[uint64]uint64)
	return f.read(s, func(x wire.Frame) {
		e, ok := x.(*wire.EvidenceFrame)
		if !ok {
			return
		}
		f.did("messages again", int(e.Count))
		for k := range e.Count {
			was, known := offsets[e.First+k]
			if known && was != e.Offset+k {
				f.broken("sequence %d of producer %s got offset %d, and then %d", e.First+k, id, was, e.Offset+k)
			}
			offsets[e.First+k] = e.Offset + k
		}
	})
}

// replaySettles settles one delivery again and again: it counts once.
func (f *foe) replaySettles(c *endpoint.Conn, id string) error {
	s, err := f.open(c, &wire.OpenConsumer{Queue: f.Queue, Subscription: id, Credit: giant})
	if err != nil {
		return err
	}
	defer drop(s)
	if err := s.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	const again = 50
	done, answers := 0, 0
	return f.read(s, func(x wire.Frame) {
		switch x := x.(type) {
		case *wire.Deliver:
			if answers > 0 || done > 0 {
				return
			}
			var b []byte
			for range again {
				b = wire.Append(b, &wire.Settle{Offset: x.Offset, Attempt: x.Attempt, Term: x.Term, Verb: wire.Accept})
			}
			f.did("settles again", again)
			answers = again
			if _, err := s.Write(b); err != nil {
				f.failed(err)
			}
		case *wire.Settled:
			if x.Code == wire.OK {
				done++
			}
			if answers--; done > 1 {
				f.broken("one delivery was settled %d times", done)
			}
			if answers == 0 {
				s.CancelRead(0)
			}
		}
	})
}

// unreadRefusals makes the node refuse and does not listen.
func unreadRefusals(f *foe) {
	f.flood(&wire.OpenProducer{Queue: f.Queue, Want: asked}, func(b []byte, k uint64) []byte {
		return wire.Append(b, &wire.Publish{Seq: k + 1, Low: 1, Want: wire.Replicated(3, wire.Written)})
	}, func(int) bool { return false })
}

// credits raises a subscription's credit without end.
func credits(f *foe) {
	f.flood(&wire.OpenConsumer{Queue: f.Queue}, func(b []byte, k uint64) []byte {
		return wire.Append(b, &wire.Credit{Limit: k + 1})
	}, func(int) bool { return true })
}

// settleNothing settles deliveries that never were.
func settleNothing(f *foe) {
	f.flood(&wire.OpenConsumer{Queue: f.Queue}, func(b []byte, k uint64) []byte {
		return wire.Append(b, &wire.Settle{Offset: k, Attempt: k%3 + 1, Term: 1, Verb: wire.Accept})
	}, func(i int) bool { return i%2 == 0 })
}

// flood writes frames on one stream each of many connections as fast as they are read, and reads the answers or not.
func (f *foe) flood(first wire.Frame, next func([]byte, uint64) []byte, reads func(i int) bool) {
	const many = 4
	f.each(many*f.Size, func(i int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := f.open(c, first)
		if err != nil {
			return err
		}
		if reads(i) {
			f.work.Go(func() {
				if err := f.read(s, nil); err != nil && f.ctx.Err() == nil {
					f.failed(err)
				}
			})
		}
		var b []byte
		for k := uint64(0); f.ctx.Err() == nil; {
			from := k
			for b = b[:0]; len(b) < 16<<10; k++ {
				b = next(b, k)
			}
			if _, err := s.Write(b); err != nil {
				return err
			}
			f.did("frames", int(k-from))
		}
		return nil
	})
}
