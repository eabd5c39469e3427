package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

// producing is one producer with an id. Every message has to end as ok, whatever happens to nodes meanwhile.
type producing struct {
	r    *rig
	l    *ledger
	id   string
	want wire.Want
	size int // of bodies, in bytes
	// most is how many messages; 0 is until the context ends.
	most int
	// every is the time from one message to the next; 0 is as many as there are places in the window.
	every time.Duration
	// window is the producer's; 0 is the client's own.
	window int
	// below lets messages end as committed below request.
	below bool
}

// run publishes.
func (p *producing) run(ctx context.Context) {
	if err := p.publish(ctx, p.r.client()); err != nil {
		p.l.fault("producer %s: %v", p.id, err)
	}
}

func (p *producing) publish(ctx context.Context, c *client.Client) error {
	prod, err := c.Producer(p.r.ctx, p.l.queue, client.ProducerOptions{
		ID: p.id, Want: p.want, Patience: hang, Window: p.window,
	})
	if err != nil {
		return err
	}
	for i := 0; (p.most == 0 || i < p.most) && ctx.Err() == nil; i++ {
		m := p.l.next(p.id, p.size, p.want)
		err := prod.Send(p.r.ctx, client.Message{Bytes: p.l.body(m)}, func(res client.Result) {
			p.l.answered(m, res)
			if res.Outcome != client.OK && (!p.below || res.Outcome != client.BelowRequest) {
				p.l.fault("%v ended as %s: %v", m, res.Outcome, res.Err)
			}
		})
		if err != nil {
			return err
		}
		if p.every > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(p.every):
			}
		}
	}
	return prod.Close(p.r.ctx)
}

// consuming is one consumer with a subscription, which accepts whatever comes.
type consuming struct {
	r  *rig
	l  *ledger
	id string
}

// run consumes until ctx ends.
func (k *consuming) run(ctx context.Context) {
	if err := k.consume(ctx, k.r.client()); err != nil {
		k.l.fault("consumer %s: %v", k.id, err)
	}
}

func (k *consuming) consume(ctx context.Context, c *client.Client) error {
	sub, err := c.Consumer(k.r.ctx, k.l.queue, client.ConsumerOptions{Subscription: k.id, Patience: hang})
	if err != nil {
		return err
	}
	defer sub.Close()
	var list []asked
	for d, err := range sub.Deliveries(ctx) {
		if err != nil {
			return err
		}
		body, err := io.ReadAll(d.Body())
		if errors.Is(err, client.ErrBodyGone) {
			continue
		}
		if err != nil {
			return err
		}
		m := k.l.delivered(d, body)
		if m == nil {
			return errors.New("what came is not known")
		}
		if sent, err := k.accept(d, m); err != nil {
			return err
		} else if sent {
			list = append(list, asked{m, d})
		}
		if len(list) >= 64 {
			if list, err = k.flush(sub, list); err != nil {
				return err
			}
		}
	}
	_, err = k.flush(sub, list)
	return err
}

// accept settles a delivery; one whose connection was lost comes again.
func (k *consuming) accept(d *client.Delivery, m *message) (sent bool, err error) {
	k.l.accepts(m)
	err = d.Accept(k.r.ctx)
	var coded *wire.Error
	if errors.As(err, &coded) && coded.Code == wire.StaleSettle {
		return false, nil
	}
	return true, err
}

// asked is a delivery whose settle was sent.
type asked struct {
	m *message
	d *client.Delivery
}

// flush waits for the answers to settles.
func (k *consuming) flush(sub *client.Consumer, list []asked) ([]asked, error) {
	stale, err := sub.Flush(k.r.ctx)
	if err != nil {
		return nil, fmt.Errorf("flush: %w", err)
	}
	type at struct{ offset, attempt uint64 }
	bad := make(map[at]bool)
	for _, s := range stale {
		if s.Err.Code != wire.StaleSettle && s.Err.Code != wire.ConnectionLost {
			return nil, fmt.Errorf("settle offset %d: %w", s.Offset, s.Err)
		}
		bad[at{s.Offset, s.Attempt}] = true
	}
	for _, a := range list {
		k.l.settled(a.m, a.d, !bad[at{a.d.Offset, a.d.Attempt}])
	}
	return list[:0], nil
}

// background runs something until stop is called, which waits for its end.
func (r *rig) background(what ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{}, len(what))
	for _, f := range what {
		go func() {
			f(ctx)
			done <- struct{}{}
		}()
	}
	return func() {
		r.t.Helper()
		cancel()
		for range what {
			<-done
		}
	}
}

// await waits until a ledger's tally is as wanted, or something is wrong.
func (r *rig) await(l *ledger, what string, so func(tally) bool) {
	r.t.Helper()
	late := time.After(hang)
	for {
		c, moved := l.tally()
		l.mu.Lock()
		wrong := len(l.wrong) > 0
		l.mu.Unlock()
		if so(c) || wrong {
			return
		}
		select {
		case <-moved:
			continue
		case <-late:
		case <-r.ctx.Done():
		}
		r.t.Fatalf("queue %s: waited in vain until %s: %+v", l.queue, what, c)
	}
}

// peek looks at everything in a queue.
func (r *rig) peek(c *client.Client, l *ledger) (list []*message) {
	r.t.Helper()
	r.within(hang, "queue "+l.queue+" can be looked at", func() error {
		list = nil
		for d, err := range c.Peek(r.ctx, l.queue, client.PeekOptions{}) {
			if err != nil {
				return err
			}
			body, err := io.ReadAll(d.Body())
			if err != nil {
				return err
			}
			m := l.seen(d.Offset, d.Term, body)
			if m == nil {
				return nil // it is noted
			}
			list = append(list, m)
		}
		return nil
	})
	return list
}

// finish judges what is in a queue, takes everything out, and judges that nothing is left.
func (r *rig) finish(l *ledger) {
	r.t.Helper()
	c := r.client()
	t := l.judge(r.peek(c, l))
	r.t.Logf("queue %s: %+v, %d delivered again", l.queue, t, l.again)
	if r.t.Failed() {
		return
	}
	k := &consuming{r: r, l: l, id: "last"}
	stop := r.background(k.run)
	r.within(hang, "queue "+l.queue+" is empty", func() error {
		if left := l.left(); left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
	stop()
	l.judge(r.peek(c, l))
}
