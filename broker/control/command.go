package control

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// commandVersion is the first byte of every command. It stands for the byte form and for the rules by
// which a command is judged: when a bound or a rule changes, the version rises and commands of older
// versions go on to be judged by theirs, so that a log means the same to every build that can read it.
const commandVersion = 1

// Command is one entry of the control log: exactly one of its fields is set.
type Command struct {
	Mutation *Mutation // of a user
	Observe  *Observe  // of a controller
	Remove   *Remove   // of a controller
}

// Observe records what a controller found and did.
type Observe struct {
	Kind Kind
	UID  uint64
	// Generation is the generation of the spec that the controller worked on.
	Generation uint64
	// Status takes the place of the one that stands. Its ObservedGeneration is at most Generation, and
	// never less than the one that stands.
	Status Status
}

// Remove takes the record of a deleted resource away: the last step of a deletion (T-21).
type Remove struct {
	Kind Kind
	UID  uint64
}

// Numbers of commands on disk, never reused.
const (
	numberMutation = 1
	numberObserve  = 2
	numberRemove   = 3
)

// What is present in a mutation.
const (
	hasQueue = 1 << iota
	hasConnector
	hasExpected
	hasDrain
	hasAll = hasQueue | hasConnector | hasExpected | hasDrain
)

// Append encodes the command behind dst. Every command can be encoded, also one that will be refused.
func (c Command) Append(dst []byte) []byte {
	c.one()
	dst = append(dst, commandVersion)
	switch {
	case c.Mutation != nil:
		return c.Mutation.append(append(dst, numberMutation))
	case c.Observe != nil:
		dst = appendText(append(dst, numberObserve), string(c.Observe.Kind))
		return appendStatus(appendUints(dst, c.Observe.UID, c.Observe.Generation), &c.Observe.Status)
	default:
		dst = appendText(append(dst, numberRemove), string(c.Remove.Kind))
		return binary.AppendUvarint(dst, c.Remove.UID)
	}
}

// one asserts that the command is one command.
func (c Command) one() {
	n := 0
	for _, set := range []bool{c.Mutation != nil, c.Observe != nil, c.Remove != nil} {
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
	if m.Queue != nil {
		has |= hasQueue
	}
	if m.Connector != nil {
		has |= hasConnector
	}
	if m.Expected != nil {
		has |= hasExpected
	}
	if m.Drain != nil {
		has |= hasDrain
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
	return b
}

// Decode reads a command that Append wrote; only that form is taken, so what it returns encodes to the
// same bytes. Nothing of b is kept.
func Decode(b []byte) (Command, error) {
	if len(b) == 0 {
		return Command{}, errors.New("control: command: cut short")
	}
	if b[0] != commandVersion {
		return Command{}, fmt.Errorf("control: command of version %d, this build reads %d", b[0], commandVersion)
	}
	d := decoder{b: b[1:]}
	var c Command
	switch n := d.byte(); n {
	case numberMutation:
		c.Mutation = d.mutation()
	case numberObserve:
		c.Observe = &Observe{Kind: Kind(d.text()), UID: d.uint(), Generation: d.uint(), Status: d.status()}
	case numberRemove:
		c.Remove = &Remove{Kind: Kind(d.text()), UID: d.uint()}
	default:
		if d.err == nil {
			return Command{}, fmt.Errorf("control: command of unknown number %d", n)
		}
	}
	if err := d.end(); err != nil {
		return Command{}, fmt.Errorf("control: command: %w", err)
	}
	return c, nil
}

func (d *decoder) mutation() *Mutation {
	has := d.byte()
	if has&^hasAll != 0 {
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
	return m
}
