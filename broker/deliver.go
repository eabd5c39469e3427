package broker

import (
	"context"
	"errors"
	"io"
	"runtime"

	"github.com/quic-go/quic-go"

	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
	"weida/segment"
	"weida/wal"
)

// delivery writes messages to a stream, of a consumer or of a peek.
type delivery struct {
	session *session
	queue   *nodeQueue
	stream  io.Writer
	peek    bool // what is gone was settled meanwhile
	// later is set by append if the message was held back, and its body comes again from another replica.
	later bool
	// length is that of the body.
	length uint64
}

// giveWay lets others run before every eighth message that is read for somebody. A dozen consumers that catch up, with
// 10 ms each until they are made to, would be 100 ms of nothing for who waits for one message.
func giveWay(i int) {
	if i%8 == 7 {
		runtime.Gosched()
	}
}

// append adds a message's frame to buf, which it writes once it is large. A body that cannot be read is
// held back: nothing is deleted on doubt, and the others go on.
func (d *delivery) append(ctx context.Context, buf []byte, f *wire.Deliver, ref queue.Ref, large *queue.Large) (
	[]byte, error,
) {
	body, err := d.queue.group.OpenBody(commit(ref, large))
	if d.peek && errors.Is(err, wal.ErrAbsent) {
		return buf, nil
	}
	if err != nil {
		var damaged *raftstore.DamagedError
		switch d.later = errors.As(err, &damaged) && !damaged.Alone; {
		case d.later:
			return buf, nil
		case damaged != nil && !d.peek:
			d.queue.log.Error("a message is damaged", "offset", f.Offset, "err", err)
			return d.unreadable(ctx, buf, f)
		}
		d.queue.log.Error("a message cannot be read and is held back", "offset", f.Offset, "err", err)
		return buf, nil
	}
	defer func() { _ = body.Close() }() // read only
	d.session.node.counters.delivered.Add(1)
	if large != nil {
		if err := write(d.stream, buf); err != nil {
			return nil, err
		}
		return buf[:0], d.large(ctx, f, body, large)
	}
	if f.Body, err = io.ReadAll(body); err != nil {
		return nil, err
	}
	f.Digest = segment.DigestOf(f.Body)
	buf = wire.Append(buf, f)
	if len(buf) < deliverPiece {
		return buf, nil
	}
	return buf[:0], write(d.stream, buf)
}

// unreadable delivers a message whose only body is damaged, so that it can be settled: the body ends with the reason
// before it begins.
func (d *delivery) unreadable(ctx context.Context, buf []byte, f *wire.Deliver) ([]byte, error) {
	to, err := d.session.conn.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	to.CancelWrite(quic.StreamErrorCode(wire.BodyDamaged))
	f.Large, f.Stream, f.Length = true, uint64(to.StreamID()), d.length
	return wire.Append(buf, f), nil
}

// large streams a body from its file. Other messages of the stream wait behind it: a client may take as
// long as it likes to come to a body, which costs the node one piece of memory.
func (d *delivery) large(ctx context.Context, f *wire.Deliver, body raftstore.BodyReader, large *queue.Large) error {
	to, err := d.session.conn.OpenUniStreamSync(ctx)
	if err != nil {
		return err
	}
	// Who leaves does not read on: the writes below end.
	defer context.AfterFunc(ctx, func() { to.CancelWrite(0) })()
	f.Large, f.Stream, f.Length, f.Digest = true, uint64(to.StreamID()), uint64(large.Length), large.Digest
	if err := write(d.stream, wire.Append(nil, f)); err != nil {
		to.CancelWrite(0)
		return err
	}
	err = write(to, wire.Append(nil, &wire.BodyHead{Length: f.Length}))
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{body}, make([]byte, streamPiece))
	}
	if err == nil {
		err = write(to, large.Digest[:])
	}
	if err == nil {
		return to.Close()
	}
	var corrupt *segment.CorruptError
	var stopped *quic.StreamError
	switch {
	case errors.As(err, &corrupt):
		to.CancelWrite(quic.StreamErrorCode(wire.BodyDamaged))
		d.queue.log.Error("a message is damaged and is held back", "offset", f.Offset, "err", err)
		return nil
	case errors.As(err, &stopped) && stopped.Remote:
		return nil // the consumer does not want this body; it settles the delivery all the same
	}
	to.CancelWrite(0)
	return err
}
