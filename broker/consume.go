package broker

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/queue"
	"weida/broker/wire"
	"weida/raftstore"
)

const (
	// deliverPiece is how many bytes of small deliveries are gathered into one write.
	deliverPiece = 64 << 10
	// ephemeral starts the ids of subscriptions that end with their stream; clients cannot use it.
	ephemeral = "~"
)

// consumer is one stream that consumes from one queue.
type consumer struct {
	session *session
	queue   *nodeQueue
	reign   *reign
	id      uint64
	sub     string
	out     *outbox // answers to settles; deliveries are written between them

	mu       sync.Mutex
	bell     chan struct{}  // holds one: events wait
	events   []queue.Effect // guarded by mu; at most UnsettledMax deliveries and a few more
	open     int            // guarded by mu; deliveries of this stream whose settle is not known to have had effect
	owed     int            // guarded by mu; of open, those that the key owes for
	settling int            // guarded by mu; settles without an answer
	room     *sync.Cond     // of mu: settling fell, ended, or failure
	ended    bool           // guarded by mu
	failure  *wire.Error    // guarded by mu; why the stream ends
	abort    func()         // ends the reading
	absent   atomic.Bool    // its subscription did not get into the log
	later    []queue.Effect // deliver's: messages whose body is damaged here and comes again from another replica
}

func (s *session) consume(ctx context.Context, stream *quic.Stream, r *wire.Reader, open wire.OpenConsumer) {
	c, refused := s.openConsumer(ctx, open)
	if refused != nil {
		s.refuse(stream, refused)
		return
	}
	q := c.queue
	if !q.enter() {
		s.refuse(stream, s.node.gone(q))
		return
	}
	defer q.leave()
	c.abort = func() {
		stream.CancelRead(0)
		hurry(stream)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with ctx
		select {
		case <-q.gone:
			c.fail(s.node.gone(q))
		case <-c.reign.over:
			c.fail(s.node.moved(q))
		case <-ctx.Done():
		}
	}()
	q.mu.Lock()
	q.consumers[c.id] = c
	q.mu.Unlock()
	err := c.attach(ctx, open.Credit)
	switch {
	case notLeading(err):
		s.refuse(stream, s.passed(ctx, q))
	case err != nil:
		s.refuse(stream, s.told(q, err))
	default:
		s.refuse(stream, c.run(ctx, cancel, stream, r))
	}
	cancel()
	q.mu.Lock()
	delete(q.consumers, c.id)
	q.mu.Unlock()
	c.oweForOpen()
	if err == nil && !c.absent.Load() {
		c.leave()
	}
}

// attach puts the subscription into the log; on an error it is not there. Where too few have room for it, the stream
// ends like any other: the subscription may be attached yet, and what leave proposes comes behind it.
func (c *consumer) attach(ctx context.Context, credit uint64) error {
	cmd := queue.Command{Kind: queue.Attach, Subscription: c.sub, Session: c.id, Limit: credit}
	p := &proposal{items: 1, stuck: c.stuck, dropped: func(err error) {
		c.absent.Store(true)
		c.refused(err)
	}}
	return c.queue.proposeWaiting(ctx, p, []raftstore.Item{{Command: cmd.Append(nil)}})
}

// run reads the client's frames while two goroutines write: one deliveries, one the answers to
// settles, which do not wait for a body that the client will read later. They write whole frames.
func (c *consumer) run(ctx context.Context, cancel func(), stream *quic.Stream, r *wire.Reader) *wire.Error {
	out := &sharedWriter{stream: stream}
	var writers sync.WaitGroup
	writers.Go(func() { c.deliver(ctx, out); stream.CancelRead(0) })
	writers.Go(func() {
		if err := c.out.run(out); err != nil {
			stream.CancelRead(0) // the client is gone; the reader ends, too
		}
	})
	err := c.read(ctx, r)
	c.end()
	cancel()
	c.out.close()
	hurry(stream) // what it has goes back to the queue, whether it reads or not
	writers.Wait()
	if failure := c.failed(); failure != nil {
		return failure
	}
	if err == nil && c.session.node.work.Err() != nil {
		return stopping()
	}
	return err
}

// sharedWriter lets several goroutines write; each Write is whole. Behind one that failed nothing can be
// understood, so it ends the stream.
type sharedWriter struct {
	mu     sync.Mutex
	stream *quic.Stream
}

func (s *sharedWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.stream.Write(b)
	if err != nil {
		s.stream.CancelWrite(0)
	}
	return n, err
}

func (s *session) openConsumer(ctx context.Context, open wire.OpenConsumer) (*consumer, *wire.Error) {
	q, r, refused := s.find(ctx, open.Queue)
	if refused != nil {
		return nil, refused
	}
	c := &consumer{
		session: s, queue: q, reign: r, id: r.session(), sub: open.Subscription,
		out: newOutbox(), bell: make(chan struct{}, 1),
	}
	c.room = sync.NewCond(&c.mu)
	switch {
	case c.sub == "":
		c.sub = fmt.Sprintf("%s%x", ephemeral, c.id)
	case c.sub[:1] == ephemeral:
		return nil, &wire.Error{Code: wire.NotAllowed, Detail: "A subscription id does not start with " + ephemeral}
	}
	return c, nil
}

// isEphemeral says whether a subscription ends with its stream.
func isEphemeral(subscription string) bool { return strings.HasPrefix(subscription, ephemeral) }

func (c *consumer) command(ctx context.Context, cmds ...queue.Command) error {
	items := make([]raftstore.Item, len(cmds))
	for i := range cmds {
		items[i].Command = cmds[i].Append(nil)
	}
	return c.queue.proposeWaiting(ctx, &proposal{items: len(items), stuck: c.stuck, dropped: c.refused}, items)
}

// refused is called on the shard when a command of this consumer got no entry: its stream ends with the
// reason, so that a settle without an answer is not taken for one that is still under way.
func (c *consumer) refused(err error) {
	c.fail(c.told(err))
}

// stuck is called on the shard when a command of this consumer waits too long for room on other disks: its stream ends,
// for a settle whose answer may not come for hours holds up whoever waits for it.
func (c *consumer) stuck(why error) { c.fail(uncommitted(why)) }

// told is why the stream ends on which a command was not taken. One that was served here, and whose leadership has just
// moved, is not told that nobody can serve it: who comes back by its patience finds the next leader.
func (c *consumer) told(err error) *wire.Error {
	if notLeading(err) {
		return c.session.node.moved(c.queue)
	}
	return c.session.told(c.queue, err)
}

// fail ends the stream with a reason; the first one counts.
func (c *consumer) fail(err *wire.Error) {
	c.mu.Lock()
	if c.failure == nil {
		c.failure = err
	}
	c.mu.Unlock()
	c.room.Broadcast()
	c.abort()
}

func (c *consumer) failed() *wire.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// leave gives what was not settled back to the queue. A node that stops does so at its next start, and for one that
// does not lead any more the new leader does.
func (c *consumer) leave() {
	cmd := queue.Command{Kind: queue.Detach, Subscription: c.sub, Session: c.id}
	if isEphemeral(c.sub) {
		cmd = queue.Command{Kind: queue.Unsubscribe, Subscription: c.sub}
	}
	if err := c.queue.insist([]queue.Command{cmd}); err != nil && !notLeading(err) {
		c.queue.log.Info("a consumer left without a trace in the log; the next start detaches it",
			"subscription", c.sub, "err", err)
	}
}

func (c *consumer) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.room.Broadcast()
}

// event is called on the shard.
func (c *consumer) event(e queue.Effect) {
	if e.Kind == queue.Superseded {
		c.mu.Lock()
		c.events = nil // another has them now
		c.mu.Unlock()
		c.oweForOpen()
		c.fail(&wire.Error{Code: wire.Superseded}) // also if nothing can be written to the client
		return
	}
	c.mu.Lock()
	c.events = append(c.events, e)
	if e.Kind == queue.Assigned {
		c.open++
	}
	c.mu.Unlock()
	c.ring()
}

// oweForOpen makes the consumer's key owe for what somebody will be given once more. It does so once.
func (c *consumer) oweForOpen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.brake.owe(againCost * time.Duration(c.open-c.owed))
	c.owed = c.open
}

func (c *consumer) ring() {
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// deliver writes what the queue assigned until the stream or ctx ends.
func (c *consumer) deliver(ctx context.Context, stream io.Writer) {
	defer c.end()
	var buf []byte
	for {
		var again <-chan time.Time
		if len(c.later) > 0 {
			again = time.After(laterAgain)
		}
		var events []queue.Effect
		select {
		case <-c.bell:
			c.mu.Lock()
			events, c.events = c.events, nil
			c.mu.Unlock()
		case <-again:
			events, c.later = c.later, nil
		case <-ctx.Done():
			return
		}
		buf = buf[:0]
		for i, e := range events {
			giveWay(i)
			var err error
			if buf, err = c.eventFrame(ctx, stream, buf, e); err != nil {
				c.queue.log.Debug("delivery ended", "subscription", c.sub, "err", err)
				return
			}
		}
		if err := write(stream, buf); err != nil {
			return
		}
	}
}

func write(w io.Writer, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := w.Write(b)
	return err
}

// eventFrame appends an effect's frame to buf, which it writes when it is large.
func (c *consumer) eventFrame(ctx context.Context, stream io.Writer, buf []byte, e queue.Effect) ([]byte, error) {
	switch e.Kind {
	case queue.Attached:
		return wire.Append(buf, &wire.Opened{
			Offer: c.queue.offer(), MessageMax: uint64(c.queue.messageMax(c.session.node.c.MessageMax)),
			Delivered: e.Delivered, Limit: e.Limit,
		}), nil
	case queue.Crowded:
		c.fail(&wire.Error{Code: wire.TooManySubs, Detail: fmt.Sprintf("The limit is %d", queue.SubscriptionsMax)})
		return buf, nil
	case queue.Ended:
		c.fail(&wire.Error{Code: wire.Unsubscribed, Detail: "Its id was " + quote(c.sub)})
		return buf, nil
	case queue.Assigned:
	default:
		return buf, nil
	}
	f := &wire.Deliver{Offset: e.Offset, Attempt: e.Attempt, Term: e.Ref.Term, Producer: e.Producer, Seq: e.Seq}
	d := delivery{session: c.session, queue: c.queue, stream: stream, length: e.Length}
	buf, err := d.append(ctx, buf, f, e.Ref, e.Large)
	if d.later {
		c.later = append(c.later, e)
	}
	return buf, err
}
