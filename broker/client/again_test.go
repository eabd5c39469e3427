package client_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"weida/broker/client"
	"weida/broker/wire"
)

// book is what a client was told of each of its bodies.
type book struct {
	mu      sync.Mutex
	results map[string]client.Result
	twice   []string
}

func newBook() *book { return &book{results: make(map[string]client.Result)} }

func (b *book) done(body string) func(client.Result) {
	return func(r client.Result) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if _, ok := b.results[body]; ok {
			b.twice = append(b.twice, body)
		}
		b.results[body] = r
	}
}

// check compares what was told with what the queue has.
func (m *model) check(t rapid.TB, b *book, sent int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range m.wrong {
		t.Errorf("the client: %s", w)
	}
	if len(b.results) != sent || len(b.twice) > 0 {
		t.Errorf("%d of %d messages have a result; twice: %q", len(b.results), sent, b.twice)
	}
	at := make(map[string]uint64)
	for offset, body := range m.stored {
		if _, ok := at[body]; ok {
			t.Errorf("%.20q is stored twice", body)
		}
		at[body] = uint64(offset)
	}
	for body, r := range b.results {
		offset, stored := at[body]
		switch r.Outcome {
		case client.OK:
			if !stored || r.Offset != offset || !r.Committed {
				t.Errorf("%.20q: told %+v; stored %v at %d", body, r, stored, offset)
			}
		case client.Refused:
			if stored {
				t.Errorf("%.20q: told refused (%v); stored at %d", body, r.Err, offset)
			}
		default:
		}
	}
}

func (b *book) count(o client.Outcome) (n int) {
	for _, r := range b.results {
		if r.Outcome == o {
			n++
		}
	}
	return n
}

// For every event k, a connection that ends at it: nothing is lost, doubled or answered wrongly; with
// and without a broker that says that it stops.
func TestConnectionEndsAtEveryEvent(t *testing.T) {
	m := newModel(t)
	for _, stops := range []bool{false, true} {
		cuts := 0
		for k := 1; ; k++ {
			m.reset()
			m.mu.Lock()
			m.cuts[k], m.stops = true, stops
			m.mu.Unlock()
			c := m.client()
			p, err := c.Producer(m.ctx, "demo", client.ProducerOptions{Want: written, ID: "p1"})
			if err != nil {
				t.Fatal(err)
			}
			b := newBook()
			for i := range 6 {
				body := fmt.Sprint("message ", i)
				if i == 3 {
					body = strings.Repeat("large ", 20_000)
				}
				msg := message(body)
				if err := p.Send(m.ctx, msg, b.done(body)); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Close(m.ctx); err != nil {
				t.Fatalf("event %d: %v", k, err)
			}
			c.Close()
			m.check(t, b, 6)
			if n := b.count(client.OK); n != 6 {
				t.Errorf("event %d: %d of 6 are ok: %+v", k, n, b.results)
			}
			if t.Failed() {
				t.Fatalf("stops %v, event %d", stops, k)
			}
			if m.events < k {
				break // the connection did not end any more
			}
			cuts++
		}
		if cuts < 10 {
			t.Errorf("only %d events", cuts)
		}
	}
}

// TestMain makes fewer random runs than rapid does by itself: WEIDA_RUNS, or few. Each has connections to make.
func TestMain(m *testing.M) {
	runs := os.Getenv("WEIDA_RUNS")
	if runs == "" {
		runs = "30"
	}
	if err := flag.Set("rapid.checks", runs); err != nil {
		fmt.Fprintf(os.Stderr, "WEIDA_RUNS=%q: %v\n", runs, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// TestRandomEnds: connections end anywhere, again and again, under random sizes, windows, refusals and
// sequences: what a client is told is true, and with an id nothing is indeterminate but what was
// refused when it was sent again.
func TestRandomEnds(t *testing.T) {
	m := newModel(t)
	rapid.Check(t, func(t *rapid.T) {
		m.reset()
		m.mu.Lock()
		for at := 2; at < 200; {
			at += rapid.IntRange(1, 40).Draw(t, "events to the next end")
			m.cuts[at] = true
		}
		m.stops = rapid.Bool().Draw(t, "stops")
		m.inFlight = uint64(rapid.IntRange(1, 9).Draw(t, "in flight"))
		m.size = uint64(rapid.SampledFrom([]int{1, 20, 1 << 20}).Draw(t, "bytes in flight"))
		refusing := rapid.IntRange(0, 1).Draw(t, "refusals") * 3
		asked := 0
		m.refuse = func(string) wire.Code {
			if asked++; refusing > 0 && asked%refusing == 0 {
				return wire.QueueFull
			}
			return wire.OK
		}
		m.mu.Unlock()
		identified := rapid.Bool().Draw(t, "with an id")
		o := client.ProducerOptions{
			Want: written, Window: rapid.IntRange(1, 9).Draw(t, "window"), Patience: patience,
		}
		if identified {
			o.ID = "p1"
		}
		c := m.client()
		defer c.Close()
		p, err := c.Producer(m.ctx, "demo", o)
		if err != nil {
			t.Fatal(err)
		}
		b := newBook()
		n := rapid.IntRange(1, 40).Draw(t, "messages")
		for i := range n {
			body := fmt.Sprint("message ", i)
			if rapid.IntRange(0, 15).Draw(t, "large") == 0 {
				body += strings.Repeat(" large", 12_000)
			}
			msg := message(body)
			if rapid.IntRange(0, 3).Draw(t, "jump") == 0 {
				msg.Seq = p.Next() + rapid.Uint64Range(0, 30).Draw(t, "by")
			}
			if err := p.Send(m.ctx, msg, b.done(body)); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 9).Draw(t, "flush") == 0 {
				_ = p.Flush(m.ctx) // its error is that of messages, which are looked at below
			}
		}
		_ = p.Close(m.ctx)
		m.check(t, b, n)
		if identified && refusing == 0 && b.count(client.OK) != n {
			t.Errorf("%d of %d are ok: %+v", b.count(client.OK), n, b.results)
		}
	})
}
