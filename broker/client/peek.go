package client

import (
	"context"
	"errors"
	"iter"

	"weida/broker/wire"
)

// PeekOptions say what to look at. The zero value is everything that is in the queue.
type PeekOptions struct {
	From  uint64 // lowest offset
	Count uint64 // at most so many messages; no bound if zero
}

// ErrPeeked is a settle of a message that was only looked at.
var ErrPeeked = errors.New("client: a message that was peeked at is nobody's delivery and cannot be settled; " +
	"nothing was changed; consume the queue instead")

// peekPage bounds the messages asked for at once.
const peekPage = 1024

// Peek yields messages of a queue in order of offset, without taking them: nothing changes by it, and
// they cannot be settled (ErrPeeked). A Delivery's Attempt is the number of deliveries made so far. Messages
// that come or go meanwhile may be seen or not. Only the last comes with an error: *wire.Error, such as
// wire.UnknownQueue, or that of the connection, or ctx's. A large body has to be read before the next message
// is asked for.
func (c *Client) Peek(ctx context.Context, queue string, o PeekOptions) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		if err := checkNames(queue, ""); err != nil {
			yield(nil, err)
			return
		}
		from, left := o.From, o.Count
		if left == 0 {
			left = ^uint64(0)
		}
		for left > 0 {
			page := &peek{queue: queue, from: from, count: min(left, peekPage)}
			var end *wire.PeekEnd
			err := c.do(ctx, queue, true, func(l *link) (err error) {
				end, err = page.run(ctx, l, yield)
				return err
			})
			switch {
			case err != nil:
				yield(nil, err)
				return
			case end == nil || !end.More: // nobody wants more, or there is none
				return
			case end.Next <= from:
				yield(nil, broke("a peek from offset %d went on at %d", from, end.Next))
				return
			}
			from, left = end.Next, left-page.seen
		}
	}
}

// peek is one stream that shows messages.
type peek struct {
	queue       string
	from, count uint64
	seen        uint64
}

// run yields what one stream shows; when that is lost, another run goes on from there. No end and no
// error: the caller wants no more.
func (p *peek) run(ctx context.Context, l *link, yield func(*Delivery, error) bool) (*wire.PeekEnd, error) {
	ctx, cancel := context.WithCancel(ctx) // the bodies end with the page
	defer cancel()
	if p.seen == p.count {
		return &wire.PeekEnd{Next: p.from, More: true}, nil
	}
	o, err := l.ask(ctx, &wire.OpenPeek{Queue: p.queue, From: p.from, Count: p.count - p.seen})
	if err != nil {
		return nil, err
	}
	defer o.finish()
	defer context.AfterFunc(ctx, func() { abandon(o.stream) })()
	for {
		f, err := o.reader.Next()
		if err != nil {
			return nil, l.unanswered(ctx, err)
		}
		switch f := f.(type) {
		case *wire.PeekEnd:
			return f, nil
		case *wire.ErrorFrame:
			return nil, &wire.Error{Code: f.Code, Detail: f.Detail}
		case *wire.Redirect:
			return nil, f.AsError()
		case *wire.Deliver:
			if p.seen == p.count || f.Offset < p.from {
				return nil, broke("it answered a peek with offset %d, which was not asked for", f.Offset)
			}
			p.from, p.seen = f.Offset+1, p.seen+1
			if !p.show(ctx, l, f, yield) {
				return nil, nil
			}
		default:
			return nil, broke("it answered a peek with %v", f.Type())
		}
	}
}

func (p *peek) show(ctx context.Context, l *link, f *wire.Deliver, yield func(*Delivery, error) bool) bool {
	d := newDelivery(p.queue, f, &origin{bodies: &l.bodies, life: ctx, lost: l.lost})
	defer d.discard()
	return yield(d, nil)
}
