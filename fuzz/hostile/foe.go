package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

// orderEnv is where the attacking process finds what to do; without it the command is the harness.
const orderEnv = "WEIDA_HOSTILE_ORDER"

// attacking is what an attacker says once it has begun.
const attacking = "attacking"

// order is what an attacker is told.
type order struct {
	Attack string
	Listen string // of the node
	Admin  string // http://HOST:PORT
	Key    string // the node's fingerprint
	Keys   string // directory of foe.key and stranger.key
	Queue  string // what it may hit besides the node
	Size   int    // how many connections most attacks use; some a multiple
}

// tally is what an attacker did and saw.
type tally struct {
	Did      map[string]uint64 `json:"did"`
	Refusals map[string]uint64 `json:"refusals"` // by name
	Broken   []string          `json:"broken"`   // limits that did not hold
}

func newTally() tally {
	return tally{Did: make(map[string]uint64), Refusals: make(map[string]uint64)}
}

// add counts another pass of the same attack in.
func (t *tally) add(u tally) {
	for _, m := range []struct{ to, from map[string]uint64 }{{t.Did, u.Did}, {t.Refusals, u.Refusals}} {
		for k, v := range maps.All(m.from) {
			m.to[k] += v
		}
	}
	t.Broken = append(t.Broken, u.Broken...)
}

// foe is an attacker.
type foe struct {
	order
	ctx      context.Context // ends with the attack
	id       *endpoint.Identity
	stranger *endpoint.Identity // whom nobody trusts
	trust    *endpoint.Trust
	work     sync.WaitGroup

	mu     sync.Mutex
	tally  tally    // guarded by mu
	closes []func() // guarded by mu; what ends with the attack
}

// attackBy plays an order until in ends, and writes the tally to out.
func attackBy(text string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := &foe{ctx: ctx, tally: newTally()}
	if err := json.Unmarshal([]byte(text), &f.order); err != nil {
		return err
	}
	a, ok := attackNamed(f.Attack)
	if !ok {
		return fmt.Errorf("there is no attack %q", f.Attack)
	}
	if err := f.arm(); err != nil {
		return err
	}
	a.run(f)
	if _, err := fmt.Fprintln(out, attacking); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	cancel()
	f.mu.Lock()
	closes := f.closes
	f.closes = nil
	f.mu.Unlock()
	for _, c := range closes {
		c()
	}
	f.work.Wait()
	return json.NewEncoder(out).Encode(f.tally)
}

func (f *foe) arm() error {
	print, err := endpoint.ParseFingerprint(f.Key)
	if err != nil {
		return err
	}
	f.trust = trustOf(print)
	if f.id, err = endpoint.LoadOrCreateIdentity(fsync.OS(), f.Keys, "foe"); err != nil {
		return err
	}
	f.stranger, err = endpoint.LoadOrCreateIdentity(fsync.OS(), f.Keys, "stranger")
	return err
}

// did counts something that the attacker did.
func (f *foe) did(what string, n int) {
	f.mu.Lock()
	f.tally.Did[what] += uint64(n)
	f.mu.Unlock()
}

// saw counts a refusal.
func (f *foe) saw(name string) {
	f.mu.Lock()
	f.tally.Refusals[name]++
	f.mu.Unlock()
}

// broken notes a limit that did not hold.
func (f *foe) broken(format string, args ...any) {
	f.mu.Lock()
	if len(f.tally.Broken) < 20 {
		f.tally.Broken = append(f.tally.Broken, fmt.Sprintf(format, args...))
	}
	f.mu.Unlock()
}

// atEnd calls c when the attack ends; at once if it has.
func (f *foe) atEnd(c func()) {
	f.mu.Lock()
	over := f.ctx.Err() != nil
	if !over {
		f.closes = append(f.closes, c)
	}
	f.mu.Unlock()
	if over {
		c()
	}
}

// each repeats act on n goroutines until the attack ends. What ends one round is counted and is a reason to begin
// the next.
func (f *foe) each(n int, act func(i int) error) {
	for i := range n {
		f.work.Go(func() {
			for f.ctx.Err() == nil {
				if err := act(i); err != nil && f.ctx.Err() == nil {
					f.failed(err)
					f.pause(5 * time.Millisecond)
				}
			}
		})
	}
}

// pause waits, or until the attack ends.
func (f *foe) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-f.ctx.Done():
	}
}

// failed counts why something ended.
func (f *foe) failed(err error) {
	var away *endpoint.UnreachableError
	var stream *quic.StreamError
	var transport *quic.TransportError
	var app *quic.ApplicationError
	var limit *quic.StreamLimitReachedError
	var idle *quic.IdleTimeoutError
	switch {
	case errors.As(err, &app) && !app.Remote, errors.As(err, &stream) && !stream.Remote: // its own doing
	case errors.As(err, &away) && away.TurnedAway():
		f.saw("key turned away")
	case errors.As(err, &transport) && transport.Remote && transport.ErrorCode == quic.ConnectionRefused:
		f.saw("connection refused")
	case errors.As(err, &transport) && transport.Remote:
		f.saw(fmt.Sprintf("QUIC %v", transport.ErrorCode))
	case errors.As(err, &app) && app.Remote:
		f.saw(fmt.Sprintf("connection closed with %d %s", app.ErrorCode, app.ErrorMessage))
	case errors.As(err, &stream) && stream.Remote && stream.ErrorCode == 0:
		f.saw("stream not read on")
	case errors.As(err, &stream) && stream.Remote:
		f.saw("stream reset: " + named(wire.Code(stream.ErrorCode)))
	case errors.As(err, &limit):
		f.saw("stream limit")
	case errors.As(err, &idle):
		f.saw("silence")
	case errors.Is(err, io.EOF):
		f.saw("stream ended")
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		f.saw("no answer in time")
	default:
		f.saw("other: " + clip(err.Error()))
	}
}

func clip(s string) string { return s[:min(len(s), 60)] }

// named is a code as people know it.
func named(c wire.Code) string { return fmt.Sprintf("E%d %v", uint64(c), c) }

// dial returns a connection with the trusted key, which ends with the attack.
func (f *foe) dial() (*endpoint.Conn, error) {
	c, err := endpoint.Dial(f.ctx, f.Listen, endpoint.DialOptions{Identity: f.id, Trust: f.trust})
	if err != nil {
		return nil, err
	}
	f.did("connections", 1)
	f.atEnd(c.Close)
	return c, nil
}

// open opens a stream with frames on it.
func (f *foe) open(c *endpoint.Conn, frames ...wire.Frame) (*quic.Stream, error) {
	var b []byte
	for _, x := range frames {
		b = wire.Append(b, x)
	}
	return f.openRaw(c, b)
}

func (f *foe) openRaw(c *endpoint.Conn, b []byte) (*quic.Stream, error) {
	s, err := c.OpenStreamSync(f.ctx)
	if err != nil {
		return nil, err
	}
	f.did("streams", 1)
	_, err = s.Write(b)
	return s, err
}

// read takes frames off a stream until it ends, counts the refusals among them and gives each to see, if any.
func (f *foe) read(s *quic.Stream, see func(wire.Frame)) error {
	in := wire.NewReader(s)
	for {
		x, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f.refusal(x)
		if see != nil {
			see(x)
		}
	}
}

func (f *foe) refusal(x wire.Frame) {
	switch x := x.(type) {
	case *wire.ErrorFrame:
		f.saw(named(x.Code))
	case *wire.Refused:
		f.saw(named(x.Code))
	case *wire.Settled:
		if x.Code != wire.OK {
			f.saw(named(x.Code))
		}
	}
}

// drop gives a stream up without a word.
func drop(s *quic.Stream) {
	s.CancelRead(0)
	s.CancelWrite(0)
}
