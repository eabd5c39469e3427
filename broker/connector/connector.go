package connector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"weida/broker/client"
	"weida/broker/control"
	"weida/fsync"
)

// Connector is one connector that can be run.
type Connector interface {
	// Run moves messages until ctx ends, or nothing is left to do; then it returns nil. A *SpecError is a spec that
	// cannot be made true; every other trouble is tried again, and shown by Status.
	Run(ctx context.Context) error
	// Status says where the connector stands.
	Status() Status
	// Forget takes away what the connector left: its producer or subscription in the queue, and its state file. It may
	// be called again, and when there is nothing, or no such queue. Errors: client.Client's, *fsync.Error.
	Forget(ctx context.Context) error
}

// Options say what to run, and as whom. UID, Spec, Dir and Client are required.
type Options struct {
	UID    uint64                // required; of the resource
	Spec   control.ConnectorSpec // required
	Dir    string                // required; where its files may lie, and its state file
	Client client.Options        // required; whom to speak to, and as whom
	Files  fsync.FS              // fsync.OS() if nil
	// Wake, if not nil, is called when the phase or the reason of the status changed.
	Wake func()
	// Poll is how often a source looks at a file whose end it has reached; 200 ms if zero.
	Poll time.Duration
	// BackoffMax bounds the pause after trouble, which doubles from 100 ms on; 10 s if zero.
	BackoffMax time.Duration
	// Jitter gives numbers in [0, 1) that spread the pauses; a random one if nil.
	Jitter func() float64
}

// Status is where a connector stands. Counts are of this life of the Connector.
type Status struct {
	Phase   control.Phase // Pending, Ready or Degraded
	Reason  string        // why it is not Ready, one word as QueueNotFound; empty if it is
	Message string        // what happened, what it means for the data, what to do
	// Position is how far it has come: lines of a source that are in the queue, bytes of a sink's file whose messages
	// may be accepted.
	Position uint64
	Messages uint64 // that the queue confirmed, as published or as accepted
	Below    uint64 // of them, stored with less evidence than the spec asks for
	Rejected uint64 // messages of a sink that are no line
	Attempts uint64 // how often it began
	Done     bool   // a source that does not follow its file is at its end
}

// file is the connector of this package's protocol.
type file struct {
	o    Options
	plan plan
	bad  error // of the spec

	mu     sync.Mutex
	status Status // guarded by mu
}

const (
	backoffFirst = 100 * time.Millisecond
	backoffMax   = 10 * time.Second
	pollDefault  = 200 * time.Millisecond
	// closePatience bounds the wait for answers when an attempt ends.
	closePatience = 10 * time.Second
)

// New returns a connector that does nothing until Run. A spec that cannot be made true is refused by Run.
func New(o Options) Connector {
	if o.Files == nil {
		o.Files = fsync.OS()
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.Poll <= 0 {
		o.Poll = pollDefault
	}
	if o.BackoffMax <= 0 {
		o.BackoffMax = backoffMax
	}
	c := &file{o: o, status: Status{
		Phase: control.Pending, Reason: "NotStarted", Message: "it was not started yet; nothing was moved",
	}}
	c.plan, c.bad = parse(o.Spec)
	return c
}

// id is the name of its producer, or of its subscription.
func (c *file) id() string { return fmt.Sprintf("connector-%d", c.o.UID) }

// Status implements Connector.
func (c *file) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Run implements Connector.
func (c *file) Run(ctx context.Context) error {
	if c.bad != nil {
		c.troubled(c.bad)
		return c.bad
	}
	for n := 0; ; n++ {
		before := c.Status().Messages
		err := c.attempt(ctx)
		switch {
		case err == nil && ctx.Err() == nil:
			c.update(func(s *Status) { s.Phase, s.Reason, s.Message, s.Done = control.Ready, "", "", true })
			return nil
		case err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil
		}
		c.troubled(err)
		if c.Status().Messages > before {
			n = 0
		}
		pause(ctx, c.backoff(n))
		if ctx.Err() != nil {
			return nil
		}
	}
}

// backoff is the pause after n attempts in a row that moved nothing.
func (c *file) backoff(n int) time.Duration {
	most := min(backoffFirst<<min(n, 16), c.o.BackoffMax)
	return most/2 + time.Duration(c.o.Jitter()*float64(most/2))
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// attempt runs until something ends it; nil if ctx did, or nothing is left to do.
func (c *file) attempt(ctx context.Context) (err error) {
	c.update(func(s *Status) { s.Attempts++ })
	at, err := c.place()
	if err != nil {
		return err
	}
	lock, err := c.o.Files.Lock(at.lock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	cl, err := client.Dial(ctx, c.o.Client)
	if err != nil {
		return err
	}
	defer cl.Close()
	if c.plan.source {
		return c.publish(ctx, cl, at)
	}
	return c.consume(ctx, cl, at)
}

// Forget implements Connector.
func (c *file) Forget(ctx context.Context) (err error) {
	if c.bad != nil {
		return nil // it never ran
	}
	at, err := c.place()
	if err != nil {
		return err
	}
	lock, err := c.o.Files.Lock(at.lock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	cl, err := client.Dial(ctx, c.o.Client)
	if err != nil {
		return err
	}
	defer cl.Close()
	if c.plan.source {
		err = cl.Retire(ctx, c.plan.queue, c.id())
	} else {
		err = cl.Unsubscribe(ctx, c.plan.queue, c.id())
	}
	if err != nil && !noQueue(err) {
		return err
	}
	return c.removeState(at)
}

func (c *file) update(change func(*Status)) {
	c.mu.Lock()
	was := c.status
	change(&c.status)
	moved := was.Phase != c.status.Phase || was.Reason != c.status.Reason || was.Done != c.status.Done
	c.mu.Unlock()
	if moved && c.o.Wake != nil {
		c.o.Wake()
	}
}

func (c *file) running(position uint64) {
	c.update(func(s *Status) {
		s.Phase, s.Reason, s.Message, s.Position, s.Done = control.Ready, "", "", position, false
	})
}

// troubled shows what stands in the way.
func (c *file) troubled(err error) {
	phase, reason := judge(err)
	c.update(func(s *Status) { s.Phase, s.Reason, s.Message = phase, reason, err.Error() })
}
