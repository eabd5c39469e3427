package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weida/broker/client"
	"weida/broker/wire"
)

// peeked takes the client's next stream, which has to ask for that.
func (s *script) peeked(want wire.OpenPeek) *side {
	s.t.Helper()
	b, f := s.accept()
	if d := cmp.Diff(&want, f); d != "" {
		s.t.Fatalf("asked for (-want +got):\n%s", d)
	}
	b.ended()
	return b
}

// gather peeks in the background.
func (s *script) gather(o client.PeekOptions) chan []string {
	out := make(chan []string, 1)
	go func() {
		var got []string
		for d, err := range s.c.Peek(s.ctx, "demo", o) {
			if err != nil {
				got = append(got, err.Error())
				break
			}
			body, err := io.ReadAll(d.Body())
			got = append(got, fmt.Sprintf("%d/%d %s:%d %s %v", d.Offset, d.Attempt, d.Producer, d.Seq, body, err))
			if err := d.Accept(s.ctx); !errors.Is(err, client.ErrPeeked) {
				got = append(got, fmt.Sprint("accepted: ", err))
			}
		}
		out <- got
	}()
	return out
}

// Peek goes on where the broker stopped, until it has enough or there is no more.
func TestPeek(t *testing.T) {
	s := newScript(t)
	show := func(offset uint64, body string) *wire.Deliver {
		f := delivery(offset, body)
		f.Attempt, f.Producer, f.Seq = 0, "p1", offset+100
		return f
	}
	got := s.gather(client.PeekOptions{From: 7, Count: 3})
	b := s.peeked(wire.OpenPeek{Queue: "demo", From: 7, Count: 3})
	b.send(show(9, "a"), show(12, "b"), &wire.PeekEnd{Next: 13, More: true})
	b.close()
	b = s.peeked(wire.OpenPeek{Queue: "demo", From: 13, Count: 1})
	b.send(show(20, "c"), &wire.PeekEnd{Next: 21, More: true})
	b.close()
	want := []string{"9/0 p1:109 a <nil>", "12/0 p1:112 b <nil>", "20/0 p1:120 c <nil>"}
	if d := cmp.Diff(want, <-got); d != "" {
		t.Error(d)
	}
	got = s.gather(client.PeekOptions{})
	b = s.peeked(wire.OpenPeek{Queue: "demo", Count: 1024})
	b.send(show(0, "x"), &wire.PeekEnd{Next: 1})
	b.close()
	if d := cmp.Diff([]string{"0/0 p1:100 x <nil>"}, <-got); d != "" {
		t.Error(d)
	}
}

func TestPeekThatFails(t *testing.T) {
	cases := []struct {
		says   string
		frames []wire.Frame
	}{
		{"no queue of that name", []wire.Frame{&wire.ErrorFrame{Code: wire.UnknownQueue}}},
		{"offset 6, which was not asked for", []wire.Frame{delivery(6, "below")}},
		{"offset 8, which was not asked for", []wire.Frame{delivery(8, "a"), delivery(8, "twice")}},
		{"offset 10, which was not asked for", []wire.Frame{delivery(8, "a"), delivery(9, "b"), delivery(10, "too many")}},
		{"went on at 7", []wire.Frame{&wire.PeekEnd{Next: 7, More: true}}},
		{"with PURGED", []wire.Frame{&wire.Purged{}}},
		{"the connection to", nil},
	}
	s := newScript(t)
	for _, c := range cases {
		got := s.gather(client.PeekOptions{From: 7, Count: 2})
		b := s.peeked(wire.OpenPeek{Queue: "demo", From: 7, Count: 2})
		b.send(c.frames...)
		b.close()
		if list := <-got; len(list) == 0 || !strings.Contains(list[len(list)-1], c.says) {
			t.Errorf("got %q, want %q", list, c.says)
		}
	}
}

// A large body that was peeked at and not read gives its place back: more than a connection has.
func TestPeekLeavesBodies(t *testing.T) {
	s := newScript(t)
	body := pattern(300_000)
	digest := digestOf(body)
	head := wire.Append(nil, &wire.BodyHead{Length: uint64(len(body))})
	for i := range 40 {
		done := make(chan error, 1)
		go func() {
			for d, err := range s.c.Peek(s.ctx, "demo", client.PeekOptions{}) {
				if err == nil && i%2 == 0 {
					_, err = io.ReadFull(d.Body(), make([]byte, 1000))
				}
				done <- err
				break
			}
		}()
		b := s.peeked(wire.OpenPeek{Queue: "demo", Count: 1024})
		b.deliverLarge(3, body, digest, whole(head, body, digest[:]))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		b.close()
	}
}

func TestRequests(t *testing.T) {
	s := newScript(t)
	purge := func(ctx context.Context) error {
		p, err := s.c.Purge(ctx, "demo")
		if err == nil && p != (client.Purged{Count: 300, Left: 2}) {
			err = fmt.Errorf("%+v", p)
		}
		return err
	}
	unsubscribe := func(ctx context.Context) error { return s.c.Unsubscribe(ctx, "demo", "s") }
	retire := func(ctx context.Context) error { return s.c.Retire(ctx, "demo", "p1") }
	cases := []struct {
		call    func(context.Context) error
		request wire.Frame
		answer  wire.Frame
		says    string
	}{
		{purge, &wire.Purge{Queue: "demo"}, &wire.Purged{Count: 300, Left: 2}, ""},
		{purge, &wire.Purge{Queue: "demo"}, &wire.ErrorFrame{Code: wire.NotAllowed}, "may not do that"},
		{purge, &wire.Purge{Queue: "demo"}, &wire.Done{}, "it answered PURGE with DONE"},
		{purge, &wire.Purge{Queue: "demo"}, nil, "may or may not have been done"},
		{unsubscribe, &wire.Unsubscribe{Queue: "demo", Subscription: "s"}, &wire.Done{}, ""},
		{unsubscribe, &wire.Unsubscribe{Queue: "demo", Subscription: "s"}, &wire.Purged{}, "with PURGED"},
		{retire, &wire.Retire{Queue: "demo", Producer: "p1"}, &wire.Done{}, ""},
		{
			retire, &wire.Retire{Queue: "demo", Producer: "p1"},
			&wire.ErrorFrame{Code: wire.ProducerOwned}, "belongs to another identity",
		},
	}
	for _, c := range cases {
		got := make(chan error, 1)
		go func() { got <- c.call(s.ctx) }()
		b, f := s.accept()
		if d := cmp.Diff(c.request, f); d != "" {
			t.Error(d)
		}
		b.ended()
		if c.answer != nil {
			b.send(c.answer)
		}
		b.close()
		if err := <-got; (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v answered by %v: %v; want %q", c.request.Type(), c.answer, err, c.says)
		}
	}
	ended, cancel := context.WithCancel(s.ctx)
	got := make(chan error, 1)
	go func() { got <- retire(ended) }()
	s.accept()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("a request that nobody answers: %v", err)
	}
	long := strings.Repeat("x", wire.QueueMax+1)
	if _, err := s.c.Purge(s.ctx, long); err == nil {
		t.Error("a queue name that is too long")
	}
	if err := s.c.Unsubscribe(s.ctx, "demo", long); err == nil {
		t.Error("an id that is too long")
	}
}
