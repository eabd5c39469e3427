package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// calls returns exchanges per second as framed does, but each by a goroutine of its own that waits for its answer
// before it sends again: what a request and its reply cost a program that cannot gather. The frames that wait are still
// written together.
func (q *quicProbe) calls(ctx context.Context, d time.Duration) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	calling, stop := context.WithCancel(ctx)
	defer stop()
	var answered atomic.Int64
	var callers, served sync.WaitGroup
	for i := range q.streams {
		s, err := q.conns[i%len(q.conns)].OpenStreamSync(ctx)
		if err != nil {
			return 0, err
		}
		c := &callStream{frame: make([]byte, q.publish), answers: make(chan chan struct{}, q.window)}
		c.moved = sync.NewCond(&c.mu)
		c.buf = append(c.buf, framedProbe)
		var mine sync.WaitGroup
		for range q.window {
			mine.Go(func() { c.call(calling, &answered) })
		}
		callers.Go(func() { mine.Wait(); c.end() })
		served.Go(func() {
			if err := errors.Join(c.write(s), s.Close()); err != nil {
				cancel(err)
			}
		})
		served.Go(func() {
			if err := c.read(s, q.evidence); err != nil {
				cancel(err)
			}
		})
	}
	err := pause(ctx, d/5)
	began, before := time.Now(), answered.Load()
	if err == nil {
		err = pause(ctx, d)
	}
	n, took := answered.Load()-before, time.Since(began)
	stop()
	callers.Wait()
	served.Wait()
	return float64(n) / took.Seconds(), errors.Join(err, context.Cause(ctx))
}

// callStream is one stream with its callers.
type callStream struct {
	frame   []byte
	answers chan chan struct{} // of the callers that wait, in order

	mu    sync.Mutex
	moved *sync.Cond
	buf   []byte // guarded by mu; frames to write
	ended bool   // guarded by mu; no more will come
}

func (c *callStream) call(ctx context.Context, answered *atomic.Int64) {
	answer := make(chan struct{}, 1)
	for ctx.Err() == nil {
		c.mu.Lock()
		c.buf = append(c.buf, c.frame...)
		c.answers <- answer // has room for all callers
		c.mu.Unlock()
		c.moved.Signal()
		select {
		case <-answer:
			answered.Add(1)
		case <-ctx.Done():
		}
	}
}

func (c *callStream) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.moved.Signal()
}

func (c *callStream) write(w io.Writer) error {
	var spare []byte
	for {
		c.mu.Lock()
		for len(c.buf) == 0 && !c.ended {
			c.moved.Wait()
		}
		out := c.buf
		c.buf = spare[:0]
		c.mu.Unlock()
		if len(out) == 0 {
			return nil
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
		spare = out
	}
}

// read gives each answer to its caller, who may have gone.
func (c *callStream) read(r io.Reader, size int) error {
	in := make([]byte, probePiece)
	for part := 0; ; {
		n, err := r.Read(in)
		for part += n; part >= size; part -= size {
			(<-c.answers) <- struct{}{}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
