package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"weida/broker/client"
)

// sink counts the lines that have left, and may fail.
type sink struct {
	mu    sync.Mutex
	lines int   // guarded by mu
	fail  error // guarded by mu
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return 0, s.fail
	}
	s.lines += bytes.Count(b, []byte("\n"))
	return len(b), nil
}

func (s *sink) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines
}

func lineOf(i int) func(*bufio.Writer) error {
	return func(w *bufio.Writer) error {
		_, err := w.WriteString(strconv.Itoa(i) + "\n")
		return err
	}
}

// TestTaker: deliveries are settled in order, each once, and none before its line has left the process.
func TestTaker(t *testing.T) {
	out := &sink{}
	next := uint64(0)
	tk := newTaker(t.Context(), bufio.NewWriterSize(out, 64), func(d *client.Delivery, _ context.Context) error {
		if d.Offset != next || out.left() <= int(d.Offset) {
			t.Errorf("settled %d after %d, with %d lines out", d.Offset, next, out.left())
		}
		next++
		return nil
	})
	const n = 10_000
	for i := range n {
		if err := tk.take(&client.Delivery{Offset: uint64(i)}, lineOf(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tk.end(); err != nil || next != n {
		t.Errorf("%d settled, %v", next, err)
	}
}

// TestTakerFails: nothing is settled that could not be printed, and an error of either side ends both.
func TestTakerFails(t *testing.T) {
	broken := errors.New("as the test says")
	for _, c := range []struct {
		name                 string
		write, print, settle error
		settled              uint64
	}{
		{"write", broken, nil, nil, 0},
		{"print", nil, broken, nil, 0},
		{"settle", nil, nil, broken, 1}, // tried once
	} {
		t.Run(c.name, func(t *testing.T) {
			settled := uint64(0)
			tk := newTaker(t.Context(), bufio.NewWriter(&sink{fail: c.write}), func(*client.Delivery, context.Context) error {
				settled++
				return c.settle
			})
			var err error
			for i := 0; err == nil && i < 3*takerMax; i++ { // it must not wait for room for ever
				err = tk.take(&client.Delivery{}, func(w *bufio.Writer) error {
					return errors.Join(c.print, lineOf(i)(w))
				})
			}
			if err == nil {
				t.Error("it went on")
			}
			if err := tk.end(); !errors.Is(err, broken) || settled != c.settled {
				t.Errorf("%d settled, %v", settled, err)
			}
		})
	}
}

// TestDistinct: an error that comes twice is said once.
func TestDistinct(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	if got := distinct(a, nil, errors.Join(b, a)); got.Error() != "a\nb" || !errors.Is(got, b) {
		t.Errorf("%v", got)
	}
	if got := distinct(nil, nil); got != nil {
		t.Errorf("%v", got)
	}
}
