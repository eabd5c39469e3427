package control

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// The byte form of resources, in commands and in snapshots. Numbers are varints in their shortest form,
// texts and lists carry their length, maps are in order of key: one value has one form.

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendUints(b []byte, list ...uint64) []byte {
	for _, v := range list {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func appendMetadata(b []byte, m *Metadata) []byte {
	b = appendText(b, m.Name)
	b = appendUints(b, m.UID, m.Generation, m.ResourceVersion)
	b = binary.AppendVarint(b, m.CreationTimestamp)
	b = binary.AppendVarint(b, m.DeletionTimestamp)
	return binary.AppendVarint(b, m.DrainUntil)
}

func appendQueueSpec(b []byte, s *QueueSpec) []byte {
	b = binary.AppendVarint(b, int64(s.Replicas))
	b = appendText(b, string(s.Durability))
	b = appendUints(b, s.Limits.Messages, s.Limits.Bytes, s.Limits.MessageBytes)
	b = binary.AppendUvarint(b, uint64(len(s.Placement.Nodes)))
	for _, n := range s.Placement.Nodes {
		b = appendText(b, n)
	}
	b = appendText(b, s.Placement.PreferredLeader)
	return binary.AppendVarint(b, int64(s.DrainDeadline))
}

func appendConnectorSpec(b []byte, s *ConnectorSpec) []byte {
	b = appendText(appendText(appendText(b, s.Protocol), s.Direction), s.Address)
	b = binary.AppendUvarint(b, uint64(len(s.Policy)))
	for _, k := range slices.Sorted(maps.Keys(s.Policy)) {
		b = appendText(appendText(b, k), s.Policy[k])
	}
	return appendText(appendText(appendText(b, s.Queue), s.Evidence), s.Loss)
}

// appendStatus1 encodes a status as version 1 had it.
func appendStatus1(b []byte, s *Status) []byte {
	b = binary.AppendUvarint(b, s.ObservedGeneration)
	b = appendText(b, string(s.Phase))
	b = appendBool(b, s.Destroying)
	b = binary.AppendUvarint(b, uint64(len(s.Placement)))
	for _, r := range s.Placement {
		b = appendBool(appendText(appendText(b, r.Node), r.Disk), r.Owner)
	}
	return appendConditions(b, s.Conditions)
}

// decoder takes fields off bytes; the first error stays. What it allocates is bounded by what it reads.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(cause string) {
	if d.err == nil {
		d.err, d.b = errors.New(cause), nil
	}
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("cut short")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) bool() bool {
	v := d.byte()
	if v > 1 {
		d.fail("a yes or no that is neither")
	}
	return v == 1
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("a number is cut short or too large")
		return 0
	}
	if n > 1 && d.b[n-1] == 0 {
		d.fail("a number is not in its shortest form")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	u := d.uint()
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

func (d *decoder) text() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("a text is cut short")
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// count is the length of a list whose elements take at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail("a list is cut short")
		return 0
	}
	return int(n)
}

// end returns the first error; bytes that are left over are one.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("bytes left over")
	}
	return d.err
}

func (d *decoder) metadata() Metadata {
	return Metadata{
		Name: d.text(), UID: d.uint(), Generation: d.uint(), ResourceVersion: d.uint(),
		CreationTimestamp: d.int(), DeletionTimestamp: d.int(), DrainUntil: d.int(),
	}
}

func (d *decoder) queueSpec() QueueSpec {
	var s QueueSpec
	s.Replicas = int(d.int())
	s.Durability = Durability(d.text())
	s.Limits = QueueLimits{Messages: d.uint(), Bytes: d.uint(), MessageBytes: d.uint()}
	for range d.count(1) {
		s.Placement.Nodes = append(s.Placement.Nodes, d.text())
	}
	s.Placement.PreferredLeader = d.text()
	s.DrainDeadline = Duration(d.int())
	return s
}

func (d *decoder) connectorSpec() ConnectorSpec {
	s := ConnectorSpec{Protocol: d.text(), Direction: d.text(), Address: d.text()}
	last := ""
	for i := range d.count(2) {
		k, v := d.text(), d.text()
		if i == 0 {
			s.Policy = make(map[string]string)
		} else if k <= last {
			d.fail("keys of a policy out of order")
		}
		last, s.Policy[k] = k, v
	}
	s.Queue, s.Evidence, s.Loss = d.text(), d.text(), d.text()
	return s
}

// status1 decodes a status of version 1.
func (d *decoder) status1() Status {
	s := Status{ObservedGeneration: d.uint(), Phase: Phase(d.text()), Destroying: d.bool()}
	for range d.count(3) {
		s.Placement = append(s.Placement, Replica{Node: d.text(), Disk: d.text(), Owner: d.bool()})
	}
	s.Conditions = d.conditions()
	return s
}
