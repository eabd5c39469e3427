package client

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weida/broker/endpoint"
)

const (
	// PortDefault is the UDP port of an address that names none.
	PortDefault = 7443
	// AddressesMax bounds what names resolve to, all together (W-41).
	AddressesMax = 8
)

// Resolver looks names up. *net.Resolver is one.
type Resolver interface {
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// addresses are what Options.Addrs stand for now, at most AddressesMax. A name without a port is where
// _weida._udp.NAME says, by priority, else the name's own addresses with PortDefault. It is no authority: who answers
// there has to prove a trusted key (W-44).
func (c *Client) addresses(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialMax)
	defer cancel()
	var list []string
	var errs []error
	for _, addr := range c.o.Addrs {
		found, err := c.resolve(ctx, addr)
		if err != nil {
			errs = append(errs, &endpoint.UnreachableError{Addr: addr, Err: err})
		}
		for _, at := range found {
			if len(list) < AddressesMax && !slices.Contains(list, at) {
				list = append(list, at)
			}
		}
	}
	switch {
	case len(list) > 0:
		return list, nil
	case ctx.Err() != nil && context.Cause(ctx) != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return nil, ctx.Err()
	case len(errs) == 1:
		return nil, errs[0]
	}
	return nil, errors.Join(errs...)
}

func (c *Client) resolve(ctx context.Context, addr string) ([]string, error) {
	if ip, err := netip.ParseAddr(strings.Trim(addr, "[]")); err == nil {
		return []string{netip.AddrPortFrom(ip, PortDefault).String()}, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil { // without a port
		return c.discover(ctx, addr)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []string{net.JoinHostPort(ip.String(), port)}, nil
	}
	return c.lookup(ctx, host, port)
}

// discover finds the addresses of a name without a port.
func (c *Client) discover(ctx context.Context, name string) ([]string, error) {
	_, found, err := c.o.Resolver.LookupSRV(ctx, "weida", "udp", name)
	if err != nil || len(found) == 0 {
		return c.lookup(ctx, name, strconv.Itoa(PortDefault))
	}
	slices.SortStableFunc(found, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port))
	})
	var list []string
	var errs []error
	for _, srv := range found[:min(len(found), AddressesMax)] {
		some, err := c.lookup(ctx, strings.TrimSuffix(srv.Target, "."), strconv.Itoa(int(srv.Port)))
		list = append(list, some...)
		errs = append(errs, err)
	}
	if len(list) > 0 {
		return list, nil
	}
	return nil, errors.Join(errs...)
}

func (c *Client) lookup(ctx context.Context, host, port string) ([]string, error) {
	found, err := c.o.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	list := make([]string, 0, len(found))
	for _, ip := range found[:min(len(found), AddressesMax)] {
		list = append(list, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return list, nil
}
