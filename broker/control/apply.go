package control

import (
	"fmt"
	"slices"
)

func (s *State) mutate(m *Mutation, rules int) Result {
	if err := m.validate(rules); err != nil {
		return s.find(m.Kind, m.Name).result(false, err)
	}
	if m.Kind == KindNode {
		return s.mutateNode(m)
	}
	o := s.find(m.Kind, m.Name)
	if err := s.admit(m, o); err != nil {
		return o.result(false, err)
	}
	if m.Verb == Delete {
		return o.result(s.delete(m, o), nil)
	}
	if o.meta == nil {
		return s.make(m).result(true, nil)
	}
	return o.result(s.change(m, o), nil)
}

// admit refuses a mutation that does not fit what stands.
func (s *State) admit(m *Mutation, o object) *Error {
	refuse := func(r Reason, format string, args ...any) *Error {
		return &Error{Reason: r, Kind: m.Kind, Name: m.Name, Message: fmt.Sprintf(format, args...)}
	}
	if o.meta == nil {
		if m.Verb == Delete {
			return refuse(NotFound, "its name was %.200q", m.Name)
		}
		if m.Expected != nil && *m.Expected != 0 {
			err := refuse(Conflict, "version %d was expected, and there is none of that name",
				*m.Expected)
			err.Expected = *m.Expected
			return err
		}
		return s.full(m, refuse)
	}
	deleting := o.meta.DeletionTimestamp != 0
	if m.Verb == Create && deleting {
		return refuse(Exists, "the name is taken by one that is being deleted, uid %d; create it when that is gone",
			o.meta.UID)
	}
	if m.Verb == Create {
		return refuse(Exists, "the name is taken, by uid %d at version %d; apply changes it", o.meta.UID,
			o.meta.ResourceVersion)
	}
	if m.Expected != nil && *m.Expected != o.meta.ResourceVersion {
		err := refuse(Conflict, "version %d was expected, and %d stands", *m.Expected,
			o.meta.ResourceVersion)
		err.Now, err.Expected = o.meta.ResourceVersion, *m.Expected
		return err
	}
	if m.Verb == Apply && deleting {
		return refuse(Removing, "it is being deleted, uid %d, and cannot change; apply again when it is gone", o.meta.UID)
	}
	return nil
}

// full refuses a new resource where the registry is at its bound.
func (s *State) full(m *Mutation, refuse func(Reason, string, ...any) *Error) *Error {
	have, most := len(s.queues), QueuesMax
	if m.Kind == KindConnector {
		have, most = len(s.connectors), ConnectorsMax
	}
	if have >= most {
		return refuse(TooMany, "the registry has %d of them and takes no more; delete one first", have)
	}
	return nil
}

// make adds a resource. Its uid is the index of this entry.
func (s *State) make(m *Mutation) object {
	meta := Metadata{
		Name: m.Name, UID: s.version, Generation: 1, ResourceVersion: s.version, CreationTimestamp: m.At,
	}
	status := Status{Phase: Pending, Conditions: []Condition{{
		CondPlacement, "NotPlaced", "it is registered; no node has taken it up yet",
	}}}
	if m.Kind == KindQueue {
		s.put(&Queue{Kind: KindQueue, Metadata: meta, Spec: m.Queue.WithDefaults(), Status: status})
	} else {
		s.putConnector(&Connector{Kind: KindConnector, Metadata: meta, Spec: m.Connector.WithDefaults(), Status: status})
	}
	o := s.find(m.Kind, m.Name)
	s.touch(Added, o)
	if o.queue != nil && len(m.Want) == o.queue.Spec.Replicas && s.spotsFlaw(KindQueue, m.Want, nil) == "" {
		s.settleIn(o, m.Want, false)
	}
	return o
}

func (s *State) put(q *Queue) {
	if s.queues == nil {
		s.queues = make(map[string]*Queue)
	}
	s.queues[q.Metadata.Name] = q
	s.note(q.Metadata.UID, named{KindQueue, q.Metadata.Name})
}

func (s *State) putConnector(c *Connector) {
	if s.connectors == nil {
		s.connectors = make(map[string]*Connector)
	}
	s.connectors[c.Metadata.Name] = c
	s.note(c.Metadata.UID, named{KindConnector, c.Metadata.Name})
}

func (s *State) note(uid uint64, n named) {
	if s.names == nil {
		s.names = make(map[uint64]named)
	}
	s.names[uid] = n
}

// change gives a resource another spec, and says whether it is one (T-17).
func (s *State) change(m *Mutation, o object) bool {
	if o.queue != nil {
		spec := m.Queue.WithDefaults()
		if sameQueueSpec(&spec, &o.queue.Spec) {
			return false
		}
		o.queue.Spec = spec
	} else {
		spec := m.Connector.WithDefaults()
		if sameConnectorSpec(&spec, &o.connector.Spec) {
			return false
		}
		o.connector.Spec = spec
	}
	o.meta.Generation++
	s.moved(o)
	return true
}

// delete notes that a deletion is wanted, and says whether that is news (T-20). A deletion that stands
// may only end sooner; without a deadline of its own a second one changes nothing.
func (s *State) delete(m *Mutation, o object) bool {
	drain := Duration(DrainDefault)
	if o.queue != nil {
		drain = o.queue.Spec.DrainDeadline
	}
	if m.Drain != nil {
		drain = *m.Drain
	}
	until := m.At + (int64(drain)+999_999)/1_000_000 // rounded up: no consumer is cut short
	if o.meta.DeletionTimestamp != 0 {
		until = max(until, o.meta.DeletionTimestamp)
		if m.Drain == nil || until >= o.meta.DrainUntil {
			return false
		}
		o.meta.DrainUntil = until
	} else {
		o.meta.DeletionTimestamp, o.meta.DrainUntil = m.At, until
		o.status.Phase = Deleting
		o.status.Conditions = []Condition{draining}
		if o.queue == nil {
			o.status.Conditions = []Condition{{CondRemoval, "Stopping", "it is being stopped"}}
		}
	}
	s.moved(o)
	return true
}

// observe takes a controller's word.
func (s *State) observe(c *Observe, rules int) Result {
	if c.Kind == KindCluster {
		return s.observeCluster(c)
	}
	o := s.findUID(c.Kind, c.UID)
	if o.node != nil {
		return s.observeNode(c, o)
	}
	if o.meta == nil {
		return Result{Err: gone(c.Kind, c.UID)}
	}
	refuse := func(r Reason, format string, args ...any) Result {
		return o.result(false, &Error{
			Reason: r, Kind: c.Kind, Name: o.meta.Name, Message: fmt.Sprintf(format, args...), Now: o.meta.ResourceVersion,
		})
	}
	if err := validateStatus(c.Kind, o.meta.Name, &c.Status); err != nil {
		return o.result(false, err)
	}
	deleting := o.meta.DeletionTimestamp != 0
	switch {
	case c.Status.ObservedGeneration > c.Generation || c.Generation > o.meta.Generation:
		return refuse(Invalid, "generation %d observed while working on %d, and %d stands", c.Status.ObservedGeneration,
			c.Generation, o.meta.Generation)
	case c.Status.ObservedGeneration < o.status.ObservedGeneration:
		return refuse(Conflict, "generation %d was observed before, %d is behind it", o.status.ObservedGeneration,
			c.Status.ObservedGeneration)
	case deleting && c.Status.Phase != Deleting:
		return refuse(Removing, "it is being deleted and cannot be %s any more", c.Status.Phase)
	case !deleting && (c.Status.Phase == Deleting || c.Status.Destroying):
		return refuse(Invalid, "nobody asked for its deletion")
	case o.status.Destroying && !c.Status.Destroying:
		return refuse(Conflict, "it is being destroyed; that cannot be taken back")
	case rules >= 2 && c.Epoch != o.status.Epoch:
		return refuse(Conflict, "its placement is at epoch %d, and what was found is of %d", o.status.Epoch, c.Epoch)
	}
	to := c.Status.clone()
	if rules >= 2 {
		made := c.Made
		if p := o.status.Placement; len(p) == 1 && p[0].Owner && to.ObservedGeneration > 0 {
			made = []uint64{p[0].Replica}
		}
		to.Placement = markMade(o.status.Placement, made)
		to.Epoch, to.Step, to.Founders = o.status.Epoch, o.status.Step, o.status.Founders
	}
	if sameStatus(&to, o.status) {
		return o.result(false, nil)
	}
	s.count(o, -1)
	*o.status = to
	s.count(o, 1)
	s.moved(o)
	return o.result(true, nil)
}

// observeNode takes over conditions; what else is said of a node follows from verbs and registrations.
func (s *State) observeNode(c *Observe, o object) Result {
	st := Status{Phase: Ready, Conditions: c.Status.Conditions}
	if err := validateStatus(KindNode, o.meta.Name, &st); err != nil {
		return o.result(false, err)
	}
	if slices.Equal(c.Status.Conditions, o.node.Status.Conditions) {
		return o.result(false, nil)
	}
	o.node.Status.Conditions = cloneList(c.Status.Conditions)
	s.moved(o)
	return o.result(true, nil)
}

// remove takes the record away. What is left of it on other nodes is retired.
func (s *State) remove(c *Remove, rules int) Result {
	o := s.findUID(c.Kind, c.UID)
	if o.meta == nil {
		return Result{Err: gone(c.Kind, c.UID)}
	}
	refuse := func(r Reason, format string, args ...any) Result {
		return o.result(false, &Error{
			Reason: r, Kind: c.Kind, Name: o.meta.Name, Now: o.meta.ResourceVersion, Message: fmt.Sprintf(format, args...),
		})
	}
	if o.meta.DeletionTimestamp == 0 {
		return refuse(Invalid, "nobody asked for its deletion: the record stays")
	}
	if o.node != nil {
		if why := s.stillOn(o.node); why != "" {
			return refuse(Conflict, "%s", why)
		}
		return s.drop(o)
	}
	rows := slices.DeleteFunc(slices.Clone(o.status.Placement), func(r Replica) bool { return r.Replica == c.Replica })
	if rules >= 2 && o.queue != nil && len(o.status.Placement) > 0 && !o.status.Destroying {
		return refuse(Conflict, "its data was not given up yet: the record stays")
	}
	if s.retiredCount+len(rows) > RetiredMax {
		return refuse(TooMany, "%d replicas wait for nodes that are away: bring them back, or remove them", s.retiredCount)
	}
	s.retire(c.Kind, c.UID, rows)
	return s.drop(o)
}

// drop takes a record away for good.
func (s *State) drop(o object) Result {
	res := o.result(true, nil)
	res.Removed = true
	if o.status != nil {
		s.count(o, -1)
	}
	s.touch(Deleted, o)
	delete(s.names, o.meta.UID)
	switch {
	case o.queue != nil:
		delete(s.queues, o.meta.Name)
	case o.connector != nil:
		delete(s.connectors, o.meta.Name)
	default:
		delete(s.nodes, o.meta.Name)
		s.forgetRetired(o.meta.UID, "")
	}
	return res
}

// stillOn is why a node's record has to stay, "" if nothing of it is left.
func (s *State) stillOn(n *Node) string {
	l := s.LoadOf(n.Number())
	if l != (Load{}) {
		return fmt.Sprintf("%d replicas and %d connectors are on it: they move first", l.Replicas, l.Connectors)
	}
	if slices.ContainsFunc(s.cluster.Replicas, func(r Replica) bool { return r.Number == n.Number() }) {
		return "it is in the control group: it leaves that first"
	}
	return ""
}

// forgetRetired gives up what a node would still have to destroy that left, or on a disk that it has no more.
func (s *State) forgetRetired(number uint64, disk string) {
	for uid, list := range s.retired {
		rest := slices.DeleteFunc(list, func(r Retired) bool {
			return r.Replica.Number == number && r.Replica.Disk != disk
		})
		s.retiredCount -= len(list) - len(rest)
		s.retired[uid] = rest
		if len(rest) == 0 {
			delete(s.retired, uid)
		}
	}
}

func gone(k Kind, uid uint64) *Error {
	return &Error{Reason: NotFound, Kind: k, Message: fmt.Sprintf("there is none with uid %d", uid)}
}
