package doctor

import (
	"context"
	"io"
	"net"
	"testing"

	"weida/broker/endpoint"
	"weida/fsync"
)

// listening starts a node's socket that lets keys in as nodes, and returns its address and key.
func listening(t *testing.T, trusted ...endpoint.Fingerprint) (address, fingerprint string) {
	t.Helper()
	id, err := endpoint.NewIdentity("peer")
	if err != nil {
		t.Fatal(err)
	}
	roles := make(map[endpoint.Fingerprint]endpoint.Role)
	for _, f := range trusted {
		roles[f] = endpoint.RoleNode
	}
	l, err := endpoint.Listen(endpoint.ListenOptions{
		Addr: "127.0.0.1:0", Identity: id, Trust: endpoint.NewTrust(roles), Nodes: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept(ctx)
			if err != nil {
				return
			}
			if stream, err := conn.AcceptStream(ctx); err == nil {
				_, _ = io.Copy(io.Discard, stream) // what a node does with a stream that asks for nothing
				_ = stream.Close()
			}
		}
	}()
	t.Cleanup(func() { cancel(); _ = l.Close(); <-ended }) // the test is over
	return l.Addr().String(), id.Fingerprint().String()
}

// TestPeers: one that is right, one that turns this key away, one with another key than is known of it, one of which
// only the address is known, one that is silent, and one whose name leads nowhere.
func TestPeers(t *testing.T) {
	data := t.TempDir()
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), data, "node")
	if err != nil {
		t.Fatal(err)
	}
	mine := lookKey(data)
	right, rightKey := listening(t, id.Fingerprint())
	closed, closedKey := listening(t)
	other, _ := listening(t, id.Fingerprint())
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }() // nothing was sent
	target := &Target{
		Data: data, Name: "me", Peers: []string{right, other, "nowhere.invalid:7443", "no-port"},
		Seeds: []Seed{
			{"me", "127.0.0.1:1", mine.Fingerprint},
			{"right", right, rightKey},
			{"closed", closed, closedKey},
			{"wrong", other, rightKey},
			{"silent", silent.LocalAddr().String(), closedKey},
		},
	}
	list := lookPeers(context.Background(), target, &mine)
	want := map[string]Verdict{
		"right": OK, "closed": Fail, "wrong": Fail, "silent": Warn, "nowhere.invalid:7443": Fail, "no-port": Fail,
	}
	for i := range list {
		p := &list[i]
		name := p.Name
		if name == "" {
			name = p.Address
		}
		p.Took = min(p.Took, farAway) // a slow machine is not what is looked at
		if c := peer(p, false); c.Verdict != want[name] {
			t.Errorf("%s: %+v of %+v", name, c, p)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not looked at: %v", want)
	}
	if !list[0].Answered || list[0].Took <= 0 || list[0].NotMine {
		t.Errorf("%+v", list[0])
	}
	// A node without a key asks with one for the moment, and makes none.
	none := Key{Absent: true}
	list = lookPeers(context.Background(), &Target{
		Data: t.TempDir(), Name: "me", Peers: []string{right},
		Seeds: []Seed{{"me", "127.0.0.1:1", ""}, {"closed", closed, closedKey}},
	}, &none)
	for i := range list {
		list[i].Took = min(list[i].Took, farAway)
	}
	if len(list) != 2 || !list[0].Away || !list[0].NotMine || peer(&list[0], false).Verdict != OK ||
		list[1].Proved != rightKey || peer(&list[1], false).Verdict != OK {
		t.Errorf("%+v", list)
	}
}
