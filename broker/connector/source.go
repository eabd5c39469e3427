package connector

import (
	"context"
	"errors"
	"fmt"
	"io"

	"weida/broker/client"
	"weida/fsync"
)

const (
	// memory is how many sequences a queue remembers of a producer: what was confirmed above may have a line below that
	// was not, but no further below than that.
	memory = 1024
	// saveEvery is how many confirmed lines may pass before the state file is written.
	saveEvery = 4096
)

// source is one attempt to publish.
type source struct {
	c     *file
	at    place
	p     *client.Producer
	f     fsync.File
	st    state  // as it is in the state file, or will be
	known uint64 // lines up to this one were in the queue when the attempt began, but perhaps for some of the last
	line  uint64 // lines read
	pos   int64  // behind them
	seen  int64  // of the file; nothing was behind it
	track *tracker
}

// publish runs a source until ctx ends, or the file does and is not followed.
func (c *file) publish(ctx context.Context, cl *client.Client, at place) (err error) {
	s := &source{c: c, at: at}
	st, err := c.load(at)
	if err != nil {
		return err
	}
	if s.f, err = c.o.Files.Open(at.file, fsync.ReadOnly); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.f.Close()) }()
	s.p, err = cl.Producer(ctx, c.plan.queue, client.ProducerOptions{
		Want: c.plan.want, ID: c.id(), Window: memory, Patience: -1, // the one way back is a new attempt
	})
	if err != nil {
		return err
	}
	if err := s.begin(ctx, st); err != nil {
		return errors.Join(err, s.close(ctx))
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.track = newTracker(s.line, s.pos, stop, c.confirmed)
	c.running(s.line)
	err = s.send(work)
	closed := s.close(ctx)
	lines, _, failed := s.track.at()
	saved := s.save()
	c.update(func(now *Status) { now.Position = lines })
	switch {
	case failed != nil:
		return errors.Join(failed, saved)
	case ctx.Err() != nil:
		return saved // what has no answer is sent again by the next attempt
	}
	return errors.Join(err, closed, saved)
}

// close ends the producer, and waits for the answers that are under way.
func (s *source) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	return s.p.Close(ctx)
}

// confirmed counts a line that got its place.
func (c *file) confirmed(below bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Messages++
	if below {
		c.status.Below++
	}
}

// begin finds the first line that the queue may not have.
func (s *source) begin(ctx context.Context, st *state) error {
	s.known = s.p.Next() - 1
	switch {
	case st != nil:
		s.st = *st
		if err := s.st.holds(s.at.file, s.f); err != nil {
			return err
		}
		if s.known == 0 && st.Lines > st.Base {
			return &ForgottenError{s.c.plan.queue, st.Lines - st.Base}
		}
	case s.c.plan.atEnd && s.known == 0:
		return s.beginAtEnd(ctx)
	}
	s.line, s.pos = s.st.Lines, s.st.End
	if s.known < s.line { // it has lost what it had confirmed, as a power cut may do to what was not flushed
		s.line, s.pos = s.st.Base, s.st.BaseEnd
	}
	if s.known > memory {
		if err := s.skip(ctx, s.known-memory); err != nil {
			return err
		}
	}
	if s.line == s.st.Lines {
		return nil
	}
	s.st.Lines, s.st.End = s.line, s.pos
	return s.c.save(s.at, s.f, &s.st)
}

// beginAtEnd passes over the lines that are there now, and makes that known to all attempts that follow.
func (s *source) beginAtEnd(ctx context.Context) error {
	l := newLines(s.f, 0)
	for {
		ln, err := l.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		s.line, s.pos = s.line+1, ln.next
	}
	s.st = state{Base: s.line, BaseEnd: s.pos, Lines: s.line, End: s.pos}
	return s.c.save(s.at, s.f, &s.st)
}

// skip passes over lines that the queue has, up to that one.
func (s *source) skip(ctx context.Context, last uint64) error {
	l := newLines(s.f, s.pos)
	for s.line < last {
		ln, err := l.next()
		if errors.Is(err, io.EOF) {
			return s.tooFew(s.line)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		s.line, s.pos = s.line+1, ln.next
	}
	return nil
}

func (s *source) tooFew(lines uint64) error {
	return &ChangedError{s.at.file, fmt.Sprintf("has %d finished lines, and the queue has %d of it", lines, s.known)}
}

// send publishes what is in the file, and what comes to it.
func (s *source) send(ctx context.Context) error {
	for {
		if err := s.through(ctx); err != nil {
			return err
		}
		if err := s.track.drained(ctx); err != nil {
			return err
		}
		if err := s.save(); err != nil {
			return err
		}
		if !s.c.plan.follow {
			return nil
		}
		if err := s.grown(ctx); err != nil {
			return err
		}
	}
}

// through publishes every line up to the end of the file. An unfinished line is left, unless the file is not followed.
func (s *source) through(ctx context.Context) error {
	if err := s.unbroken(); err != nil {
		return err
	}
	for l := newLines(s.f, s.pos); ; {
		ln, err := l.next()
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return err
		}
		if last {
			s.seen = ln.next
		}
		if last && (s.c.plan.follow || ln.start == ln.end) {
			break
		}
		if err := s.one(ctx, ln); err != nil {
			return err
		}
		if last {
			break
		}
	}
	if s.line < s.known {
		return s.tooFew(s.line)
	}
	return nil
}

// unbroken looks whether the file goes on with a new line: the last line of a file that was not followed may have been
// published without a newline.
func (s *source) unbroken() error {
	size, err := s.f.Size()
	if err != nil || s.pos == 0 || size == s.pos {
		return err
	}
	b := make([]byte, 1)
	if _, err := s.f.ReadAt(b, s.pos-1); err != nil {
		return err
	}
	if b[0] != '\n' {
		return &ChangedError{s.at.file, fmt.Sprintf("goes on where line %d was published as its last one", s.line)}
	}
	return nil
}

// one publishes the next line.
func (s *source) one(ctx context.Context, ln line) error {
	if err := s.track.enter(ctx, ln.next); err != nil {
		return err
	}
	s.line, s.pos = s.line+1, ln.next
	m := client.Message{Bytes: ln.text, Seq: s.line}
	if ln.text == nil {
		m.Length = ln.end - ln.start
		m.Body = io.NewSectionReader(s.f, ln.start, m.Length)
	}
	if err := s.p.Send(ctx, m, s.track.result); err != nil {
		return &LineError{s.line, err}
	}
	if s.line-s.st.Lines >= saveEvery {
		return s.save()
	}
	return nil
}

// save writes down how far the queue has everything.
func (s *source) save() error {
	lines, end, _ := s.track.at()
	s.c.update(func(now *Status) { now.Position = lines })
	if lines == s.st.Lines {
		return nil
	}
	s.st.Lines, s.st.End = lines, end
	return s.c.save(s.at, s.f, &s.st)
}

// grown waits until the file of that name has more than was read. It is opened anew each time: another file may have
// taken the name.
func (s *source) grown(ctx context.Context) error {
	for {
		pause(ctx, s.c.o.Poll)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f, err := s.c.o.Files.Open(s.at.file, fsync.ReadOnly)
		if err != nil {
			return err
		}
		if err := s.st.holds(s.at.file, f); err != nil {
			return errors.Join(err, f.Close())
		}
		was := s.f
		s.f = f
		if err := was.Close(); err != nil {
			return err
		}
		size, err := f.Size()
		if err != nil || size > s.seen {
			return err
		}
	}
}
