package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

// publisher sends as fast as it is let, until its node dies.
type publisher struct {
	r      *run
	stream int
	rng    *rand.Rand
	want   wire.Want
	client *client.Client
}

// publisher connects one. It draws from the run's randomness, so that the seed decides what it does.
func (r *run) publisher(ctx context.Context) (*publisher, error) {
	r.streams++
	p := &publisher{r: r, stream: r.streams, want: wire.Stored(wire.Written)}
	p.rng = rand.New(rand.NewPCG(r.o.seed, uint64(2+r.streams)))
	if r.rng.IntN(3) == 0 {
		p.want = wire.Stored(wire.Flushed)
	}
	c, err := r.node.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("publisher %d: %w", p.stream, err)
	}
	p.client = c
	return p, nil
}

// send publishes until ctx ends or the connection does. It returns when every message has an outcome; what the node
// had answered before it died is still taken.
func (p *publisher) send(ctx context.Context) error {
	prod, err := p.client.Producer(ctx, queue, client.ProducerOptions{Want: p.want})
	for line := 0; err == nil && ctx.Err() == nil; line++ {
		body := randomBody(p.rng, p.stream, line)
		msg := p.r.sent(p.stream, body)
		m := client.Message{Body: bytes.NewReader(body), Length: int64(len(body))}
		err = prod.Send(ctx, m, func(res client.Result) { p.r.answered(p, msg, res) })
	}
	<-ctx.Done() // the node was killed, or is about to be
	if prod != nil {
		drain, cancel := context.WithTimeout(context.Background(), drainMax)
		defer cancel()
		err = errors.Join(err, prod.Flush(drain))
	}
	p.client.Close()
	return p.unexpected(err)
}

// drainMax is how long answers that are on their way from a dead node are waited for.
const drainMax = 20 * time.Millisecond

// unexpected keeps errors that no kill explains.
func (p *publisher) unexpected(err error) error {
	var protocol *client.ProtocolError
	if errors.As(err, &protocol) {
		return fmt.Errorf("publisher %d: %w", p.stream, err)
	}
	return nil
}

// sent notes a message before it is handed to the client.
func (r *run) sent(stream int, body []byte) *message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.model.send(stream, body)
}

// answered notes how one publish ended.
func (r *run) answered(p *publisher, msg *message, res client.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	switch res.Outcome {
	case client.OK:
		if err = p.evidence(res); err == nil {
			err = r.model.confirm(msg, res.Offset, res.Term, res.Evidence.Persistence == wire.Flushed)
		}
	case client.Refused:
		r.model.refuse(msg)
	case client.Indeterminate:
	case client.BelowRequest:
		err = errors.New("a one-replica queue answered below the request")
	default:
		err = fmt.Errorf("outcome %q", res.Outcome)
	}
	if err != nil {
		r.failed = errors.Join(r.failed, fmt.Errorf("publisher %d, sequence %d: %w", p.stream, res.Seq, err))
	}
}

// evidence judges whether an ok is one: what was asked for, and never less.
func (p *publisher) evidence(res client.Result) error {
	switch {
	case res.Evidence.Level() != "stored" || !res.Committed:
		return fmt.Errorf("asked for %v, answered ok with %v, committed %v", p.want, res.Evidence, res.Committed)
	case !res.Evidence.Covers(p.want):
		return fmt.Errorf("asked for %v, answered ok with %v", p.want, res.Evidence)
	}
	return nil
}

// randomBody is a body that no other equals: mostly short, now and then larger than what lies in the log itself.
func randomBody(rng *rand.Rand, stream, line int) []byte {
	size := 1 + rng.IntN(300)
	switch rng.IntN(400) {
	case 0:
		size = 70_000 + rng.IntN(200_000)
	case 1, 2, 3:
		size = rng.IntN(60_000)
	}
	raw := make([]byte, size*3/4+1)
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	return base64.RawStdEncoding.AppendEncode(fmt.Appendf(nil, "%d/%d/", stream, line), raw)
}

// load lets publishers send for a while and kills the node under them.
func (r *run) load(d time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dialing, stop := context.WithTimeout(ctx, workMax)
	defer stop()
	var wg sync.WaitGroup
	var all []*publisher
	for range 1 + r.rng.IntN(3) {
		p, err := r.publisher(dialing)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	errs := make([]error, len(all))
	for i, p := range all {
		wg.Go(func() { errs[i] = p.send(ctx) })
	}
	time.Sleep(d)
	err := r.struck()
	cancel()
	wg.Wait()
	return errors.Join(append(errs, err, r.failed)...)
}
