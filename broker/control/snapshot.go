package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// snapshotVersion is the first byte of every snapshot.
const snapshotVersion = 1

// Snapshot encodes the whole registry. The same state gives the same bytes.
func (s *State) Snapshot() []byte {
	b := binary.AppendUvarint([]byte{snapshotVersion}, s.version)
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
	return b
}

// Restore returns the state that Snapshot encoded. It refuses what no history leads to, and allocates no
// more than the bytes warrant. Nothing of b is kept.
func Restore(b []byte) (*State, error) {
	if len(b) == 0 {
		return nil, errors.New("control: snapshot: cut short")
	}
	if b[0] != snapshotVersion {
		return nil, fmt.Errorf("control: snapshot of version %d, this build reads %d", b[0], snapshotVersion)
	}
	d := decoder{b: b[1:]}
	s := &State{version: d.uint()}
	last := ""
	for range d.count(queueSizeMin) {
		q := &Queue{Kind: KindQueue, Metadata: d.metadata(), Spec: d.queueSpec(), Status: d.status()}
		if d.err == nil {
			d.check(s, KindQueue, &q.Metadata, &q.Status, last, queueFlaw(&q.Spec))
			s.put(q)
		}
		last = q.Metadata.Name
	}
	last = ""
	for range d.count(connectorSizeMin) {
		c := &Connector{Kind: KindConnector, Metadata: d.metadata(), Spec: d.connectorSpec(), Status: d.status()}
		if d.err == nil {
			d.check(s, KindConnector, &c.Metadata, &c.Status, last, "")
			s.putConnector(c)
		}
		last = c.Metadata.Name
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("control: snapshot: %w", err)
	}
	return s, nil
}

// The fewest bytes a resource takes.
const (
	queueSizeMin     = 8 + 8 + 5
	connectorSizeMin = 8 + 7 + 5
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
