package broker

import (
	"errors"
	"slices"

	"weida/broker/control"
	"weida/raftstore"
)

// This file is what the reconciler sees and asks of consensus groups.

// caughtUpTicks is how long ago a member may have been at the end of the log, or have answered, to count as there.
const caughtUpTicks = 20

// Group implements control.NodeRuntime.
func (c *controller) Group(k control.Queue) (control.Group, error) {
	q := c.node.serving(k)
	if q == nil {
		return control.Group{}, errors.New("the queue is not open here")
	}
	if row := c.node.row(&k); row != nil {
		why := q.why()
		if d := q.group.Status().Damaged; why == nil && damage(d) != "" && c.majorityUp(&k, row) {
			why = d // it has served what is whole, and others can take over
		}
		if why != nil {
			return control.Group{}, c.node.lost(&k, row, why)
		}
	}
	g := groupOf(q.group.Status())
	g.Serves = g.Serves && q.leadership().reign != nil
	why := q.group.Status().ReadOnly
	if !g.Serves && errors.Is(why, raftstore.ErrDiskFull) {
		why = nil // the queue does without this one
	}
	return g, why
}

// majorityUp says whether a majority of a queue's voters can be reached without one of them.
func (c *controller) majorityUp(k *control.Queue, but *control.Replica) bool {
	voters, up := 0, 0
	for i := range k.Status.Placement {
		p := &k.Status.Placement[i]
		if p.Learner {
			continue
		}
		voters++
		if p.Replica != but.Replica && p.Lost == "" && c.Reachable(p.Number) {
			up++
		}
	}
	return up > voters/2
}

// groupOf is a group's status as the reconciler sees it.
func groupOf(s raftstore.Status) control.Group {
	rep := s.Replication
	if rep == nil {
		return control.Group{Serves: true}
	}
	disk := raftstore.DiskState(0)
	for _, p := range rep.Progress {
		if p.Replica == rep.Self {
			disk = p.Disk
		}
	}
	g := control.Group{
		Serves:   s.Role == raftstore.LeaderRole,
		Changing: rep.Joint || !slices.Equal(rep.Committed, rep.Current),
	}
	for _, m := range rep.Committed {
		row := control.Member{Replica: uint64(m.Replica), Number: uint64(m.Node), Learner: m.Learner}
		for _, p := range rep.Progress {
			if p.Replica != m.Replica {
				continue
			}
			self := p.Replica == rep.Self
			row.Held = self || p.Match > 0
			row.CaughtUp = self || within(p.CaughtUpTicks) && within(p.HeardTicks)
			row.Ails = p.Disk > disk
		}
		g.Members = append(g.Members, row)
	}
	return g
}

func within(ticks int64) bool { return ticks >= 0 && ticks <= caughtUpTicks }

// Reconfigure implements control.NodeRuntime.
func (c *controller) Reconfigure(k control.Queue, want []control.Replica) error {
	q := c.node.serving(k)
	if q == nil {
		return errors.New("the queue is not open here")
	}
	return pending(q.group.Reconfigure(raftstore.Change{Members: members(want)}))
}

// Transfer implements control.NodeRuntime.
func (c *controller) Transfer(k control.Queue, to control.Replica) error {
	q := c.node.serving(k)
	if q == nil {
		return errors.New("the queue is not open here")
	}
	return q.group.Reconfigure(raftstore.Change{TransferTo: raftstore.ReplicaID(to.Replica)})
}

// pending is nil where a change is under way already: it is asked for again when that is over.
func pending(err error) error {
	if errors.Is(err, raftstore.ErrChangePending) {
		return nil
	}
	return err
}

// Reachable implements control.LeaderRuntime.
func (c *controller) Reachable(number uint64) bool {
	l := c.node.cluster
	return l == nil || uint64(l.number) == number || l.links.Reachable(raftstore.NodeID(number))
}

// Sound implements control.LeaderRuntime.
func (c *controller) Sound(number uint64) bool {
	return c.node.cluster == nil || c.node.host.DiskOf(raftstore.NodeID(number)) == 0
}

// ControlGroup implements control.LeaderRuntime.
func (c *controller) ControlGroup() (control.Group, error) {
	s := c.node.registry.group.Status()
	g := groupOf(s)
	if s.Replication == nil { // its one owner is all the members there are
		for _, p := range c.node.registry.state.Cluster().Replicas {
			g.Members = append(g.Members, control.Member{
				Replica: p.Replica, Number: p.Number, Learner: p.Learner, CaughtUp: true, Held: true,
			})
		}
	}
	return g, s.ReadOnly
}

// ReconfigureControl implements control.LeaderRuntime.
func (c *controller) ReconfigureControl(want []control.Replica) error {
	if c.node.cluster == nil {
		return errors.New("this node was started without seeds and is a cluster of its own; start it with seeds to add " +
			"others")
	}
	return pending(c.node.registry.group.Reconfigure(raftstore.Change{Members: members(want)}))
}
