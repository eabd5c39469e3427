package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"weida/broker/admin"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

const (
	namePatience  = 3 * time.Second
	peerPatience  = 5 * time.Second
	adminPatience = 3 * time.Second
	answerMax     = 16 << 20 // bytes of an answer of an admin port
)

// askAdmin reads one document of an admin port.
func askAdmin(ctx context.Context, address, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	c := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // no proxy: it is on this machine
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // read to its end, or of no more use
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %s", address, path, res.Status)
	}
	return json.NewDecoder(io.LimitReader(res.Body, answerMax)).Decode(into)
}

// lookBuilds asks the node that runs, and those others whose admin ports can be reached, which are on this machine.
func lookBuilds(ctx context.Context, t *Target, held bool) Builds {
	b := Builds{Mine: t.Version}
	switch {
	case !held:
		return b
	case t.Admin == "":
		b.Why = "no admin port is known, the node file names it as `admin`"
		return b
	}
	var s admin.Status
	if err := askAdmin(ctx, t.Admin, "/v1/status", &s); err != nil {
		b.Why = err.Error()
		return b
	}
	if s.Node != t.Name {
		b.Why = fmt.Sprintf("what answers at %s is the node %q", t.Admin, s.Node)
		return b
	}
	b.Node, b.Ready = &s.Version, slices.Concat(s.Alive, s.Ready)
	var members admin.List[admin.Member]
	if err := askAdmin(ctx, t.Admin, "/v1/nodes", &members); err != nil {
		return b // its own answer says enough
	}
	for i := range members.Items {
		m := &members.Items[i]
		if m.Metadata.Name == t.Name || !loopback(m.Spec.Admin) {
			continue
		}
		var s admin.Status
		// Of a node on another machine the same address is somebody on this one.
		if askAdmin(ctx, m.Spec.Admin, "/v1/status", &s) == nil && s.Node == m.Metadata.Name {
			b.Peers = append(b.Peers, PeerBuild{s.Node, s.Version})
		}
	}
	return b
}

func loopback(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && a.Addr().IsLoopback()
}

// lookPeers tries to reach every other node at once.
func lookPeers(ctx context.Context, t *Target, mine *Key) []Peer {
	var list []Peer
	for _, s := range t.Seeds {
		me := s.Fingerprint == mine.Fingerprint || mine.Fingerprint == "" && s.Name == t.Name
		if !me {
			list = append(list, Peer{Seed: s})
		}
	}
	for _, address := range t.Peers {
		if !slices.ContainsFunc(list, func(p Peer) bool { return p.Address == address }) {
			list = append(list, Peer{Seed: Seed{Address: address}})
		}
	}
	if len(list) == 0 {
		return nil
	}
	id, own, err := identity(t.Data, mine)
	var all sync.WaitGroup
	for i := range list {
		p := &list[i]
		if err != nil {
			p.Why = err.Error()
			continue
		}
		p.NotMine = !own
		all.Go(func() { reach(ctx, p, id) })
	}
	all.Wait()
	return list
}

// identity is the node's own, or, where it has none yet, one for the moment.
func identity(data string, k *Key) (id *endpoint.Identity, own bool, err error) {
	if k.Fingerprint != "" && k.Bad == "" && !k.NotAfter.IsZero() { // both parts are there, so neither is made
		id, err = endpoint.LoadOrCreateIdentity(fsync.OS(), filepath.Clean(data), "node")
		if err == nil {
			return id, true, nil
		}
	}
	id, err = endpoint.NewIdentity("doctor")
	return id, false, err
}

// reach resolves a peer's name and shakes hands with it.
func reach(ctx context.Context, p *Peer, id *endpoint.Identity) {
	host, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		p.NoName = err.Error()
		return
	}
	naming, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	if p.Resolved, err = net.DefaultResolver.LookupHost(naming, host); err != nil {
		p.NoName = err.Error()
		return
	}
	roles := make(map[endpoint.Fingerprint]endpoint.Role)
	if p.Fingerprint != "" {
		f, err := endpoint.ParseFingerprint(p.Fingerprint)
		if err != nil {
			p.Bad = err.Error()
			return
		}
		roles[f] = endpoint.RoleNode
	}
	shaking, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	began := time.Now()
	conn, err := endpoint.Dial(shaking, net.JoinHostPort(p.Resolved[0], port), endpoint.DialOptions{
		Identity: id, Trust: endpoint.NewTrust(roles),
	})
	if err == nil {
		err = letIn(shaking, conn, p.Address)
		conn.Close()
	}
	p.Took = time.Since(began)
	var untrusted *endpoint.UntrustedError
	var unreachable *endpoint.UnreachableError
	switch {
	case err == nil:
		p.Answered, p.Proved = true, p.Fingerprint
	case errors.As(err, &untrusted):
		p.Answered, p.Proved = true, untrusted.Peer.String()
	case errors.As(err, &unreachable) && unreachable.TurnedAway():
		p.Answered, p.Away = true, true
	case errors.As(err, &unreachable):
		p.Bad = unreachable.Err.Error()
	default:
		p.Bad = err.Error()
	}
}

// letIn sees to it that the other side has taken the connection, which the end of a handshake on this side does not
// say:
// a stream that asks for nothing has to be answered by its end.
func letIn(ctx context.Context, conn *endpoint.Conn, address string) error {
	stream, err := conn.OpenStreamSync(ctx)
	if err == nil {
		_, err = stream.Write(wire.Append(nil, &wire.Single{}))
	}
	if err == nil {
		err = stream.Close()
	}
	if end, set := ctx.Deadline(); err == nil && set {
		err = stream.SetReadDeadline(end)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(stream, wire.InlineMax))
	}
	if err != nil {
		return &endpoint.UnreachableError{Addr: address, Protocol: endpoint.ALPNMessaging, Err: err}
	}
	return nil
}
