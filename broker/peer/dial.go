package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"weida/broker/endpoint"
)

// The pauses between attempts: they grow from the first to the last, and each is spread over its upper half. A link
// that stood for steadyAfter is dialled again at once.
const (
	pauseFirst  = 50 * time.Millisecond
	pauseLast   = 2 * time.Second
	steadyAfter = time.Second
)

// run keeps the link up until it ends.
func (k *link) run() {
	if !k.dials {
		k.knock()
		return
	}
	fails, last := 0, ""
	for k.ctx.Err() == nil {
		began := k.links.o.Clock.Now()
		p, err := k.dialPair()
		if err == nil {
			last = ""
			<-p.over
			if k.links.o.Clock.Now().Sub(began) >= steadyAfter {
				fails = 0
				continue
			}
		}
		if err != nil && err.Error() != last {
			last = err.Error()
			k.report(err)
		}
		fails++
		k.pause(fails)
	}
}

// knock is what the side does that does not dial: once, when it begins or the other's address changes, it shows itself,
// so that the other, which may be in a long pause, dials at once.
func (k *link) knock() {
	for k.ctx.Err() == nil {
		k.resolve()
		if k.pair.Load() == nil {
			// It ends with DialBack, or nobody is there to hear it, who will dial when it begins.
			if c, _, err := k.greetAt(kindRaft, k.addresses(), 0); err == nil {
				refuse(c, DialBack)
			}
		}
		select {
		case <-k.wake:
		case <-k.ctx.Done():
		}
	}
}

// report tells of an attempt that came to nothing.
func (k *link) report(err error) {
	if k.ctx.Err() != nil {
		return
	}
	var refused *RefusedError
	if !errors.As(err, &refused) {
		k.links.o.Event(Event{Kind: Unreachable, Node: k.id, Err: err})
		return
	}
	k.tellRefused(refused)
}

// pause waits after so many attempts in vain, or until the other side was seen.
func (k *link) pause(fails int) {
	d := min(pauseFirst<<min(fails-1, 10), pauseLast)
	d = d/2 + time.Duration(k.links.o.Rand()*float64(d/2))
	after := make(chan struct{})
	stop := k.links.o.Clock.AfterFunc(d, func() { close(after) })
	defer stop()
	select {
	case <-after:
	case <-k.wake:
	case <-k.ctx.Done():
	}
}

// dialPair makes both connections, to one address.
func (k *link) dialPair() (*pair, error) {
	k.resolve()
	attempt := k.links.attempts.Add(1)
	k.count.dials.Add(1)
	c, h, err := k.greetAt(kindRaft, k.addresses(), attempt)
	if err != nil {
		return nil, err
	}
	if err := k.join(c, &h); err != nil {
		return nil, k.turnAway(c, err)
	}
	c, h, err = k.greetAt(kindPayload, []string{c.RemoteAddr().String()}, attempt)
	if err == nil {
		if err = k.join(c, &h); err != nil {
			err = k.turnAway(c, err)
		}
	}
	p := k.pair.Load()
	if err == nil && p != nil {
		return p, nil
	}
	k.mu.Lock()
	k.drop(Replaced)
	k.mu.Unlock()
	k.tell()
	if err == nil {
		err = fmt.Errorf("peer: dial node %d: it ended or began anew meanwhile; it is tried again", k.id)
	}
	return nil, err
}

func (k *link) addresses() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node.Addresses
}

// greetAt dials the addresses in turn until one answers, and learns who is there.
func (k *link) greetAt(kind int, addrs []string, attempt uint64) (*endpoint.Conn, hello, error) {
	err := fmt.Errorf("peer: dial node %d: no address is known; give the node one", k.id)
	for _, addr := range addrs {
		c, derr := k.links.listener.DialPeer(k.ctx, addr, protocols[kind], k.key)
		if derr != nil {
			err = fmt.Errorf("peer: dial node %d: %w", k.id, derr)
			continue
		}
		h, herr := k.links.exchangeHellos(k.ctx, c, k, attempt)
		if herr == nil {
			return c, h, nil
		}
		err = k.turnAway(c, herr)
	}
	return nil, hello{}, err
}

// resolve looks the names among the addresses up, so that what comes from there gets a node's limits.
func (k *link) resolve() {
	var found []netip.AddrPort
	names := 0
	for _, a := range k.addresses() {
		if ap, err := netip.ParseAddrPort(a); err == nil {
			found = append(found, plainAddr(ap))
			continue
		}
		names++
		found = append(found, k.lookUp(a)...)
	}
	if names == 0 {
		return
	}
	k.mu.Lock()
	k.resolved = found
	k.mu.Unlock()
	k.links.mu.Lock()
	k.links.lookAround()
	k.links.mu.Unlock()
}

// lookUp finds the addresses of a name. What cannot be found is no hint; the dial says what is wrong with it.
func (k *link) lookUp(addr string) (list []netip.AddrPort) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(k.ctx, helloPatience)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for _, ip := range ips {
		list = append(list, plainAddr(netip.AddrPortFrom(ip, uint16(n))))
	}
	return list
}

// literal are the addresses that need no looking up.
func literal(addrs []string) (list []netip.AddrPort) {
	for _, a := range addrs {
		if ap, err := netip.ParseAddrPort(a); err == nil {
			list = append(list, plainAddr(ap))
		}
	}
	return list
}

// plainAddr is one form of an address that has several.
func plainAddr(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
