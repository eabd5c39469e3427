package broker_test

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"weida/broker"
	"weida/broker/control"
	"weida/broker/peer"
)

// Matrix 33: a data directory that was put back to before the node's last start counts to the same incarnation, and
// with every start that fails further: it is not the node for anybody, and nothing of it is counted as evidence.
func TestDirectoryPutBackIsNotTheNode(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	r.registered(0)
	stands := func() (s control.NodeStatus) {
		for _, n := range r.nodes[0].Registry().Nodes {
			if n.Metadata.Name == "n3" {
				s = n.Status
			}
		}
		return s
	}
	first := stands()
	if first.Nonce == "" {
		t.Fatalf("no nonce is registered: %+v", first)
	}
	r.stop(2)
	copied := r.dir + "/copy"
	r.copyDir(r.configs[2].Dir, copied)
	r.start(2)
	r.until("the second life is registered", func() bool { return stands().Incarnation == first.Incarnation+1 })
	second := stands()
	r.stop(2)
	if err := os.RemoveAll(r.configs[2].Dir); err != nil {
		t.Fatal(err)
	}
	r.copyDir(copied, r.configs[2].Dir)
	links := make(chan string, 256)
	r.configs[2].Log = slog.New(linkLog{slog.DiscardHandler, links})
	for starts := range 3 {
		r.start(2)
		r.displaced(r.nodes[2], false)
		if now := stands(); now.Incarnation != second.Incarnation || now.Nonce != second.Nonce {
			t.Errorf("start %d of the copy is registered: %+v", starts+1, now)
		}
		r.stop(2)
	}
	close(links)
	for text := range links {
		if strings.HasPrefix(text, "link up") {
			t.Errorf("the copy was linked: %s", text)
		}
	}
}

// Matrix 32: a second process on a copy of the directory of a node that runs is turned away, though it was started
// later and counts higher; the node that runs stays what it is.
func TestTwinProcessIsNotTheNode(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	for i := range r.nodes {
		r.registered(i)
	}
	for i := range r.nodes {
		c := r.configs[i]
		c.Dir += "-twin"
		c.Listen = "127.0.0.1:0"
		r.copyDir(r.configs[i].Dir, c.Dir)
		twin, err := broker.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		r.displaced(twin, true)
		if err := twin.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, n := range r.nodes {
		if err := n.DisplacedBy(); err != nil {
			t.Errorf("node %d gave way to a copy: %v", i+1, err)
		}
	}
	r.make("after", control.QueueSpec{Replicas: 3, Durability: control.Flushed})
}

// displaced waits until a process says that it is not the node.
func (r *clusterRig) displaced(n *broker.Node, twin bool) {
	r.t.Helper()
	select {
	case <-n.Displaced():
	case <-r.ctx.Done():
		r.t.Fatal("a process on a copy of a data directory does not find out")
	}
	var e *peer.DisplacedError
	if !errors.As(n.DisplacedBy(), &e) || twin && !e.Twin {
		r.t.Errorf("it says %v", n.DisplacedBy())
	}
}

func (r *clusterRig) until(what string, holds func() bool) {
	r.t.Helper()
	for !holds() {
		if r.ctx.Err() != nil {
			r.t.Fatal("it did not come to be: " + what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *clusterRig) copyDir(from, to string) {
	r.t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chmod(to, 0o700); err != nil {
		r.t.Fatal(err)
	}
}
