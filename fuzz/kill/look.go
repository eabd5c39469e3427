package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/wal"
)

// This file is how a run looks at everything while nobody works.

// audit shows the model every queue. It returns how many messages each holds. Who works stays parked.
func (r *run) audit(final bool) (map[place]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), workMax)
	defer cancel()
	if !r.gate.park(ctx) {
		return nil, errors.New("STUCK: somebody works on though the node is up and quiet was asked for")
	}
	if err := r.until(ctx, "clients are still connected", func() (bool, error) {
		n, err := r.registry().connections(ctx)
		return n == 0, err
	}); err != nil {
		return nil, err
	}
	c, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	held := make(map[place]int)
	for _, s := range r.slots {
		p, err := r.quietQueue(ctx, s.name, final)
		if err != nil {
			return nil, err
		}
		if p.UID == 0 {
			continue
		}
		if held[p], err = r.auditOne(ctx, c, p, final); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return held, r.journal.turn()
}

// until asks again and again until something is so.
func (r *run) until(ctx context.Context, what string, so func() (bool, error)) error {
	for {
		ok, err := so()
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("STUCK: %s after %v", what, workMax)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// quietQueue finds the queue of a name that can be looked at; none if it is being deleted. At the end of a run it
// waits until that is over.
func (r *run) quietQueue(ctx context.Context, name string, final bool) (p place, err error) {
	err = r.until(ctx, "queue "+name+" is neither ready nor gone", func() (bool, error) {
		now, ok := r.look(ctx, name)
		switch {
		case !ok:
			return false, fmt.Errorf("queue %s cannot be looked at", name)
		case now == nil:
			return true, nil
		case now.Deleting:
			return !final, nil
		}
		p = place{name, now.UID}
		return now.Observed == now.Generation, nil
	})
	return p, err
}

func (r *run) auditOne(ctx context.Context, c *client.Client, p place, final bool) (int, error) {
	// It goes through the queue's log behind everything before it.
	err := r.until(ctx, "queue "+p.Queue+" is ready and serves nobody", func() (bool, error) {
		err := c.Unsubscribe(ctx, p.Queue, "nobody")
		if codeOf(err) == wire.NotReady {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return 0, fmt.Errorf("audit of queue %s: %w", p.Queue, err)
	}
	e := audited{place: p, Final: final}
	err = r.until(ctx, "queue "+p.Queue+" has deliveries with nobody", func() (bool, error) {
		a, err := r.registry().ask(ctx, http.MethodGet, queuePath(p.Queue), nil)
		if err != nil {
			return false, err
		}
		if a.queue == nil || a.queue.Live == nil {
			return false, fmt.Errorf("queue %s is not served", p.Queue)
		}
		l := a.queue.Live
		e.Books = books{l.In, l.Ready, l.Unsettled, l.Accepted, l.Rejected, l.Purged, l.Released}
		return l.Unsettled == 0 && l.Consumers == 0, nil
	})
	if err != nil {
		return 0, err
	}
	for d, err := range c.Peek(ctx, p.Queue, client.PeekOptions{}) {
		if err != nil {
			return 0, fmt.Errorf("audit of queue %s: %w", p.Queue, err)
		}
		got, err := read(d)
		if err != nil {
			return 0, fmt.Errorf("audit of queue %s: body at offset %d: %w", p.Queue, d.Offset, err)
		}
		e.Messages = append(e.Messages, got)
	}
	r.note(e)
	return len(e.Messages), nil
}

// last looks once more, verifies the files of the stopped node, takes everything out of every queue, and looks and
// verifies again.
func (r *run) last() error {
	if err := r.begin(false); err != nil {
		return err
	}
	held, err := r.audit(false)
	if err != nil {
		return err
	}
	if err := errors.Join(r.node.Stop(), r.verify()); err != nil {
		return err
	}
	if err := r.begin(false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), workMax)
	defer cancel()
	for p, n := range held {
		if err := r.drain(ctx, p, n); err != nil {
			return err
		}
	}
	if _, err := r.audit(true); err != nil {
		return err
	}
	r.report()
	return errors.Join(r.node.Stop(), r.verify())
}

// whole reads every byte of the files of a node that is not running, in whatever way it ended: nothing is damaged.
func (r *run) whole() (sum wal.Verified, err error) {
	out, err := exec.Command(r.node.bin, "log", "verify", r.node.data(), "-o", "json").CombinedOutput()
	if err != nil {
		return sum, fmt.Errorf("log verify: %w\n%s", err, out)
	}
	if err := json.Unmarshal(out, &sum); err != nil {
		return sum, fmt.Errorf("log verify: %w\n%s", err, out)
	}
	if sum.Damaged > 0 {
		return sum, fmt.Errorf("log verify: damage, and status 0\n%s", out)
	}
	r.verified.Add(1)
	return sum, nil
}

// verify compares also the queues that are there with the registry's.
func (r *run) verify() error {
	sum, err := r.whole()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	groups := 1 // the control log
	for _, n := range r.model.names {
		if !n.gone {
			groups++
		}
	}
	if sum.Groups != groups {
		return fmt.Errorf("log verify: %d groups where the registry has %d queues: %+v", sum.Groups, groups-1, sum)
	}
	return nil
}

// journal keeps the history since the audit before the last one.
type journal struct {
	dir  string
	file *os.File
	w    *bufio.Writer
}

func newJournal(dir string) (*journal, error) {
	j := &journal{dir: dir}
	return j, j.open()
}

func (j *journal) open() (err error) {
	if j.file, err = os.Create(filepath.Join(j.dir, "history")); err == nil {
		j.w = bufio.NewWriterSize(j.file, 1<<16)
	}
	return err
}

func (j *journal) add(n uint64, e event) error {
	_, err := fmt.Fprintf(j.w, "%d %s\n", n, line(e))
	return err
}

func (j *journal) close() error { return errors.Join(j.w.Flush(), j.file.Close()) }

// turn begins a new file and keeps the last one.
func (j *journal) turn() error {
	path := filepath.Join(j.dir, "history")
	return errors.Join(j.close(), os.Rename(path, path+".before"), j.open())
}
