package main

import (
	"net"
	"sync"
	"time"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// relay stands between a client and the node and keeps what the client said.
type relay struct {
	inside  *net.UDPConn // the client talks to it
	outside *net.UDPConn // it talks to the node

	mu     sync.Mutex
	client net.Addr // guarded by mu
	said   [][]byte // guarded by mu
}

// replayPackets records whole sessions and sends their datagrams again, from where they came and from elsewhere.
func replayPackets(f *foe) {
	f.each(f.Size, func(int) error {
		r, err := f.relay()
		if err != nil {
			return err
		}
		defer r.close()
		c, err := endpoint.Dial(f.ctx, r.inside.LocalAddr().String(), endpoint.DialOptions{Identity: f.id, Trust: f.trust})
		if err != nil {
			return err
		}
		defer c.Close()
		if err := f.recorded(c); err != nil {
			return err
		}
		if err := f.again(r, r.outside); err != nil { // while the session is there
			return err
		}
		c.Close()
		elsewhere, err := net.Dial("udp", f.Listen)
		if err != nil {
			return err
		}
		defer func() { _ = elsewhere.Close() }() // nothing of it is kept
		return f.again(r, elsewhere)
	})
}

// recorded is a session worth to be sent again: each message is stored once, or somebody's counters say so.
func (f *foe) recorded(c *endpoint.Conn) error {
	frames := []wire.Frame{&wire.OpenProducer{Queue: f.Queue, Want: asked}}
	const messages = 10
	for seq := range uint64(messages) {
		frames = append(frames, &wire.Publish{Seq: seq + 1, Low: 1, Body: []byte("once")})
	}
	f.did(messagesSent, messages)
	s, err := f.open(c, frames...)
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	confirmed := uint64(0)
	err = f.read(s, func(x wire.Frame) {
		if e, ok := x.(*wire.EvidenceFrame); ok {
			confirmed += e.Count
		}
	})
	f.did(messagesConfirmed, int(confirmed))
	if err == nil && confirmed != messages {
		f.broken("%d of %d messages were confirmed", confirmed, messages)
	}
	return err
}

// Messages that were sent on purpose, and those whose answer was read: the bait holds no more than the former
// and no fewer than the latter.
const (
	messagesSent      = "messages sent"
	messagesConfirmed = "messages confirmed"
)

func (f *foe) again(r *relay, from net.Conn) error {
	const rounds = 20
	r.mu.Lock()
	said := r.said
	r.mu.Unlock()
	for range rounds {
		for _, b := range said {
			if f.ctx.Err() != nil {
				return nil
			}
			if _, err := from.Write(b); err != nil {
				f.failed(err)
			}
		}
		f.did("datagrams again", len(said))
		f.pause(5 * time.Millisecond)
	}
	return nil
}

func (f *foe) relay() (*relay, error) {
	inside, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	to, err := net.ResolveUDPAddr("udp", f.Listen)
	if err != nil {
		return nil, err
	}
	outside, err := net.DialUDP("udp", nil, to)
	if err != nil {
		return nil, err
	}
	r := &relay{inside: inside, outside: outside}
	f.work.Go(r.out)
	f.work.Go(r.back)
	f.atEnd(r.close)
	return r, nil
}

// close ends both directions; it may be called again.
func (r *relay) close() {
	_ = r.inside.Close()
	_ = r.outside.Close()
}

func (r *relay) out() {
	b := make([]byte, 64<<10)
	for {
		n, from, err := r.inside.ReadFrom(b)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.client = from
		r.said = append(r.said, append([]byte(nil), b[:n]...))
		r.mu.Unlock()
		_, _ = r.outside.Write(b[:n]) // a lost datagram is sent again by the client
	}
}

func (r *relay) back() {
	b := make([]byte, 64<<10)
	for {
		n, err := r.outside.Read(b)
		if err != nil {
			return
		}
		r.mu.Lock()
		to := r.client
		r.mu.Unlock()
		_, _ = r.inside.WriteTo(b[:n], to) // likewise, by the node
	}
}
