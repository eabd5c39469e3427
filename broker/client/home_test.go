package client_test

import (
	"path/filepath"
	"testing"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/fsync"
)

// home is where a real node lives: its directory, address and keys outlive it.
type home struct {
	t        testing.TB
	c        broker.Config
	key, own *endpoint.Identity
	n        *broker.Node // nil while it is down
}

// newHome starts a node with the queue "demo", and ends it with the test.
func newHome(t testing.TB) *home {
	t.Helper()
	dir := t.TempDir()
	id := func(name string) *endpoint.Identity {
		i, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	h := &home{t: t, key: id("client"), own: id("node")}
	h.c = broker.Config{
		Dir: filepath.Join(dir, "n1"), Listen: "127.0.0.1:0", Identity: h.own,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{h.key.Fingerprint(): endpoint.RoleAdmin}),
	}
	h.start()
	h.c.Listen = h.n.Addr().String()
	if err := h.n.MakeQueue(t.Context(), "demo", control.QueueSpec{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.stop)
	return h
}

func (h *home) start() {
	h.t.Helper()
	n, err := broker.Open(h.c)
	if err != nil {
		h.t.Fatal(err)
	}
	h.n = n
}

func (h *home) stop() {
	h.t.Helper()
	if h.n == nil {
		return
	}
	if err := h.n.Close(); err != nil {
		h.t.Error(err)
	}
	h.n = nil
}

func (h *home) client() *client.Client {
	h.t.Helper()
	c, err := client.Dial(h.t.Context(), client.Options{
		Addrs: []string{h.c.Listen}, Identity: h.key,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{h.own.Fingerprint(): endpoint.RoleNode}),
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	return c
}
