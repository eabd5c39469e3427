package main

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// This file is attacks before a connection is there, and by the number of connections.

// deaf is a socket that lets nothing in but the node's demand to prove the address, and says nothing once it is mute.
type deaf struct {
	net.PacketConn
	mute atomic.Bool
}

func (d *deaf) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := d.PacketConn.ReadFrom(b)
		const retry = 0xf0 // long header, fixed bit, type 3
		if err != nil || n > 0 && b[0]&0xf0 == retry {
			return n, from, err
		}
	}
}

func (d *deaf) WriteTo(b []byte, to net.Addr) (int, error) {
	if d.mute.Load() {
		return len(b), nil
	}
	return d.PacketConn.WriteTo(b, to)
}

// halfOpen begins handshakes and never goes on with them.
func halfOpen(f *foe) {
	const at, hold = 64, time.Second
	f.each(f.Size, func(int) error {
		to, err := net.ResolveUDPAddr("udp", f.Listen)
		if err != nil {
			return err
		}
		udp, err := net.ListenUDP("udp", nil)
		if err != nil {
			return err
		}
		socket := &deaf{PacketConn: udp}
		t := &quic.Transport{Conn: socket}
		ctx, cancel := context.WithCancel(context.Background())
		for range at {
			f.work.Go(func() {
				conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{endpoint.ALPNMessaging}} //nolint:gosec // a foe
				if c, err := t.Dial(ctx, to, conf, &quic.Config{}); err == nil {
					f.broken("a handshake ended that never heard the node")
					_ = c.CloseWithError(0, "")
				}
			})
		}
		f.did("handshakes begun", at)
		f.pause(hold)
		socket.mute.Store(true) // so that the node is not told that they are given up
		cancel()
		return errors.Join(t.Close(), udp.Close())
	})
}

// strangers come with keys that nobody trusts, without any, and with another protocol.
func strangers(f *foe) {
	f.each(f.Size, func(i int) error {
		f.did("handshakes", 1)
		if i%2 == 0 {
			return f.strange()
		}
		to, err := net.ResolveUDPAddr("udp", f.Listen)
		if err != nil {
			return err
		}
		conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{endpoint.ALPNMessaging}} //nolint:gosec // a foe
		if i%4 == 1 {
			conf.NextProtos = []string{"h3"}
		}
		return f.comeIn(to, conf)
	})
}

// strange is a key that the node does not trust.
func (f *foe) strange() error {
	c, err := endpoint.Dial(f.ctx, f.Listen, endpoint.DialOptions{Identity: f.stranger, Trust: f.trust})
	if err != nil {
		return err
	}
	defer c.Close()
	return f.mustBeOut(c.Conn)
}

func (f *foe) comeIn(to net.Addr, conf *tls.Config) error {
	udp, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	defer func() { _ = udp.Close() }() // nothing of it is kept
	t := &quic.Transport{Conn: udp}
	defer func() { _ = t.Close() }() // likewise
	c, err := t.Dial(f.ctx, to, conf, &quic.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseWithError(0, "") }() // likewise
	return f.mustBeOut(c)
}

// mustBeOut uses a connection whose client has finished its part of the handshake: the node must not have.
func (f *foe) mustBeOut(c *quic.Conn) error {
	s, err := c.OpenStreamSync(f.ctx)
	if err != nil {
		return f.away(err)
	}
	if _, err := s.Write(wire.Append(nil, &wire.OpenPeek{Queue: f.Queue, Count: 1})); err != nil {
		return f.away(err)
	}
	x, err := wire.NewReader(s).Next()
	if err == nil {
		f.broken("a stranger was answered with %v", x.Type())
	}
	return f.away(err)
}

// away makes a refusal after the client's handshake look like one within it.
func (f *foe) away(err error) error {
	if err == nil {
		return nil
	}
	return &endpoint.UnreachableError{Addr: f.Listen, Err: err}
}

// noise sends datagrams that are no packets, or packets of nobody.
func noise(f *foe) {
	const each, rate = 100, 10_000
	f.each(1, func(int) error {
		c, err := net.Dial("udp", f.Listen)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }() // nothing of it is kept
		firsts := []byte{0x40, 0xc0, 0xd0, 0xe0, 0xf0, 0x80, 0x00}
		b := make([]byte, 1400)
		next := time.Now()
		for f.ctx.Err() == nil {
			for range each {
				for i := range b[:64] {
					b[i] = byte(rand.Uint32())
				}
				b[0] = firsts[rand.IntN(len(firsts))] | byte(rand.IntN(16))
				if rand.IntN(2) == 0 {
					copy(b[1:], []byte{0, 0, 0, 1, 8}) // a version that the node speaks
				}
				if _, err := c.Write(b[:1+rand.IntN(len(b))]); err != nil {
					f.failed(err) // the kernel had no room for it
				}
			}
			f.did("datagrams", each)
			next = next.Add(each * time.Second / rate)
			f.pause(time.Until(next))
		}
		return nil
	})
}

// crowd holds as many connections as its key gets, and goes on asking for more.
func crowd(f *foe) {
	f.each(min(16*f.Size, 128), func(int) error {
		c, err := f.dial()
		if err != nil {
			f.pause(time.Second)
			return err
		}
		select {
		case <-c.Context().Done(): // the node says so once it knows whose it is
			f.pause(time.Second)
			return context.Cause(c.Context())
		case <-time.After(200 * time.Millisecond):
		case <-f.ctx.Done():
		}
		return nil
	})
}

// vanish holds connections with streams and messages under way. How it ends is not its own doing.
func vanish(f *foe) {
	f.each(8*f.Size, func(i int) error {
		c, err := f.dial()
		if err != nil {
			return err
		}
		for range 8 {
			if _, err := f.open(c, &wire.OpenConsumer{Queue: f.Queue, Credit: giant}); err != nil {
				return err
			}
			if _, err := f.open(c, &wire.OpenProducer{Queue: f.Queue, Want: asked}); err != nil {
				return err
			}
		}
		<-f.ctx.Done()
		return nil
	})
}
