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

// knockGrace is how long an attempt goes on when the other side was seen meanwhile: it may be about to succeed.
const knockGrace = 100 * time.Millisecond

// dialOneOfSome bounds the attempt at one of several addresses.
const dialOneOfSome = time.Second

// resolvedMax bounds the addresses that one name stands for (W-41).
const resolvedMax = 8

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
		if addrs, err := k.resolve(); err == nil && k.pair.Load() == nil {
			// It ends with DialBack, or nobody is there to hear it, who will dial when it begins.
			var refused *RefusedError
			if c, _, err := k.greetAt(k.ctx, kindRaft, addrs, 0); err == nil {
				refuse(c, DialBack)
			} else if errors.As(err, &refused) && (refused.displaces() || refused.Why == NotMember) {
				k.tellRefused(refused)
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
	if k.ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return // the link ends, or the other side was seen meanwhile
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
	after := make(chan struct{})
	stop := k.links.o.Clock.AfterFunc(pauseAfter(fails, k.links.o.Rand()), func() { close(after) })
	defer stop()
	select {
	case <-after:
	case <-k.wake:
	case <-k.ctx.Done():
	}
}

// pauseAfter is how long to wait after so many attempts, with a number in [0, 1) that spreads it.
func pauseAfter(fails int, spread float64) time.Duration {
	d := min(pauseFirst<<min(fails-1, 10), pauseLast)
	return d/2 + time.Duration(spread*float64(d/2))
}

// dialPair makes both connections, to one address.
func (k *link) dialPair() (*pair, error) {
	attempt := k.links.attempts.Add(1)
	k.count.dials.Add(1)
	addrs, err := k.resolve()
	if err != nil {
		return nil, err
	}
	ctx, stop := k.unlessWoken()
	c, h, err := k.greetAt(ctx, kindRaft, addrs, attempt)
	stop()
	if err != nil {
		return nil, err
	}
	if err := k.join(c, &h); err != nil {
		return nil, k.turnAway(c, err)
	}
	c, h, err = k.greetAt(k.ctx, kindPayload, []string{c.RemoteAddr().String()}, attempt)
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

// unlessWoken is a context that ends when the other side is seen and no answer comes all the same: whoever dials into
// the void then has something better to do. stop ends it, and is called.
func (k *link) unlessWoken() (ctx context.Context, stop func()) {
	select {
	case <-k.wake: // that was before
	default:
	}
	ctx, cancel := context.WithCancel(k.ctx)
	k.links.work.Go(func() {
		select {
		case <-k.wake:
			k.knocked() // for who waits for the next attempt
			late := k.links.o.Clock.AfterFunc(knockGrace, cancel)
			<-ctx.Done()
			late()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// greetAt dials the addresses in turn until one answers, and learns who is there. ctx bounds the dialling.
func (k *link) greetAt(
	ctx context.Context, kind int, addrs []string, attempt uint64,
) (*endpoint.Conn, hello, error) {
	var err error
	for _, addr := range addrs {
		c, derr := k.dialOne(ctx, addr, kind, len(addrs) > 1)
		var away *endpoint.UnreachableError
		if errors.As(derr, &away) && away.TurnedAway() {
			err = &RefusedError{Peer: k.key, Node: k.id, Addr: addr, Why: NotMember, Remote: true, Err: derr}
			continue
		}
		if derr != nil {
			err = fmt.Errorf("peer: dial node %d: %w", k.id, derr)
			continue
		}
		h, herr := k.links.exchangeHellos(c, k, attempt)
		if herr == nil {
			return c, h, nil
		}
		err = k.turnAway(c, herr)
	}
	return nil, hello{}, err
}

// dialOne dials one address, for a shorter time if there are others.
func (k *link) dialOne(ctx context.Context, addr string, kind int, others bool) (*endpoint.Conn, error) {
	if others {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialOneOfSome)
		defer cancel()
	}
	return k.links.listener.DialPeer(ctx, addr, protocols[kind], k.key)
}

// resolve finds the node's addresses, looking names up; if it was just seen somewhere, that is the only one. What comes
// from those that were given gets a node's limits. An error means that there is none.
func (k *link) resolve() ([]string, error) {
	k.mu.Lock()
	given, seenAt := k.node.Addresses, k.seenAt
	k.seenAt = ""
	k.mu.Unlock()
	if seenAt != "" {
		return []string{seenAt}, nil
	}
	err := fmt.Errorf("peer: dial node %d: no address is known; give the node one", k.id)
	found := literal(given)
	if len(found) < len(given) {
		for _, a := range given {
			more, lerr := k.lookUp(a)
			if lerr != nil {
				err = fmt.Errorf("peer: dial node %d: %w; correct the address", k.id, lerr)
			}
			found = append(found, more...)
		}
		k.mu.Lock()
		k.resolved = found
		k.mu.Unlock()
		k.links.mu.Lock()
		k.links.lookAround()
		k.links.mu.Unlock()
	}
	list := make([]string, 0, len(found))
	for _, a := range found {
		list = append(list, a.String())
	}
	if len(list) == 0 {
		return nil, err
	}
	return list, nil
}

// lookUp finds the addresses of a name; of one that needs no looking up, none.
func (k *link) lookUp(addr string) (list []netip.AddrPort, err error) {
	if _, err := netip.ParseAddrPort(addr); err == nil {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(k.ctx, helloPatience)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for _, ip := range ips[:min(len(ips), resolvedMax)] {
		list = append(list, plainAddr(netip.AddrPortFrom(ip, uint16(n))))
	}
	return list, nil
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
