package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is the node as one of several, as its HTTP side sees it: it asks the others over their HTTP sides.

// tickTime is what one tick of the groups takes.
const tickTime = 100 * time.Millisecond

// soleNumber is the number of a node that began a cluster alone.
const soleNumber = 1

// members are the nodes of the cluster.
func (n *Node) members() []admin.Member {
	m := admin.Member{
		Kind: admin.KindNode, Metadata: control.Metadata{Name: n.c.Name, UID: soleNumber, Generation: 1, ResourceVersion: 1},
		Spec:   admin.MemberSpec{Fingerprint: n.Fingerprint().String()},
		Status: admin.MemberStatus{State: admin.MemberUp, Voter: true},
	}
	if n.listener != nil {
		m.Spec.Address = n.Addr().String()
	}
	if n.adminAddr != nil {
		m.Spec.Admin = n.adminAddr.String()
	}
	id := n.store.Identity()
	m.Status.Disk, m.Status.Incarnation = fmt.Sprintf("%x", id.Disk), id.Incarnation
	return []admin.Member{m}
}

// number is this node's number in the cluster.
func (n *Node) number() uint64 {
	me := n.Fingerprint().String()
	for _, m := range n.members() {
		if m.Spec.Fingerprint == me {
			return m.Metadata.UID
		}
	}
	return 0
}

// Changes implements admin.Node.
func (n *Node) Changes(after uint64, most int) admin.Changes {
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	return n.registry.history.behind(after, most, n.registry.state.Version())
}

// Moved implements admin.Node.
func (n *Node) Moved() <-chan struct{} {
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	return n.registry.moved
}

// Done implements admin.Node.
func (n *Node) Done() <-chan struct{} { return n.work.Done() }

// try applies a mutation to a copy of the state.
func (r *registry) try(m control.Mutation) control.Result {
	r.mu.Lock()
	b := r.state.Snapshot()
	r.mu.Unlock()
	s, err := control.Restore(b)
	if err != nil {
		panic("bug: broker: the registry's own snapshot: " + err.Error())
	}
	return s.Apply(s.Version()+1, control.Command{Mutation: &m})
}

// Local implements admin.Node.
func (n *Node) Local() admin.Facts {
	f := admin.Facts{Node: n.number(), Name: n.c.Name, At: time.Now().UnixMilli()}
	f.Groups = append(f.Groups, admin.GroupOf(n.registry.group.Status(), "", tickTime))
	n.queuesMu.RLock()
	open := make([]*nodeQueue, 0, len(n.queues))
	for _, q := range n.queues {
		open = append(open, q)
	}
	n.queuesMu.RUnlock()
	slices.SortFunc(open, func(a, b *nodeQueue) int { return strings.Compare(a.name, b.name) })
	for _, q := range open {
		f.Groups = append(f.Groups, admin.GroupOf(q.group.Status(), q.name, tickTime))
	}
	return f
}

// Others implements admin.Node.
func (n *Node) Others(ctx context.Context) []admin.Facts {
	me := n.number()
	var all sync.WaitGroup
	var list []*admin.Facts
	for _, m := range n.members() {
		if m.Metadata.UID == me || m.Status.State == admin.MemberRemoved {
			continue
		}
		f := &admin.Facts{}
		list = append(list, f)
		all.Go(func() {
			if err := askNode(ctx, m, http.MethodGet, "/v1/local/groups", nil, f); err != nil {
				*f = admin.Facts{Why: err.Error()}
			}
			f.Node, f.Name = m.Metadata.UID, m.Metadata.Name
		})
	}
	all.Wait()
	facts := make([]admin.Facts, len(list))
	for i, f := range list {
		facts[i] = *f
	}
	return facts
}

// askMax bounds what another node answers, in bytes.
const askMax = 64 << 20

// asking reaches the HTTP sides of other nodes. A node that is asked is on this machine, or nothing is between.
var asking = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second}}

// askNode sends one request to another node's HTTP side. What it refuses is a *wire.Error.
func askNode(ctx context.Context, m admin.Member, method, path string, body, answer any) error {
	if m.Spec.Admin == "" {
		return errors.New("it has told of no admin address")
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+m.Spec.Admin+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set(admin.Header, "1")
	res, err := asking.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // read to its end, or of no more use
	b, err = io.ReadAll(io.LimitReader(res.Body, askMax))
	if err != nil {
		return err
	}
	if res.StatusCode/100 == 2 {
		return json.Unmarshal(b, answer)
	}
	var no admin.ErrorBody
	var code uint64
	if json.Unmarshal(b, &no) == nil {
		if _, err := fmt.Sscanf(no.Code, "E%d", &code); err == nil {
			return &wire.Error{Code: wire.Code(code), Detail: no.Detail}
		}
	}
	return fmt.Errorf("%s answered %s", m.Spec.Admin, res.Status)
}

// ChangeNode implements admin.Node.
func (n *Node) ChangeNode(_ context.Context, c admin.NodeChange) (admin.NodeResult, error) {
	return admin.NodeResult{Err: &control.Error{
		Reason: control.Invalid, Kind: admin.KindNode, Name: c.Name,
		Message: "this node is a cluster of its own, which has no others",
	}}, nil
}

// Transfer implements admin.Node.
func (n *Node) Transfer(ctx context.Context, group, to uint64, stay bool) error {
	g, name := raftstore.Group(nil), ""
	if raftstore.GroupID(group) == controlGroup {
		g, name = n.registry.group, admin.ControlName
	} else if c, ok := n.registry.queueOf(group); ok {
		name = admin.QueueGroup(c.Metadata.Name)
		if q := n.serving(c); q != nil {
			g = q.group
		}
	}
	var leader raftstore.Leader
	if g != nil {
		r := g.Status().Replication
		if r == nil {
			return raftstore.ErrNoGroup
		}
		change := raftstore.Change{}
		for _, m := range r.Current {
			if uint64(m.Node) == to && !m.Learner {
				change.TransferTo = m.Replica
			}
		}
		err := g.Reconfigure(change)
		var elsewhere *raftstore.NotLeaderError
		if err == nil || stay || !errors.As(err, &elsewhere) {
			return err
		}
		leader = elsewhere.Leader
	}
	return n.transferThere(ctx, name, uint64(leader.Node), to)
}

// transferThere passes a transfer on to the node that leads; 0 is not known, and then the others are asked who does.
func (n *Node) transferThere(ctx context.Context, name string, leader, to uint64) error {
	if leader == 0 {
		for _, f := range n.Others(ctx) {
			for i := range f.Groups {
				if g := &f.Groups[i]; g.Role == admin.RoleLeader && (g.Queue != "" && admin.QueueGroup(g.Queue) == name ||
					g.Queue == "" && name == admin.ControlName) {
					leader = f.Node
				}
			}
		}
	}
	target := ""
	for _, m := range n.members() {
		if m.Metadata.UID == to {
			target = m.Metadata.Name
		}
	}
	for _, m := range n.members() {
		if m.Metadata.UID == leader {
			var done admin.TransferResponse
			return askNode(ctx, m, http.MethodPost, "/v1/quorum/transfer-leader?stay=1",
				admin.TransferRequest{Group: name, To: target}, &done)
		}
	}
	return &wire.Error{Code: wire.NotLeader, Detail: "no leader of " + name + " is known here"}
}
