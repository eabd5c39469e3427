package broker

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is the node as one of several, as its HTTP side sees it.

// tickTime is what one tick of the groups takes.
const tickTime = raftstore.TickEvery

// number is this node's number in the cluster, 0 before it is known.
func (n *Node) number() uint64 {
	me := n.Fingerprint().String()
	for _, m := range n.registry.members() {
		if m.Spec.Fingerprint == me {
			return m.Number()
		}
	}
	return 0
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
	disk := admin.DiskOf(n.host.Disk())
	f.Disk = &disk
	f.Groups = append(f.Groups, admin.GroupOf(n.registry.group.Status(), "", tickTime))
	n.queuesMu.RLock()
	open := make([]*nodeQueue, 0, len(n.queues))
	for _, q := range n.queues {
		open = append(open, q)
	}
	n.queuesMu.RUnlock()
	slices.SortFunc(open, func(a, b *nodeQueue) int { return strings.Compare(a.name, b.name) })
	for _, q := range open {
		g := admin.GroupOf(q.group.Status(), q.name, tickTime)
		if l, ok := n.Live(g.ID); ok {
			g.Live = &l
		}
		f.Groups = append(f.Groups, g)
	}
	return f
}

// askNode asks another node something, and returns what its answerNode said; nil where there is no other node. Set
// before the HTTP side listens.
type askNode func(ctx context.Context, to raftstore.NodeID, request []byte) ([]byte, error)

// nodeAsk is what one node's HTTP side asks another's.
type nodeAsk struct {
	Op    string `json:"op"`              // groups, or transfer
	Group uint64 `json:"group,omitempty"` // of transfer
	To    uint64 `json:"to,omitempty"`    // of transfer
}

// nodeAnswer is what it is answered.
type nodeAnswer struct {
	Facts *admin.Facts `json:"facts,omitempty"`
	Code  uint64       `json:"code,omitempty"` // why not
	Text  string       `json:"text,omitempty"`
}

// answerNode answers what askNode asked.
func (n *Node) answerNode(ctx context.Context, request []byte) ([]byte, error) {
	var q nodeAsk
	if err := json.Unmarshal(request, &q); err != nil {
		return nil, fmt.Errorf("what was asked cannot be read: %w", err)
	}
	var a nodeAnswer
	switch q.Op {
	case "groups":
		f := n.Local()
		a.Facts = &f
	case "transfer":
		if err := n.Transfer(ctx, q.Group, q.To, true); err != nil {
			a.Code, a.Text = uint64(admin.CodeOf(err)), err.Error()
		}
	default:
		return nil, fmt.Errorf("%q is nothing that this node answers", q.Op)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b) // ten thousand groups are much alike
	if err := errors.Join(json.NewEncoder(z).Encode(a), z.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// ask asks one node. What it refuses is a *wire.Error.
func (n *Node) ask(ctx context.Context, to uint64, q nodeAsk) (nodeAnswer, error) {
	var a nodeAnswer
	if n.askNode == nil {
		return a, errors.New("no other node can be asked")
	}
	b, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if b, err = n.askNode(ctx, raftstore.NodeID(to), b); err != nil {
		return a, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return a, err
	}
	if err := json.NewDecoder(io.LimitReader(z, askMax)).Decode(&a); err != nil {
		return a, err
	}
	if a.Code != 0 {
		return a, &wire.Error{Code: wire.Code(a.Code), Detail: a.Text}
	}
	return a, nil
}

// askMax bounds what another node answers, in bytes.
const askMax = 64 << 20

// Others implements admin.Node.
func (n *Node) Others(ctx context.Context) []admin.Facts {
	me := n.number()
	var all sync.WaitGroup
	var facts []*admin.Facts
	for _, m := range n.registry.members() {
		if m.Number() == me {
			continue
		}
		f := &admin.Facts{}
		facts = append(facts, f)
		all.Go(func() {
			a, err := n.ask(ctx, m.Metadata.UID, nodeAsk{Op: "groups"})
			switch {
			case err != nil:
				f.Why = err.Error()
			case a.Facts == nil:
				f.Why = "it answered something else"
			default:
				*f = *a.Facts
			}
			f.Node, f.Name = m.Metadata.UID, m.Metadata.Name
		})
	}
	all.Wait()
	list := make([]admin.Facts, len(facts))
	for i, f := range facts {
		list[i] = *f
	}
	return list
}

// Transfer implements admin.Node. Who is to lead a queue is a decision of the registry: a transfer behind its back
// would be taken back at once.
func (n *Node) Transfer(ctx context.Context, group, to uint64, stay bool) error {
	if stay {
		return n.transferNow(ctx, group, to, stay)
	}
	if disk := n.host.DiskOf(raftstore.NodeID(to)); disk != 0 {
		return &wire.Error{Code: wire.Unsafe, Detail: "The disk of that node is " + disk.String() +
			": it would hand the leadership over again"}
	}
	decided, err := n.decideLeader(ctx, group, to)
	if err != nil {
		return err
	}
	err = n.transferNow(ctx, group, to, stay)
	if decided && err != nil {
		// The leader's own node makes the decision true, and may have begun.
		n.c.Log.Debug("leadership goes a little later", "group", group, "to", to, "err", err)
		return nil
	}
	return err
}

// transferNow asks the leader, here or, unless stay is set, elsewhere.
func (n *Node) transferNow(ctx context.Context, group, to uint64, stay bool) error {
	var g raftstore.Group
	if raftstore.GroupID(group) == controlGroup {
		g = n.registry.group
	} else if c, ok := n.registry.queueOf(group); ok {
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
	return n.transferThere(ctx, group, uint64(leader.Node), to)
}

// decideTries bounds how often a decision is made anew because another one came before it.
const decideTries = 5

// decideLeader has the registry say which replica of a queue is to lead; false if it says so, or nothing of the kind.
func (n *Node) decideLeader(ctx context.Context, group, to uint64) (bool, error) {
	var last string
	for range decideTries {
		q, ok := n.registry.queueOf(group)
		if !ok {
			return false, nil
		}
		place, err := n.leaderPlace(&q, to)
		if place == nil || err != nil {
			return false, err
		}
		res, err := n.registry.propose(ctx, control.Command{Place: place})
		if err != nil {
			return false, err
		}
		n.registry.catchUp(ctx, versionOf(&res))
		if res.Err == nil {
			return true, nil
		}
		last = res.Err.Message
		if res.Err.Reason != control.Conflict {
			break
		}
	}
	return false, &wire.Error{Code: wire.Conflict, Detail: last}
}

// leaderPlace is the decision that another node is to lead a queue; nil if that stands already, or is none.
func (n *Node) leaderPlace(q *control.Queue, to uint64) (*control.Place, error) {
	place := &control.Place{
		Kind: control.KindQueue, UID: q.Metadata.UID, Generation: q.Metadata.Generation, Epoch: q.Status.Epoch,
	}
	for _, r := range q.Status.Placement {
		if r.Lead && r.Number == to || r.Owner {
			return nil, nil
		}
		place.Want = append(place.Want, control.Spot{Number: r.Number, Lead: r.Number == to})
	}
	if q.Status.Step != control.Steady {
		return nil, raftstore.ErrChangePending
	}
	if p := q.Spec.Placement.PreferredLeader; p != "" && !n.registry.isNode(p, to) {
		return nil, &wire.Error{
			Code: wire.Unsafe, Detail: "spec.placement.preferredLeader is " + quote(p) + ": change that",
		}
	}
	return place, nil
}

// isNode says whether a name or fingerprint is that of a node.
func (r *registry) isNode(name string, number uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	node, ok := r.state.Node(name)
	return ok && node.Number() == number
}

// transferThere passes a transfer on to the node that leads; where that is not known the others are asked who does.
func (n *Node) transferThere(ctx context.Context, group, leader, to uint64) error {
	if leader == 0 {
		for _, f := range n.Others(ctx) {
			for i := range f.Groups {
				if g := &f.Groups[i]; g.ID == group && g.Role == admin.RoleLeader {
					leader = f.Node
				}
			}
		}
	}
	if leader == 0 {
		return &wire.Error{Code: wire.NotLeader, Detail: "No leader is known here"}
	}
	_, err := n.ask(ctx, leader, nodeAsk{Op: "transfer", Group: group, To: to})
	return err
}
