package connector

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"weida/broker/client"
	"weida/fsync"
)

const (
	// creditMax is how many deliveries may be under way to the sink.
	creditMax = 256
	// unsettledMax and unsettledBytesMax bound what is written and waits for the flush.
	unsettledMax      = 512
	unsettledBytesMax = 16 << 20
)

// sink is one attempt to consume. One goroutine writes, another makes durable and accepts what was written meanwhile:
// there is no timer.
type sink struct {
	c  *file
	at place
	f  fsync.File
	k  *client.Consumer
	w  writer
	st state

	mu      sync.Mutex
	moved   *sync.Cond
	end     int64              // guarded by mu; behind the last whole record
	settled int64              // guarded by mu; behind the last record whose message was accepted
	ready   []*client.Delivery // guarded by mu; whose records lie before end, and which are not accepted yet
	over    bool               // guarded by mu; nothing is written any more
	failed  error              // guarded by mu; why nothing is accepted any more
}

// consume runs a sink until ctx ends.
func (c *file) consume(ctx context.Context, cl *client.Client, at place) (err error) {
	s := &sink{c: c, at: at}
	s.moved = sync.NewCond(&s.mu)
	if err := s.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.f.Close()) }()
	s.k, err = cl.Consumer(ctx, c.plan.queue, client.ConsumerOptions{
		Subscription: c.id(), Credit: creditMax, Patience: -1, // the one way back is a new attempt
	})
	if err != nil {
		return err
	}
	defer s.k.Close()
	c.running(uint64(s.end))
	work, stop := context.WithCancel(ctx)
	defer stop()
	var settling sync.WaitGroup
	settling.Go(func() {
		defer stop()
		s.settle(ctx)
	})
	err = s.write(work)
	s.mu.Lock()
	s.over = true
	s.moved.Broadcast()
	s.mu.Unlock()
	settling.Wait()
	if s.failed != nil && !errors.Is(err, s.failed) {
		err = errors.Join(err, s.failed)
	}
	return errors.Join(err, s.cut())
}

// open opens the file or makes it, and cuts what belongs to messages that come again.
func (s *sink) open() (err error) {
	st, err := s.c.load(s.at)
	if err != nil {
		return err
	}
	s.f, err = s.c.o.Files.Open(s.at.file, fsync.ReadWrite)
	if errors.Is(err, fs.ErrNotExist) {
		st = nil // moved away as a whole: it begins anew
		s.f, err = s.create()
	}
	if err != nil {
		return err
	}
	if err := s.begin(st); err != nil {
		return errors.Join(err, s.f.Close())
	}
	s.w = writer{f: s.f, framing: s.c.plan.framing}
	return nil
}

func (s *sink) create() (fsync.File, error) {
	f, err := s.c.o.Files.Create(s.at.file)
	if err != nil {
		return nil, err
	}
	if err := s.entry(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// entry makes the file's name durable.
func (s *sink) entry() error {
	d, err := s.c.o.Files.OpenDir(filepath.Dir(s.at.file))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *sink) begin(st *state) error {
	size, err := s.f.Size()
	if err != nil {
		return err
	}
	if st != nil && size > 0 { // an emptied file begins anew, as one that was moved away
		if err := st.holds(s.at.file, s.f); err != nil {
			return err
		}
		s.st, s.end, s.settled = *st, st.End, st.End
		return s.cut()
	}
	s.end, s.settled, s.st.End = size, size, size
	if err := s.finished(size); err != nil {
		return err
	}
	return s.c.save(s.at, s.f, &s.st) // what is there now is never cut
}

// finished refuses a file whose last line has no end: the first message would go on in it.
func (s *sink) finished(size int64) error {
	if size == 0 {
		return nil
	}
	b := make([]byte, 1)
	if _, err := s.f.ReadAt(b, size-1); err != nil {
		return err
	}
	if b[0] != '\n' {
		return &ChangedError{s.at.file, "does not end with a newline, and messages are appended as lines of their own"}
	}
	return nil
}

// cut takes away what lies behind the last whole record.
func (s *sink) cut() error {
	size, err := s.f.Size()
	if err != nil || size <= s.end {
		return err
	}
	return fsync.Cut(s.f, s.end)
}

// write appends what is delivered until ctx ends.
func (s *sink) write(ctx context.Context) error {
	for d, err := range s.k.Deliveries(ctx) {
		if err != nil {
			return err
		}
		if !s.room(ctx) {
			return nil // the message stays in the queue
		}
		end, err := s.w.append(d, s.end) // only this goroutine moves end
		if errors.Is(err, errNewline) {
			err = s.unframed(ctx, d)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.end = end
		s.ready = append(s.ready, d)
		s.moved.Broadcast()
		s.mu.Unlock()
	}
	return nil
}

// unframed deals with a message that is no line.
func (s *sink) unframed(ctx context.Context, d *client.Delivery) error {
	if !s.c.plan.unframed {
		return &UnframedError{d.Offset}
	}
	if err := d.Reject(ctx); err != nil {
		return err
	}
	s.c.update(func(now *Status) { now.Rejected++ })
	return s.cut() // of a large one the beginning was written
}

// room waits until there is not too much that waits for the flush; false if ctx ended.
func (s *sink) room(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		s.moved.Broadcast()
		s.mu.Unlock()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ctx.Err() == nil && (len(s.ready) >= unsettledMax || s.end-s.settled >= unsettledBytesMax) {
		s.moved.Wait()
	}
	return ctx.Err() == nil
}

// settle makes durable and accepts what is written, until nothing more will be, or something fails.
func (s *sink) settle(ctx context.Context) {
	for {
		s.mu.Lock()
		for len(s.ready) == 0 && !s.over {
			s.moved.Wait()
		}
		batch, end := s.ready, s.end
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		err := s.accept(ctx, batch, end)
		s.mu.Lock()
		s.failed = err
		s.ready = append([]*client.Delivery(nil), s.ready[len(batch):]...)
		s.settled = end
		s.moved.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// accept makes durable what lies before end, and only then accepts its messages.
func (s *sink) accept(ctx context.Context, batch []*client.Delivery, end int64) error {
	if err := s.f.Sync(); err != nil { // what is behind st.End is cut by the next attempt, and written anew
		return err
	}
	s.st.End = end
	if err := s.c.save(s.at, s.f, &s.st); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience) // also when the sink is to end
	defer cancel()
	for _, d := range batch {
		if err := d.Accept(ctx); err != nil {
			return err
		}
	}
	stale, err := s.k.Flush(ctx)
	s.c.update(func(now *Status) {
		now.Position = uint64(end)
		now.Messages += uint64(max(len(batch)-len(stale), 0))
	})
	if err == nil && len(stale) > 0 {
		err = fmt.Errorf("connector: accept message %d, attempt %d: %w", stale[0].Offset, stale[0].Attempt, stale[0].Err)
	}
	return err
}
