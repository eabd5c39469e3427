package control

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// commandVersion is the first byte of every command. It stands for the byte form and for the rules by
// which a command is judged: when a bound or a rule changes, the version rises and commands of older
// versions go on to be judged by theirs, so that a log means the same to every build that can read it.
//
// Version 1 was of a build with one node and one replica: an Observe of it says where a queue is, a
// mutation of it takes no more than one replica. Version 2 has nodes, placements and their steps.
const commandVersion = 2

// Command is one entry of the control log: exactly one of its pointers is set.
type Command struct {
	// Rules is the version by whose rules the command is judged, if it was written by an older build; 0 is this one's.
	Rules int

	Mutation *Mutation // of a user
	Observe  *Observe  // of a controller
	Remove   *Remove   // of a controller
	Found    *Found    // the first of a cluster
	Register *Register // of a node, about itself
	Place    *Place    // of the control leader
	Reached  *Reached  // of whoever leads the group
	Gone     *Gone     // of the replica's node
	Lost     *Lost     // likewise
	Stuck    *Stuck    // of whoever leads the group
}

// Observe records what a controller found and did. Of a node it takes Status.Conditions alone; of the control
// group, Made.
type Observe struct {
	Kind Kind
	UID  uint64
	// Generation is the generation of the spec that the controller worked on.
	Generation uint64
	// Epoch is that of the placement that the controller worked on.
	Epoch uint64
	// Status takes the place of the one that stands, but for what placement consists of: that stays. Its
	// ObservedGeneration is at most Generation, and never less than the one that stands.
	Status Status
	// Made are the replicas that were seen to hold the log.
	Made []uint64
}

// Remove takes the record of a deleted resource away: the last step of a deletion (T-21).
type Remove struct {
	Kind Kind
	UID  uint64
	// Replica is one whose data is known to be gone, or of a connector, that is known to have stopped; 0 is none. Others
	// are retired.
	Replica uint64
}

// Numbers of commands on disk, never reused.
const (
	numberMutation = 1
	numberObserve  = 2
	numberRemove   = 3
	numberFound    = 4
	numberRegister = 5
	numberPlace    = 6
	numberReached  = 7
	numberGone     = 8
	numberLost     = 9
	numberStuck    = 10
	numberAnew     = 11 // a Place that is
	numberLife     = 12 // a Register with a nonce
	numberDamaged  = 13 // a Lost with a kind
)

// What is present in a mutation.
const (
	hasQueue = 1 << iota
	hasConnector
	hasExpected
	hasDrain
	hasNode // since version 2
	hasWant // since version 2
	hasAll  = hasQueue | hasConnector | hasExpected | hasDrain | hasNode | hasWant
	hasAll1 = hasAll &^ (hasNode | hasWant)
)

// rules is the version by whose rules the command is judged.
func (c Command) rules() int {
	if c.Rules == 0 {
		return commandVersion
	}
	return c.Rules
}

// Append encodes the command behind dst. Every command can be encoded, also one that will be refused.
func (c Command) Append(dst []byte) []byte {
	c.one()
	dst = append(dst, byte(c.rules()))
	switch {
	case c.Mutation != nil:
		return c.Mutation.append(append(dst, numberMutation))
	case c.Observe != nil:
		return c.Observe.append(append(dst, numberObserve), c.rules())
	case c.Found != nil:
		return c.Found.append(append(dst, numberFound))
	case c.Register != nil:
		return c.Register.append(append(dst, c.Register.number()))
	case c.Place != nil:
		number := byte(numberPlace)
		if c.Place.Anew {
			number = numberAnew
		}
		return c.Place.append(append(dst, number))
	case c.Reached != nil:
		dst = appendText(append(dst, numberReached), string(c.Reached.Kind))
		return appendUints(dst, c.Reached.UID, c.Reached.Epoch)
	case c.Stuck != nil:
		dst = appendText(append(dst, numberStuck), string(c.Stuck.Kind))
		return appendUints(dst, c.Stuck.UID, c.Stuck.Epoch)
	case c.Gone != nil:
		dst = appendText(append(dst, numberGone), string(c.Gone.Kind))
		return appendUints(dst, c.Gone.UID, c.Gone.Replica)
	case c.Lost != nil:
		return c.Lost.append(dst)
	default:
		dst = appendUints(appendText(append(dst, numberRemove), string(c.Remove.Kind)), c.Remove.UID)
		if c.rules() >= 2 {
			dst = appendUints(dst, c.Remove.Replica)
		}
		return dst
	}
}

// one asserts that the command is one command.
func (c Command) one() {
	n := 0
	for _, set := range []bool{
		c.Mutation != nil, c.Observe != nil, c.Remove != nil, c.Found != nil, c.Register != nil, c.Place != nil,
		c.Reached != nil, c.Gone != nil, c.Lost != nil, c.Stuck != nil,
	} {
		if set {
			n++
		}
	}
	if n != 1 {
		panic(fmt.Sprintf("bug: control: a command that is %d commands", n))
	}
}

func (m *Mutation) append(b []byte) []byte {
	has := byte(0)
	for i, set := range []bool{
		m.Queue != nil, m.Connector != nil, m.Expected != nil, m.Drain != nil, m.Node != nil, len(m.Want) > 0,
	} {
		if set {
			has |= 1 << i
		}
	}
	b = append(b, has)
	b = appendText(appendText(appendText(b, string(m.Verb)), string(m.Kind)), m.Name)
	b = binary.AppendVarint(b, m.At)
	if m.Queue != nil {
		b = appendQueueSpec(b, m.Queue)
	}
	if m.Connector != nil {
		b = appendConnectorSpec(b, m.Connector)
	}
	if m.Expected != nil {
		b = binary.AppendUvarint(b, *m.Expected)
	}
	if m.Drain != nil {
		b = binary.AppendVarint(b, int64(*m.Drain))
	}
	if m.Node != nil {
		b = appendNodeSpec(b, m.Node)
	}
	if len(m.Want) > 0 {
		b = appendSpots(b, m.Want)
	}
	return b
}

// Decode reads a command that Append wrote; only that form is taken, so what it returns encodes to the
// same bytes. Nothing of b is kept.
func Decode(b []byte) (Command, error) {
	if len(b) == 0 {
		return Command{}, errors.New("control: command: cut short")
	}
	if b[0] == 0 || b[0] > commandVersion {
		return Command{}, fmt.Errorf("control: command of version %d, this build reads 1 to %d", b[0], commandVersion)
	}
	d := decoder{b: b[1:]}
	var c Command
	if b[0] < commandVersion {
		c.Rules = int(b[0])
	}
	n := d.byte()
	if c.Rules == 1 && n > numberRemove || !d.command(&c, n) {
		if d.err == nil {
			return Command{}, fmt.Errorf("control: command of unknown number %d", n)
		}
	}
	if err := d.end(); err != nil {
		return Command{}, fmt.Errorf("control: command: %w", err)
	}
	return c, nil
}

// command reads the command of that number and says whether there is one.
func (d *decoder) command(c *Command, n byte) bool {
	switch n {
	case numberMutation:
		c.Mutation = d.mutation(c.rules())
	case numberObserve:
		c.Observe = d.observe(c.rules())
	case numberRemove:
		c.Remove = &Remove{Kind: Kind(d.text()), UID: d.uint()}
		if c.rules() >= 2 {
			c.Remove.Replica = d.uint()
		}
	case numberFound:
		c.Found = d.found()
	case numberRegister, numberLife:
		c.Register = d.register(n)
	case numberPlace, numberAnew:
		c.Place = d.place()
		c.Place.Anew = n == numberAnew
	case numberReached:
		c.Reached = &Reached{Kind: Kind(d.text()), UID: d.uint(), Epoch: d.uint()}
	case numberStuck:
		c.Stuck = &Stuck{Kind: Kind(d.text()), UID: d.uint(), Epoch: d.uint()}
	case numberGone:
		c.Gone = &Gone{Kind: Kind(d.text()), UID: d.uint(), Replica: d.uint()}
	case numberLost:
		c.Lost = &Lost{UID: d.uint(), Replica: d.uint(), Reason: d.text()}
	case numberDamaged:
		c.Lost = &Lost{Kind: Kind(d.text()), UID: d.uint(), Replica: d.uint(), Reason: d.text()}
		if c.Lost.Kind == "" {
			d.fail("a lost replica without a kind")
		}
	default:
		return false
	}
	return true
}

func (d *decoder) mutation(rules int) *Mutation {
	has := d.byte()
	if has&^hasAll != 0 || rules == 1 && has&^hasAll1 != 0 {
		d.fail("a mutation with fields that this build does not know")
	}
	m := &Mutation{Verb: Verb(d.text()), Kind: Kind(d.text()), Name: d.text(), At: d.int()}
	if has&hasQueue != 0 {
		s := d.queueSpec()
		m.Queue = &s
	}
	if has&hasConnector != 0 {
		s := d.connectorSpec()
		m.Connector = &s
	}
	if has&hasExpected != 0 {
		v := d.uint()
		m.Expected = &v
	}
	if has&hasDrain != 0 {
		v := Duration(d.int())
		m.Drain = &v
	}
	if has&hasNode != 0 {
		s := d.nodeSpec()
		m.Node = &s
	}
	if has&hasWant != 0 {
		if m.Want = d.spots(); len(m.Want) == 0 {
			d.fail("a placement that is nowhere")
		}
	}
	return m
}
