package client_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"weida/broker/client"
	"weida/broker/wire"
)

// node is a real broker on a real directory, with a client of it.
func node(t testing.TB) *client.Client {
	t.Helper()
	return newHome(t).client()
}

// Small, large, empty and broken messages on one connection: every place of a stream or window comes back.
func TestManyBodiesOfEverySize(t *testing.T) {
	c := node(t)
	p, err := c.Producer(t.Context(), "demo", client.ProducerOptions{Want: written})
	if err != nil {
		t.Fatal(err)
	}
	var sent [][]byte
	for i := range 120 {
		m := client.Message{}
		body := pattern([]int{i, 0, wire.InlineMax, wire.InlineMax + 1, 200_000, 300_000}[i%6])
		m.Body, m.Length = bytes.NewReader(body), int64(len(body))
		broken := i%6 == 5
		if broken {
			m.Body = io.MultiReader(bytes.NewReader(body[:100_000]), iotest.ErrReader(fmt.Errorf("broken %d", i)))
		} else {
			sent = append(sent, body)
		}
		res, err := p.Publish(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if broken && (res.Outcome != client.Refused || !strings.Contains(res.Err.Detail, fmt.Sprint("broken ", i))) ||
			!broken && (res.Outcome != client.OK || res.Offset != uint64(len(sent)-1)) {
			t.Fatalf("message %d: %+v", i, res)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	k, err := c.Consumer(t.Context(), "demo", client.ConsumerOptions{Subscription: "s", Limit: uint64(len(sent))})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for d, err := range k.Deliveries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		read(t, d, sent[d.Offset])
		if err := d.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if stale, err := k.Flush(t.Context()); err != nil || len(stale) > 0 {
		t.Error(stale, err)
	}
}

// BenchmarkPublish: messages of 100 bytes, at most 1024 under way.
func BenchmarkPublish(b *testing.B) {
	for _, want := range []wire.Want{wire.Accepted(), written, flushed} {
		b.Run(want.String(), func(b *testing.B) {
			c := node(b)
			p, err := c.Producer(b.Context(), "demo", client.ProducerOptions{Want: want})
			if err != nil {
				b.Fatal(err)
			}
			body := pattern(100)
			bad := 0
			b.ReportAllocs()
			for b.Loop() {
				err := p.Send(b.Context(), client.Message{Body: bytes.NewReader(body), Length: 100}, func(r client.Result) {
					if r.Outcome != client.OK {
						bad++
					}
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			if err := p.Close(b.Context()); err != nil || bad > 0 {
				b.Fatal(bad, err)
			}
		})
	}
}

// BenchmarkBulk: a body of 64 MiB to the broker's disk and back.
func BenchmarkBulk(b *testing.B) {
	const size = 64 << 20
	c := node(b)
	p, err := c.Producer(b.Context(), "demo", client.ProducerOptions{Want: written})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("publish", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			r, err := p.Publish(b.Context(), client.Message{Body: zeros{}, Length: size})
			if err != nil || r.Outcome != client.OK {
				b.Fatal(r, err)
			}
		}
	})
	b.Run("consume", func(b *testing.B) {
		b.SetBytes(size)
		k, err := c.Consumer(b.Context(), "demo", client.ConsumerOptions{Credit: 1})
		if err != nil {
			b.Fatal(err)
		}
		defer k.Close()
		for b.Loop() {
			for d, err := range k.Deliveries(b.Context()) {
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, d.Body()); err != nil {
					b.Fatal(err)
				}
				if err := d.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
				break
			}
		}
	})
}
