package client

import (
	"context"

	"weida/broker/wire"
)

// Purged says what a purge did.
type Purged struct {
	Count uint64 // messages that went
	Left  uint64 // messages that stayed, being under delivery
}

// Purge takes every message out of a queue that is not under delivery; what comes meanwhile may go too.
// It is in effect, and flushed, when Purge returns. Errors: *wire.Error, such as wire.UnknownQueue or
// wire.NotAllowed (it needs the role admin); *LostError when nobody knows whether it was done.
func (c *Client) Purge(ctx context.Context, queue string) (Purged, error) {
	if err := checkNames(queue, ""); err != nil {
		return Purged{}, err
	}
	f, err := c.request(ctx, queue, false, &wire.Purge{Queue: queue})
	if err != nil {
		return Purged{}, err
	}
	p, ok := f.(*wire.Purged)
	if !ok {
		return Purged{}, broke("it answered PURGE with %v", f.Type())
	}
	return Purged{p.Count, p.Left}, nil
}

// Unsubscribe ends a subscription for good: what it has unsettled goes back to its place, and a consumer
// that holds it ends. It may be asked for again, also when there is no such subscription. Errors as
// for Purge, but the role client is enough.
func (c *Client) Unsubscribe(ctx context.Context, queue, id string) error {
	return c.done(ctx, queue, id, &wire.Unsubscribe{Queue: queue, Subscription: id})
}

// Retire forgets a producer id and its sequences, and makes room for another; what was under way with the
// id is not recognized afterwards. It may be asked for again, also when there is no such producer. Errors
// as for Purge; wire.ProducerOwned if the id is another identity's.
func (c *Client) Retire(ctx context.Context, queue, producer string) error {
	return c.done(ctx, queue, producer, &wire.Retire{Queue: queue, Producer: producer})
}

func (c *Client) done(ctx context.Context, queue, id string, request wire.Frame) error {
	if err := checkNames(queue, id); err != nil {
		return err
	}
	f, err := c.request(ctx, queue, true, request)
	if err != nil {
		return err
	}
	if _, ok := f.(*wire.Done); !ok {
		return broke("it answered %v with %v", request.Type(), f.Type())
	}
	return nil
}

// request sends one frame and returns the one that answers it. It may be sent twice if that is safe.
func (c *Client) request(ctx context.Context, queue string, safe bool, request wire.Frame) (f wire.Frame, err error) {
	err = c.do(ctx, queue, safe, func(l *link) error {
		f, err = l.request(ctx, request)
		return err
	})
	return f, err
}

func (l *link) request(ctx context.Context, request wire.Frame) (wire.Frame, error) {
	o, err := l.ask(ctx, request)
	if err != nil {
		return nil, err
	}
	defer o.finish()
	defer context.AfterFunc(ctx, func() { abandon(o.stream) })()
	f, err := o.reader.Next()
	if err != nil {
		return nil, l.unanswered(ctx, err)
	}
	switch f := f.(type) {
	case *wire.ErrorFrame:
		return nil, &wire.Error{Code: f.Code, Detail: f.Detail}
	case *wire.Redirect:
		return nil, f.AsError()
	}
	return f, nil
}
