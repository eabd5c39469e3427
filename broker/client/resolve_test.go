package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
)

// zone is a DNS server on the loopback interface with the records of a test.
type zone struct {
	t    *testing.T
	conn net.PacketConn
	srv  map[string][]net.SRV
	ips  map[string][]string

	mu    sync.Mutex
	asked []string // guarded by mu
}

func newZone(t *testing.T) *zone {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{t: t, conn: conn, srv: make(map[string][]net.SRV), ips: make(map[string][]string)}
	t.Cleanup(func() { _ = conn.Close() }) // the server ends with it
	return z
}

// resolver asks the server, whatever the machine is configured to ask. The records stay as they are from then on.
func (z *zone) resolver() *net.Resolver {
	var serving sync.WaitGroup
	serving.Go(z.serve)
	z.t.Cleanup(func() {
		_ = z.conn.Close() // it may be closed already
		serving.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", z.conn.LocalAddr().String())
	}}
}

func (z *zone) serve() {
	b := make([]byte, 1500)
	for {
		n, from, err := z.conn.ReadFrom(b)
		if err != nil {
			return
		}
		if answer, ok := z.answer(b[:n]); ok {
			_, _ = z.conn.WriteTo(answer, from) // who asks asks again
		}
	}
}

const (
	dnsA    = 1
	dnsAAAA = 28
	dnsSRV  = 33
)

// answer reads the question behind the header and appends the records that it asks for.
func (z *zone) answer(q []byte) ([]byte, bool) {
	at, labels := 12, []string(nil)
	for at < len(q) && q[at] > 0 {
		labels = append(labels, string(q[at+1:at+1+int(q[at])]))
		at += 1 + int(q[at])
	}
	end := at + 5
	if end > len(q) {
		return nil, false
	}
	name, kind := strings.ToLower(strings.Join(labels, ".")), binary.BigEndian.Uint16(q[at+1:])
	z.mu.Lock()
	z.asked = append(z.asked, fmt.Sprint(name, " ", kind))
	z.mu.Unlock()
	records, known := z.records(name, kind)
	out := append([]byte(nil), q[:end]...)
	out[2], out[3] = 0x84, 0 // an answer, with authority
	if !known {
		out[3] = 3 // there is no such name
	}
	binary.BigEndian.PutUint16(out[6:], uint16(len(records)))
	clear(out[8:12])
	for _, r := range records {
		out = append(out, 0xc0, 12) // the name asked for
		out = binary.BigEndian.AppendUint16(out, kind)
		out = append(out, 0, 1, 0, 0, 0, 60)
		out = binary.BigEndian.AppendUint16(out, uint16(len(r)))
		out = append(out, r...)
	}
	return out, true
}

func (z *zone) records(name string, kind uint16) (list [][]byte, known bool) {
	for _, srv := range z.srv[name] {
		known = true
		if kind != dnsSRV {
			continue
		}
		var r []byte
		for _, v := range []uint16{srv.Priority, srv.Weight, srv.Port} {
			r = binary.BigEndian.AppendUint16(r, v)
		}
		for label := range strings.SplitSeq(srv.Target, ".") {
			r = append(append(r, byte(len(label))), label...)
		}
		list = append(list, append(r, 0))
	}
	for _, text := range z.ips[name] {
		known = true
		ip := netip.MustParseAddr(text)
		if ip.Is4() && kind == dnsA || ip.Is6() && kind == dnsAAAA {
			list = append(list, ip.AsSlice())
		}
	}
	return list, known
}

// port is of a node's address.
func (m *member) port() uint16 { return netip.MustParseAddrPort(m.addr).Port() }

// W-41: a name without a port is where its SRV record says, by priority, whatever the weights are.
func TestDiscoveryBySRV(t *testing.T) {
	h := newHall(t, 4)
	z := newZone(t)
	z.ips["n0.weida.test"] = []string{"127.0.0.1"}
	z.ips["n1.weida.test"] = []string{"127.0.0.1"}
	z.ips["weida.test"] = []string{"127.0.0.9"}
	z.srv["_weida._udp.weida.test"] = []net.SRV{
		{Priority: 20, Weight: 60000, Port: h.nodes[0].port(), Target: "n0.weida.test"},
		{Priority: 10, Weight: 0, Port: h.nodes[1].port(), Target: "n1.weida.test"},
	}
	h.dial.Addrs, h.dial.Resolver = []string{"weida.test"}, z.resolver()
	h.nodes[0].says(&wire.Done{})
	h.nodes[1].says(&wire.Done{})
	c := h.client()
	if err := h.ask(c); err != nil {
		t.Fatal(err)
	}
	h.asked(0, 1)
	h.nodes[1].gone()
	if err := h.ask(c); err != nil {
		t.Fatal(err)
	}
	h.asked(1, 1)
}

// W-41: without an SRV record a name stands for its own addresses, with the default port; with a port no record is
// asked for; and an address is an address.
func TestDiscoveryByAddress(t *testing.T) {
	h := newHall(t, 2)
	z := newZone(t)
	z.ips["weida.test"] = []string{"127.0.0.1"}
	h.dial.Resolver = z.resolver()
	h.nodes[0].says(&wire.Done{})
	h.dial.Addrs = []string{fmt.Sprint("weida.test:", h.nodes[0].port())}
	if err := h.ask(h.client()); err != nil {
		t.Fatal(err)
	}
	for _, q := range z.questions() {
		if strings.HasPrefix(q, "_weida") {
			t.Errorf("asked for %q", q)
		}
	}
	for addr, at := range map[string]string{
		"weida.test": "127.0.0.1:7443", "127.0.0.2": "127.0.0.2:7443", "::1": "[::1]:7443", "[::1]": "[::1]:7443",
	} {
		h.dial.Addrs = []string{addr}
		ctx, cancel := context.WithCancel(h.ctx)
		got, err := client.Addresses(ctx, h.dial)
		cancel()
		if err != nil || !slices.Equal(got, []string{at}) {
			t.Errorf("%s is %q, %v; want %s", addr, got, err, at)
		}
	}
	if !slices.Contains(z.questions(), fmt.Sprint("_weida._udp.weida.test ", dnsSRV)) {
		t.Errorf("asked for %q", z.questions())
	}
	h.dial.Addrs = []string{"nowhere.test"}
	var unreachable *endpoint.UnreachableError
	if _, err := client.Dial(h.ctx, h.dial); !errors.As(err, &unreachable) || unreachable.Addr != "nowhere.test" {
		t.Errorf("%v", err)
	}
}

func (z *zone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.asked)
}

// W-41: of what names resolve to, eight addresses are used.
func TestAtMostEightAddresses(t *testing.T) {
	z := newZone(t)
	for i := range 6 {
		z.ips["a.test"] = append(z.ips["a.test"], fmt.Sprint("127.0.1.", i))
		z.ips["b.test"] = append(z.ips["b.test"], fmt.Sprint("127.0.2.", i))
	}
	got, err := client.Addresses(t.Context(), client.Options{
		Addrs: []string{"a.test:1", "a.test:1", "b.test"}, Resolver: z.resolver(),
	})
	if err != nil || len(got) != client.AddressesMax || got[5] != "127.0.1.5:1" || got[6] != "127.0.2.0:7443" {
		t.Errorf("%q, %v", got, err)
	}
}

// Addresses where nobody answers do not hold up who knows another, now or when the connection is lost.
func TestDeadAddresses(t *testing.T) {
	h := newHall(t, 3)
	dead := make([]net.PacketConn, 3)
	for i := range dead {
		var err error
		if dead[i], err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		defer dead[i].Close()
	}
	h.dial.Addrs = []string{
		dead[0].LocalAddr().String(), h.nodes[0].addr, dead[1].LocalAddr().String(), dead[2].LocalAddr().String(),
		h.nodes[1].addr,
	}
	h.nodes[0].says(&wire.Done{})
	h.nodes[1].says(&wire.Done{})
	c := h.client()
	if err := h.ask(c); err != nil {
		t.Fatal(err)
	}
	h.nodes[0].gone()
	if err := h.ask(c); err != nil {
		t.Fatal(err)
	}
	h.asked(1, 1, 0)
}
