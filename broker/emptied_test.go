package broker_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"weida/broker/control"
)

// A node whose data directory was emptied comes with its key, and so with its number. It has forgotten what it had
// voted and confirmed: with it a member that was away could make a majority that knows nothing of what the two who were
// there had confirmed. So who was away does not take it for the node that it was, after a start of its own, too.
func TestEmptiedNodeIsNotTheMember(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	r.make("before", control.QueueSpec{Replicas: 1, Durability: control.Flushed})
	r.registered(1)
	r.stop(1)
	r.make("confirmed", control.QueueSpec{Replicas: 1, Durability: control.Flushed})
	r.stop(0)
	r.stop(2)
	if err := os.RemoveAll(r.configs[2].Dir); err != nil {
		t.Fatal(err)
	}
	links := make(chan string, 64)
	r.configs[1].Log = slog.New(linkLog{slog.DiscardHandler, links})
	r.start(1)
	r.start(2)
	for {
		select {
		case text := <-links:
			if strings.HasPrefix(text, "link up") {
				t.Fatal("the node that knows nothing was taken for the member it was")
			}
			if strings.HasPrefix(text, "link refused") && strings.Contains(text, "the node's disk is not the member's") {
				return
			}
		case <-r.ctx.Done():
			t.Fatal("nothing was said of the link")
		}
	}
}

// registered waits until a node knows the disks of all.
func (r *clusterRig) registered(i int) {
	r.t.Helper()
	for {
		known := 0
		for _, n := range r.nodes[i].Registry().Nodes {
			if n.Status.Disk != "" {
				known++
			}
		}
		if known == len(r.nodes) {
			return
		}
		if r.ctx.Err() != nil {
			r.t.Fatalf("%d disks are known", known)
		}
		time.Sleep(time.Millisecond)
	}
}

// linkLog passes on what is said of links, and nothing else.
type linkLog struct {
	slog.Handler
	links chan<- string
}

func (l linkLog) Enabled(context.Context, slog.Level) bool { return true }

func (l linkLog) Handle(_ context.Context, rec slog.Record) error {
	if strings.HasPrefix(rec.Message, "link ") {
		text := rec.Message
		rec.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		select {
		case l.links <- text:
		default:
		}
	}
	return nil
}

func (l linkLog) WithAttrs(list []slog.Attr) slog.Handler {
	return linkLog{l.Handler.WithAttrs(list), l.links}
}

func (l linkLog) WithGroup(name string) slog.Handler {
	return linkLog{l.Handler.WithGroup(name), l.links}
}
