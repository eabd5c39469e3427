package client

import (
	"context"
	"errors"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// opened is a stream whose first frame was answered.
type opened struct {
	link   *link
	stream *quic.Stream
	reader *wire.Reader
	answer wire.Opened
}

// begin starts a stream with its first frame and reads the answer. Nothing was published or taken when
// it fails.
func (c *Client) begin(ctx context.Context, queue string, patience time.Duration, first wire.Frame) (
	o *opened, err error,
) {
	asked := make(map[*link]bool)
	err = c.do(ctx, queue, true, func(l *link) error {
		asked[l] = true
		o, err = l.open(ctx, first)
		return err
	})
	if err == nil || patience <= 0 || ctx.Err() != nil || !moving(err) && !unserved(err) {
		return o, err
	}
	return c.askAround(ctx, queue, patience, first, asked, err)
}

// says is the frame that starts a stream, and what goes before it.
func (l *link) says(first wire.Frame) []byte {
	var b []byte
	if l.single {
		b = wire.Append(b, &wire.Single{})
	}
	return wire.Append(b, first)
}

func (l *link) open(ctx context.Context, first wire.Frame) (_ *opened, err error) {
	l.begin()
	defer func() {
		if err != nil {
			l.finish()
		}
	}()
	stream, err := l.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, l.unopened(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { abandon(stream) })
	o := &opened{link: l, stream: stream, reader: wire.NewReader(stream)}
	err = o.greet(first)
	if !stop() { // ctx ended, and the stream with it
		return nil, ctx.Err()
	}
	if err != nil {
		abandon(stream)
		return nil, l.unopened(ctx, err)
	}
	return o, nil
}

// finish gives the stream back.
func (o *opened) finish() {
	abandon(o.stream)
	o.link.finish()
}

func (o *opened) greet(first wire.Frame) error {
	if _, err := o.stream.Write(o.link.says(first)); err != nil {
		return err
	}
	f, err := o.reader.Next()
	if err != nil {
		return err
	}
	switch f := f.(type) {
	case *wire.Opened:
		o.answer = *f
		return nil
	case *wire.ErrorFrame:
		return &wire.Error{Code: f.Code, Detail: f.Detail}
	case *wire.Redirect:
		return f.AsError()
	}
	return broke("it opened a stream with %v", f.Type())
}

// ask sends the one frame of a request and leaves the answer to be read.
func (l *link) ask(ctx context.Context, request wire.Frame) (*opened, error) {
	l.begin()
	stream, err := l.conn.OpenStreamSync(ctx)
	if err != nil {
		l.finish()
		return nil, l.unopened(ctx, err)
	}
	o := &opened{link: l, stream: stream, reader: wire.NewReader(stream)}
	if _, err := stream.Write(l.says(request)); err != nil {
		o.finish()
		return nil, l.unanswered(ctx, err)
	}
	_ = stream.Close() // a broker that has read the request may want no more of the stream; its answer tells
	return o, nil
}

// abandon gives a stream back in both directions.
func abandon(s *quic.Stream) {
	s.CancelRead(0)
	s.CancelWrite(0)
}

// unopened says why a stream could not be opened.
func (l *link) unopened(ctx context.Context, err error) error {
	var refused *wire.Error
	var protocol *ProtocolError
	var format *wire.FormatError
	switch {
	case errors.As(err, &refused), errors.As(err, &protocol):
		return err
	case errors.As(err, &format):
		return broke("%v", format)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return &endpoint.UnreachableError{Addr: l.addr, Err: err}
}

// lost says why a stream in use came to its end.
func (l *link) lost(err error) error {
	var format *wire.FormatError
	if errors.As(err, &format) {
		return broke("%v", format)
	}
	return &LostError{Addr: l.addr, Err: err}
}

// unanswered says why a request has no answer.
func (l *link) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return l.lost(err)
}
