package control

import "encoding/binary"

// The byte form of what came with version 2 of commands and snapshots: nodes, placements and their steps.

func appendNodeSpec(b []byte, s *NodeSpec) []byte {
	return appendText(appendText(appendText(b, s.Fingerprint), s.Address), s.Admin)
}

func (d *decoder) nodeSpec() NodeSpec {
	return NodeSpec{Fingerprint: d.text(), Address: d.text(), Admin: d.text()}
}

// Of a replica's yes and no.
const (
	isOwner = 1 << iota
	isLearner
	leads
	isMade
	replicaBits = isOwner | isLearner | leads | isMade
)

func appendReplica(b []byte, r *Replica) []byte {
	b = appendUints(b, r.Replica, r.Number)
	b = appendText(appendText(b, r.Node), r.Disk)
	bits := byte(0)
	for i, set := range []bool{r.Owner, r.Learner, r.Lead, r.Made} {
		if set {
			bits |= 1 << i
		}
	}
	return appendText(appendText(append(b, bits), string(r.Next)), r.Lost)
}

// replicaSizeMin is the fewest bytes a replica takes.
const replicaSizeMin = 7

func (d *decoder) replica() Replica {
	r := Replica{Replica: d.uint(), Number: d.uint(), Node: d.text(), Disk: d.text()}
	bits := d.byte()
	if bits&^replicaBits != 0 {
		d.fail("a replica with properties that this build does not know")
	}
	r.Owner, r.Learner, r.Lead, r.Made = bits&isOwner != 0, bits&isLearner != 0, bits&leads != 0, bits&isMade != 0
	r.Next, r.Lost = Next(d.text()), d.text()
	return r
}

func appendReplicas(b []byte, list []Replica) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		b = appendReplica(b, &list[i])
	}
	return b
}

func (d *decoder) replicas() []Replica {
	var list []Replica
	for range d.count(replicaSizeMin) {
		list = append(list, d.replica())
	}
	return list
}

func appendConditions(b []byte, list []Condition) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, c := range list {
		b = appendText(appendText(appendText(b, c.Type), c.Reason), c.Message)
	}
	return b
}

func (d *decoder) conditions() []Condition {
	var list []Condition
	for range d.count(3) {
		list = append(list, Condition{Type: d.text(), Reason: d.text(), Message: d.text()})
	}
	return list
}

// appendFindings encodes the part of a status that controllers write.
func appendFindings(b []byte, s *Status) []byte {
	b = binary.AppendUvarint(b, s.ObservedGeneration)
	b = appendBool(appendText(b, string(s.Phase)), s.Destroying)
	return appendConditions(b, s.Conditions)
}

func (d *decoder) findings() Status {
	return Status{ObservedGeneration: d.uint(), Phase: Phase(d.text()), Destroying: d.bool(), Conditions: d.conditions()}
}

// appendStatus encodes a whole status.
func appendStatus(b []byte, s *Status) []byte {
	b = appendUints(appendFindings(b, s), s.Epoch)
	b = appendReplicas(appendText(b, string(s.Step)), s.Placement)
	b = binary.AppendUvarint(b, uint64(len(s.Founders)))
	for _, f := range s.Founders {
		b = appendUints(b, f.Replica, f.Number)
	}
	return b
}

func (d *decoder) status() Status {
	s := d.findings()
	s.Epoch, s.Step, s.Placement = d.uint(), Step(d.text()), d.replicas()
	for range d.count(2) {
		s.Founders = append(s.Founders, Founder{d.uint(), d.uint()})
	}
	return s
}

func appendNode(b []byte, n *Node) []byte {
	b = appendNodeSpec(appendMetadata(b, &n.Metadata), &n.Spec)
	b = appendBool(appendText(b, string(n.Status.State)), n.Status.Voter)
	b = appendText(appendUints(appendText(b, n.Status.Disk), n.Status.Incarnation), n.Status.Nonce)
	return appendConditions(b, n.Status.Conditions)
}

func (d *decoder) node(version byte) *Node {
	n := &Node{Kind: KindNode, Metadata: d.metadata(), Spec: d.nodeSpec(), Status: NodeStatus{
		State: NodeState(d.text()), Voter: d.bool(), Disk: d.text(), Incarnation: d.uint(),
	}}
	if version >= 3 {
		n.Status.Nonce = d.text()
	}
	n.Status.Conditions = d.conditions()
	return n
}

func appendCluster(b []byte, c *Cluster) []byte {
	b = appendUints(appendText(b, c.ID), c.Epoch)
	return appendReplicas(appendText(b, string(c.Step)), c.Replicas)
}

func (d *decoder) cluster() Cluster {
	return Cluster{ID: d.text(), Epoch: d.uint(), Step: Step(d.text()), Replicas: d.replicas()}
}

func (c *Observe) append(b []byte, rules int) []byte {
	b = appendUints(appendText(b, string(c.Kind)), c.UID, c.Generation)
	if rules == 1 {
		return appendStatus1(b, &c.Status)
	}
	b = appendFindings(appendUints(b, c.Epoch), &c.Status)
	b = binary.AppendUvarint(b, uint64(len(c.Made)))
	return appendUints(b, c.Made...)
}

func (d *decoder) observe(rules int) *Observe {
	c := &Observe{Kind: Kind(d.text()), UID: d.uint(), Generation: d.uint()}
	if rules == 1 {
		c.Status = d.status1()
		return c
	}
	c.Epoch, c.Status = d.uint(), d.findings()
	for range d.count(1) {
		c.Made = append(c.Made, d.uint())
	}
	return c
}

func (c *Found) append(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendVarint(b, c.At), uint64(len(c.Seeds)))
	for _, s := range c.Seeds {
		b = appendText(appendText(appendText(appendText(b, s.Name), s.Fingerprint), s.Address), s.Admin)
	}
	return b
}

func (d *decoder) found() *Found {
	c := &Found{At: d.int()}
	for range d.count(4) {
		c.Seeds = append(c.Seeds, Seed{d.text(), d.text(), d.text(), d.text()})
	}
	return c
}

func (c *Register) append(b []byte) []byte {
	b = appendText(appendText(appendNodeSpec(b, &c.NodeSpec), c.Name), c.Disk)
	b = binary.AppendVarint(appendUints(b, c.Incarnation), c.At)
	if c.number() == numberRegister {
		return b
	}
	return appendText(appendText(b, c.Nonce), c.After)
}

// number is the command's: who says no nonce has the form of before there were any.
func (c *Register) number() byte {
	if c.Nonce == "" && c.After == "" {
		return numberRegister
	}
	return numberLife
}

func (d *decoder) register(number byte) *Register {
	c := &Register{NodeSpec: d.nodeSpec(), Name: d.text(), Disk: d.text(), Incarnation: d.uint(), At: d.int()}
	if number == numberLife {
		if c.Nonce, c.After = d.text(), d.text(); c.Nonce == "" && c.After == "" {
			d.fail("a life without a nonce")
		}
	}
	return c
}

func (c *Place) append(b []byte) []byte {
	return appendSpots(appendUints(appendText(b, string(c.Kind)), c.UID, c.Generation, c.Epoch), c.Want)
}

func appendSpots(b []byte, list []Spot) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, w := range list {
		b = appendBool(appendBool(appendUints(b, w.Number), w.Learner), w.Lead)
	}
	return b
}

func (d *decoder) spots() (list []Spot) {
	for range d.count(3) {
		list = append(list, Spot{d.uint(), d.bool(), d.bool()})
	}
	return list
}

func (d *decoder) place() *Place {
	return &Place{Kind: Kind(d.text()), UID: d.uint(), Generation: d.uint(), Epoch: d.uint(), Want: d.spots()}
}

func (c *Lost) append(b []byte) []byte {
	if c.Kind == "" {
		b = append(b, numberLost)
	} else {
		b = appendText(append(b, numberDamaged), string(c.Kind))
	}
	return appendText(appendUints(b, c.UID, c.Replica), c.Reason)
}
