package main

import (
	"math/rand/v2"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// This file is attacks by the number, the size and the pace of streams.

var (
	asked     = wire.Stored(wire.Written)
	halfFrame = []byte{byte(wire.TypeOpenProducer)}
)

// floodStreams opens as many streams as it may, and then as many more as come free.
func floodStreams(f *foe) {
	f.each(f.Size, func(int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		f.fillStreams(c)
		for f.ctx.Err() == nil {
			s, err := f.openRaw(c, halfFrame) // a place is free when the node has given a silent stream up
			if err != nil {
				return err
			}
			f.work.Go(func() {
				if err := f.read(s, nil); err != nil && f.ctx.Err() == nil {
					f.failed(err)
				}
			})
		}
		return nil
	})
}

// fillStreams opens streams of both kinds up to the limit, which has to be there.
func (f *foe) fillStreams(c *endpoint.Conn) {
	n := 0
	for ; n <= endpoint.StreamsMax; n++ {
		s, err := c.OpenStream()
		if err != nil {
			f.failed(err)
			break
		}
		if _, err := s.Write(halfFrame); err != nil {
			f.failed(err)
			break
		}
	}
	f.did("streams", n)
	if n > endpoint.StreamsMax {
		f.broken("%d streams on one connection, at most %d", n, endpoint.StreamsMax)
	}
	for n = 0; n <= endpoint.BodyStreamsMax; n++ {
		s, err := c.OpenUniStream()
		if err != nil {
			break
		}
		if _, err := s.Write(halfFrame); err != nil {
			f.failed(err)
			break
		}
	}
	f.did("body streams", n)
	if n > endpoint.BodyStreamsMax {
		f.broken("%d body streams on one connection, at most %d", n, endpoint.BodyStreamsMax)
	}
}

// openAndReset opens streams of all kinds and resets them before any answer.
func openAndReset(f *foe) {
	firsts := [][]byte{
		halfFrame,
		wire.Append(nil, &wire.OpenProducer{Queue: f.Queue, Want: asked}),
		wire.Append(nil, &wire.OpenConsumer{Queue: f.Queue, Credit: 1}),
		wire.Append(nil, &wire.OpenPeek{Queue: f.Queue, Count: 10}),
		wire.Append(wire.Append(nil, &wire.OpenProducer{Queue: f.Queue, Want: asked}),
			&wire.Publish{Seq: 1, Low: 1, Large: true, Stream: 2, Length: 1 << 20}),
		nil, // a body stream
	}
	f.each(f.Size, func(int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		for f.ctx.Err() == nil {
			first := firsts[rand.IntN(len(firsts))]
			if first == nil {
				s, err := c.OpenUniStream()
				if err != nil { // those that no frame has named keep their places
					f.failed(err)
					continue
				}
				_, err = s.Write(make([]byte, 4<<10))
				s.CancelWrite(7)
				f.did("body streams", 1)
				if err != nil {
					return err
				}
				continue
			}
			s, err := f.openRaw(c, first)
			if err != nil {
				return err
			}
			drop(s)
		}
		return nil
	})
}

// trickled is one stream that gets its bytes one by one.
type trickled struct {
	write func([]byte) error
	left  []byte
}

// trickle keeps streams busy with next to nothing: a byte at a time, of what would be long.
func trickle(f *foe) {
	long := wire.Append(nil, &wire.Publish{Seq: 1, Low: 1, Body: make([]byte, wire.InlineMax)})
	f.each(f.Size, func(int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		var list []trickled
		for k := range endpoint.StreamsMax - 1 {
			s, err := c.OpenStreamSync(f.ctx)
			if err != nil {
				return err
			}
			t := trickled{streamWriter(s), wire.Append(nil, &wire.OpenPeek{Queue: string(make([]byte, wire.QueueMax))})}
			if k%2 == 0 {
				if err := t.write(wire.Append(nil, &wire.OpenProducer{Queue: f.Queue, Want: asked})); err != nil {
					return err
				}
				t.left = long
			}
			list = append(list, t)
			f.did("streams", 1)
		}
		for range endpoint.BodyStreamsMax {
			t, err := f.trickledBody(c)
			if err != nil {
				return err
			}
			list = append(list, t)
		}
		return f.drip(list)
	})
}

// trickledBody announces a body on a producer's stream, and trickles it.
func (f *foe) trickledBody(c *endpoint.Conn) (trickled, error) {
	body, err := c.OpenUniStreamSync(f.ctx)
	if err != nil {
		return trickled{}, err
	}
	const length = 1 << 20
	f.did("body streams", 1)
	write := func(b []byte) error { _, err := body.Write(b); return err }
	if body.StreamID()>>2 == 0 { // one of them is asked for
		_, err = f.open(c, &wire.OpenProducer{Queue: f.Queue, Want: asked},
			&wire.Publish{Seq: 1, Low: 1, Large: true, Stream: uint64(body.StreamID()), Length: length})
	}
	return trickled{write, append(wire.Append(nil, &wire.BodyHead{Length: length}), make([]byte, length)...)}, err
}

func streamWriter(s *quic.Stream) func([]byte) error {
	return func(b []byte) error { _, err := s.Write(b); return err }
}

// drip writes one byte of each until all of them have ended.
func (f *foe) drip(list []trickled) error {
	for f.ctx.Err() == nil {
		open := 0
		for i := range list {
			t := &list[i]
			if len(t.left) == 0 {
				continue
			}
			if err := t.write(t.left[:1]); err != nil {
				f.failed(err)
				t.left = nil
				continue
			}
			t.left = t.left[1:]
			open++
		}
		f.did("bytes", open)
		if open == 0 {
			return nil
		}
		f.pause(10 * time.Millisecond)
	}
	return nil
}

// unfinished pins what a node keeps of a frame that has not come to its end.
func unfinished(f *foe) {
	first := wire.Append(nil, &wire.OpenProducer{Queue: f.Queue, Want: asked})
	first = wire.Append(first, &wire.Publish{Seq: 1, Low: 1, Body: make([]byte, wire.InlineMax)})
	f.each(f.Size, func(int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		for range endpoint.StreamsMax {
			if _, err := f.openRaw(c, first[:len(first)-10]); err != nil {
				return err
			}
		}
		select {
		case <-c.Context().Done():
		case <-f.ctx.Done():
		}
		return nil
	})
}

// namelessBodies sends bodies that nobody asked for, and names bodies that it does not send.
func namelessBodies(f *foe) {
	f.each(f.Size, func(int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		for range endpoint.BodyStreamsMax {
			s, err := c.OpenUniStreamSync(f.ctx)
			if err != nil {
				return err
			}
			f.did("body streams", 1)
			f.work.Go(func() { // until the window is full, and then until the connection ends
				if _, err := s.Write(make([]byte, 1<<20)); err != nil && f.ctx.Err() == nil {
					f.failed(err)
				}
			})
		}
		for k := range uint64(endpoint.StreamsMax) {
			s, err := f.open(c, &wire.OpenProducer{Queue: f.Queue, Want: asked},
				&wire.Publish{Seq: 1, Low: 1, Large: true, Stream: 4*(k+100) + 2, Length: 1 << 20})
			if err != nil {
				return err
			}
			f.work.Go(func() {
				if err := f.read(s, nil); err != nil && f.ctx.Err() == nil {
					f.failed(err)
				}
			})
		}
		select {
		case <-c.Context().Done():
		case <-f.ctx.Done():
		}
		return nil
	})
}
