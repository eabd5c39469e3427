package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
)

// lineWriter hands on each write.
type lineWriter chan string

func (l lineWriter) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A wait tells its reason, once for as long as it stays the same, and its error has the last one.
func TestQueueWaitTells(t *testing.T) {
	said := make(lineWriter)
	reasons := []string{"", noAnswer, "its copy is damaged", "its copy is damaged", "nobody serves it"}
	w := &queueWait{queue: "a", talk: said, quiet: time.Nanosecond, again: time.Nanosecond}
	w.why = func(context.Context) string {
		first := reasons[0]
		if len(reasons) > 1 {
			reasons = reasons[1:]
		}
		return first
	}
	w.begin(t.Context())
	for _, want := range []string{noAnswer, "its copy is damaged", "nobody serves it"} {
		if got := <-said; got != "queue/a: still trying for 30s: "+want+"\n" {
			t.Errorf("it said %q, not %q", got, want)
		}
	}
	err := w.end(t.Context(), &wire.Error{Code: wire.NoQuorum})
	if err == nil || !strings.HasSuffix(err.Error(), "\nqueue/a: nobody serves it") || status(err) != statusRefused {
		t.Error(err)
	}
}

// What ends before anything was told looks once, where the error leaves open what is wrong; one that ends well, or
// because it was interrupted, does not look.
func TestQueueWaitEndsAtOnce(t *testing.T) {
	looks := 0
	ended := func(ctx context.Context, err error) error {
		w := &queueWait{queue: "a", talk: io.Discard, quiet: time.Hour, why: func(context.Context) string {
			looks++
			return "its only copy is on n2"
		}}
		w.begin(ctx)
		return w.end(ctx, err)
	}
	err := ended(t.Context(), &wire.Error{Code: wire.NotReady})
	if !strings.HasSuffix(err.Error(), "on n2") || looks != 1 {
		t.Errorf("%d looks, %v", looks, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{
		ended(t.Context(), nil), ended(t.Context(), &wire.Error{Code: wire.QueueFull}),
		ended(gone, interruptedAs(gone, context.Canceled, "nothing was taken")),
	} {
		if err != nil && strings.Contains(err.Error(), "n2") {
			t.Error(err)
		}
	}
	if looks != 1 {
		t.Errorf("%d looks", looks)
	}
}

func TestWhyOf(t *testing.T) {
	members := map[string]string{"k1": "n1", "k2": "n2, which does not answer"}
	one := func() *item {
		it := &item{}
		it.Status.Placement = []control.Replica{{Node: "k2", Owner: true}}
		return it
	}
	damaged, led, three := one(), one(), one()
	damaged.Live = &liveItem{Trouble: "its file is damaged"}
	led.Leader = "n1"
	three.Status.Placement = []control.Replica{{Node: "k1"}, {Node: "k2"}, {Node: "k3"}}
	got := []string{whyOf(one(), members), whyOf(damaged, members), whyOf(led, members), whyOf(three, members)}
	want := []string{
		"nobody serves it; its only copy is on n2, which does not answer",
		"its file is damaged; nobody serves it; its only copy is on n2, which does not answer", "",
		"nobody leads it, which takes most of its replicas: n1; n2, which does not answer; node k3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A look does not speak of a message that was not stored.
func TestReadsStoreNothing(t *testing.T) {
	refused := &wire.Error{Code: wire.NotReady}
	err := asRead(refused)
	if strings.Contains(err.Error(), "stored") || !strings.Contains(err.Error(), "Nothing was changed.") ||
		!errors.Is(err, error(refused)) || asRead(nil) != nil {
		t.Error(err)
	}
}
