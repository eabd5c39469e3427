package broker

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/queue"
	"weida/broker/wire"
)

// purge takes every message out that is not under delivery.
func (s *session) purge(ctx context.Context, w io.Writer, f wire.Purge) {
	q, r, err := s.find(ctx, f.Queue)
	if err == nil && s.role != endpoint.RoleAdmin {
		err = &wire.Error{Code: wire.NotAllowed, Detail: "A purge needs the role admin; this key has the role " +
			string(s.role)}
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	e, err := s.ask(ctx, q, queue.Command{Kind: queue.Purge, Session: r.session()})
	s.reply(w, &wire.Purged{Count: e.Count, Left: e.Left}, err)
}

// unsubscribe ends a subscription for good; whoever is attached with it loses it.
func (s *session) unsubscribe(ctx context.Context, w io.Writer, f wire.Unsubscribe) {
	q, _, err := s.find(ctx, f.Queue)
	if err == nil && (f.Subscription == "" || f.Subscription[:1] == ephemeral) {
		err = &wire.Error{Code: wire.NotAllowed, Detail: "That is no durable subscription"}
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	_, err = s.ask(ctx, q, queue.Command{Kind: queue.Unsubscribe, Subscription: f.Subscription})
	s.reply(w, &wire.Done{}, err)
}

// retire forgets a producer of the client's own.
func (s *session) retire(ctx context.Context, w io.Writer, f wire.Retire) {
	q, r, err := s.find(ctx, f.Queue)
	if err != nil {
		s.refuse(w, err)
		return
	}
	e, err := s.ask(ctx, q, queue.Command{
		Kind: queue.Retire, Producer: f.Producer, Identity: [32]byte(s.peer), Session: r.session(),
	})
	if err == nil && e.Kind == queue.Owned {
		err = &wire.Error{Code: wire.ProducerOwned, Detail: "The id was " + quote(f.Producer)}
	}
	s.reply(w, &wire.Done{}, err)
}

// reply ends a stream with its answer, or with the reason why there is none.
func (s *session) reply(w io.Writer, f wire.Frame, err *wire.Error) {
	if err != nil {
		s.refuse(w, err)
		return
	}
	if werr := write(w, wire.Append(nil, f)); werr != nil {
		s.node.c.Log.Debug("answer not delivered", "frame", f.Type().String(), "err", werr)
	}
}

// peek shows messages as they are in the queue now, and changes nothing.
func (s *session) peek(ctx context.Context, stream *quic.Stream, f wire.OpenPeek) {
	q, _, refused := s.find(ctx, f.Queue)
	if refused == nil && q.replicated.Load() {
		// Once an entry of this leader's is committed, nobody else has led, and no state is newer than its own.
		_, refused = s.ask(ctx, q, queue.Continue())
	}
	if refused != nil {
		s.refuse(stream, refused)
		return
	}
	d := delivery{session: s, queue: q, stream: stream, peek: true}
	end := wire.PeekEnd{Next: f.From, More: true}
	var buf []byte
	for left := min(f.Count, peekMax); ; {
		piece := min(left, peekPiece)
		var found []queue.Message
		found, end.Next, end.More = q.peek(end.Next, int(piece))
		s.brake.pay(ctx, costOf(found))
		for i, m := range found {
			giveWay(i)
			var err error
			if buf, err = d.append(ctx, buf, &wire.Deliver{
				Offset: m.Offset, Attempt: m.Attempt, Term: m.Ref.Term, Producer: m.Producer, Seq: m.Seq,
			}, m.Ref, m.Large); err != nil {
				q.log.Debug("peek ended", "err", err)
				return
			}
		}
		if left -= piece; left == 0 || !end.More {
			break
		}
	}
	if err := write(stream, wire.Append(buf, &end)); err != nil {
		q.log.Debug("peek ended", "err", err)
	}
}

// costOf is what it costs to show messages.
func costOf(list []queue.Message) (cost time.Duration) {
	for i := range list {
		cost += messageCost
		if list[i].Large == nil { // a large one has as many bytes as the client cares to read
			cost += byteCost * time.Duration(list[i].Length)
		}
	}
	return cost
}

// peekPiece is how many messages a peek looks up at a time: what a client has not read yet is not kept for it.
const peekPiece = 32

// peek finds the first n messages from an offset on, and says where to go on, and whether there is more.
func (q *nodeQueue) peek(from uint64, n int) (found []queue.Message, next uint64, more bool) {
	var v *queue.View
	q.read(func(state *queue.State) { v = state.View() })
	found = v.Peek(from, n+1)
	if len(found) > n {
		return found[:n], found[n].Offset, true
	}
	return found, max(v.Next(), from), false
}

// quote shows a name of a client's choosing, cut to what a person can read.
func quote(name string) string { return fmt.Sprintf("%.80q", name) }
