package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// snapshotVersion is the first byte of every snapshot. Version 1 had neither nodes nor steps of placements, version 2
// no nonces of nodes.
const snapshotVersion = 3

// Snapshot encodes the whole registry. The same state gives the same bytes.
func (s *State) Snapshot() []byte {
	b := binary.AppendUvarint([]byte{snapshotVersion}, s.version)
	b = appendCluster(b, &s.cluster)
	b = binary.AppendUvarint(b, uint64(len(s.nodes)))
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		b = appendNode(b, s.nodes[name])
	}
	b = binary.AppendUvarint(b, uint64(len(s.queues)))
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		q := s.queues[name]
		b = appendStatus(appendQueueSpec(appendMetadata(b, &q.Metadata), &q.Spec), &q.Status)
	}
	b = binary.AppendUvarint(b, uint64(len(s.connectors)))
	for _, name := range slices.Sorted(maps.Keys(s.connectors)) {
		c := s.connectors[name]
		b = appendStatus(appendConnectorSpec(appendMetadata(b, &c.Metadata), &c.Spec), &c.Status)
	}
	b = binary.AppendUvarint(b, uint64(s.retiredCount))
	for _, uid := range slices.Sorted(maps.Keys(s.retired)) {
		for _, r := range s.retired[uid] {
			b = appendReplica(binary.AppendUvarint(appendText(b, string(r.Kind)), uid), &r.Replica)
		}
	}
	return b
}

// Restore returns the state that Snapshot encoded. It refuses what no history leads to, and allocates no
// more than the bytes warrant. Nothing of b is kept. Changes of before are not held any more.
func Restore(b []byte) (*State, error) {
	if len(b) == 0 {
		return nil, errors.New("control: snapshot: cut short")
	}
	if b[0] == 0 || b[0] > snapshotVersion {
		return nil, fmt.Errorf("control: snapshot of version %d, this build reads 1 to %d", b[0], snapshotVersion)
	}
	d := decoder{b: b[1:]}
	s := &State{version: d.uint()}
	s.history.floor = s.version
	if b[0] >= 2 {
		d.members(s, b[0])
	}
	d.resources(s, b[0])
	if b[0] >= 2 {
		d.retired(s)
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("control: snapshot: %w", err)
	}
	return s, nil
}

// members reads the control group and the nodes.
func (d *decoder) members(s *State, version byte) {
	c := d.cluster()
	last := ""
	for range d.count(nodeSizeMin) {
		n := d.node(version)
		if d.err == nil {
			d.checkNode(s, n, last)
			s.putNode(n)
		}
		last = n.Metadata.Name
	}
	if d.err == nil {
		if why := s.rowsFlaw(c.Step, c.Replicas); why != "" {
			d.fail("the control group: " + why)
		}
		s.cluster = c
	}
}

// resources reads queues and connectors.
func (d *decoder) resources(s *State, version byte) {
	status := d.status
	if version == 1 {
		status = d.status1
	}
	last := ""
	for range d.count(queueSizeMin) {
		q := &Queue{Kind: KindQueue, Metadata: d.metadata(), Spec: d.queueSpec(), Status: status()}
		if d.err == nil {
			d.check(s, KindQueue, &q.Metadata, &q.Status, last, queueFlaw(&q.Spec))
			s.put(q)
			s.count(object{status: &q.Status, queue: q}, 1)
		}
		last = q.Metadata.Name
	}
	last = ""
	for range d.count(connectorSizeMin) {
		c := &Connector{Kind: KindConnector, Metadata: d.metadata(), Spec: d.connectorSpec(), Status: status()}
		if d.err == nil {
			d.check(s, KindConnector, &c.Metadata, &c.Status, last, "")
			s.putConnector(c)
			s.count(object{status: &c.Status, connector: c}, 1)
		}
		last = c.Metadata.Name
	}
}

// retired reads what is still to be destroyed.
func (d *decoder) retired(s *State) {
	last := uint64(0)
	for range d.count(2 + replicaSizeMin) {
		r := Retired{Kind: Kind(d.text()), UID: d.uint(), Replica: d.replica()}
		switch {
		case d.err != nil:
			return
		case r.Kind != KindQueue && r.Kind != KindConnector || r.UID < last || s.nodeOf(r.Replica.Number) == nil:
			d.fail("what is retired is out of order, or on no node")
			return
		}
		if s.retired == nil {
			s.retired = make(map[uint64][]Retired)
		}
		s.retired[r.UID] = append(s.retired[r.UID], r)
		s.retiredCount++
		last = r.UID
	}
}

// checkNode refuses a node that no history leads to.
func (d *decoder) checkNode(s *State, n *Node, last string) {
	m := &n.Metadata
	_, known := s.names[m.UID]
	removing := m.DeletionTimestamp != 0
	var why string
	switch {
	case flaw(m.Name, 1, memberMax) != "" || flaw(n.Spec.Fingerprint, 1, memberMax) != "":
		why = "a name or fingerprint that is none"
	case m.Name <= last:
		why = "names out of order"
	case m.UID == 0 || known || m.ResourceVersion < m.UID || m.ResourceVersion > s.version || m.Generation != 1:
		why = "a number that is nought or given out twice, or a version beyond the log"
	case m.CreationTimestamp <= 0 || m.DeletionTimestamp < 0 || m.DrainUntil != m.DeletionTimestamp:
		why = "times that do not belong together"
	case removing != (n.Status.State == NodeRemoving) || !knownState(n.Status.State):
		why = "a state that is not that of its removal"
	case len(n.Status.Conditions) > conditionsMax:
		why = "too many conditions"
	}
	for _, o := range s.nodes {
		if o.Spec.Fingerprint == n.Spec.Fingerprint {
			why = "a key that is another node's too"
		}
	}
	if why != "" {
		d.fail(fmt.Sprintf("%s %.80q: %s", KindNode, m.Name, why))
	}
}

func knownState(s NodeState) bool {
	switch s {
	case NodeJoining, NodeMember, NodeDraining, NodeRemoving:
		return true
	}
	return false
}

// rowsFlaw is what no history leads to in a placement, "" if one may.
func (s *State) rowsFlaw(step Step, rows []Replica) string {
	if step != Steady && step != Adding && step != Switching {
		return "a step that is none"
	}
	for i, r := range rows {
		switch {
		case r.Number != 0 && s.nodeOf(r.Number) == nil:
			return "a replica on no node"
		case r.Owner && (len(rows) > 1 || step != Steady || r.Learner):
			return "an owner that is not alone"
		case r.Next != Stays && r.Next != Rises && r.Next != Sinks && r.Next != Leaves:
			return "a replica that becomes nothing known"
		case r.Next != Stays && step == Steady:
			return "a replica that changes, and no change"
		case r.Replica != 0 && slices.ContainsFunc(rows[:i], func(o Replica) bool { return o.Replica == r.Replica }):
			return "a replica twice"
		}
	}
	return ""
}

// The fewest bytes a resource takes.
const (
	nodeSizeMin      = 7 + 3 + 5
	queueSizeMin     = 7 + 8 + 5
	connectorSizeMin = 7 + 7 + 5
)

// check refuses a resource that no history leads to. Bounds that may change from build to build are not
// looked at: what is there stays, whatever would be admitted today.
func (d *decoder) check(s *State, k Kind, m *Metadata, st *Status, last, specFlaw string) {
	why := specFlaw
	deleting := m.DeletionTimestamp != 0
	_, known := s.names[m.UID]
	switch {
	case why != "":
	case flaw(m.Name, 1, NameMax) != "":
		why = "a name " + flaw(m.Name, 1, NameMax)
	case m.Name <= last:
		why = "names out of order"
	case m.UID == 0 || known:
		why = "an id that is nought or given out twice"
	case m.ResourceVersion < m.UID || m.ResourceVersion > s.version:
		why = "a version before the making or beyond the log"
	case m.Generation == 0 || m.Generation > 1+m.ResourceVersion-m.UID || st.ObservedGeneration > m.Generation:
		why = "a generation beyond what was written, or observed before it was"
	case m.CreationTimestamp <= 0 || deleting != (m.DrainUntil != 0) || deleting && m.ResourceVersion == m.UID:
		why = "times that do not belong together"
	case deleting && (m.DeletionTimestamp < 0 || m.DrainUntil < m.DeletionTimestamp):
		why = "draining that ends before it begins"
	case deleting != (st.Phase == Deleting) || st.Destroying && !deleting:
		why = "a phase that is not that of its deletion"
	case validateStatus(k, m.Name, st) != nil:
		why = validateStatus(k, m.Name, st).Message
	default:
		why = s.rowsFlaw(st.Step, st.Placement)
	}
	if why != "" {
		d.fail(fmt.Sprintf("%s %.80q: %s", k, m.Name, why))
	}
}

func queueFlaw(s *QueueSpec) string {
	if s.Replicas < 1 || s.Durability != Flushed && s.Durability != Written || s.DrainDeadline <= 0 {
		return "a spec without replicas, durability or drain deadline"
	}
	return ""
}
