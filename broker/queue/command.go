package queue

import (
	"encoding/binary"
	"fmt"
)

// Kind tells commands apart on disk. Numbers are never reused.
type Kind uint8

// The commands. Publish and PublishFrom carry a body, the others none. Limit is Grant by whoever asks,
// and DetachAll spares nobody; they are no longer written.
const (
	Publish Kind = iota + 1
	Attach
	Detach
	DetachAll
	Limit
	Settle
	Unsubscribe
	Register
	Retire
	PublishFrom
	Configure
	Purge
	Grant
	DetachBelow
)

// Verb is how a delivery is settled.
type Verb uint8

// The verbs: accept and reject take the message out, release puts it back in its place.
const (
	Accept Verb = iota + 1
	Release
	Reject
)

const (
	// SubscriptionMax bounds a subscription id in bytes.
	SubscriptionMax = textMax
	// ProducerMax bounds a producer id in bytes.
	ProducerMax = textMax
)

// Command is one change of a queue, as it stands in the log.
type Command struct {
	Kind         Kind
	Subscription string
	// Session is, of Attach, Detach and Grant, who holds the subscription; of Settle, Register, Retire and Purge, who
	// asks; of DetachBelow, the lowest one that is spared.
	Session uint64
	Limit   uint64 // of Attach, Grant, Limit: absolute number of deliveries allowed
	Offset  uint64 // of Settle, with Attempt and Term
	Attempt uint64
	Term    uint64
	Verb    Verb

	Producer string   // of Register, Retire: 1 to ProducerMax bytes
	Identity [32]byte // of Register, Retire: whose producer it is
	Slot     uint64   // of PublishFrom, from Registered
	Seq      uint64   // of PublishFrom: 1 is the lowest
	Low      uint64   // of PublishFrom: the producer's lowest sequence without an answer; never falls

	MaxMessages uint64 // of Configure: 0 means no limit
	MaxBytes    uint64 // of Configure, in bytes, MessageCost per message included: 0 means no limit
	Closed      bool   // of Configure: no message is taken any more

	Body   Ref    // of Publish, PublishFrom, from the commit record
	Length int64  // of the body in bytes, from the commit record
	Large  *Large // if the body is large
}

// Append encodes the command behind dst; Body, Length and Large are not part of it, the log has them.
func (c *Command) Append(dst []byte) []byte {
	dst = append(dst, byte(c.Kind))
	switch c.Kind {
	case Attach, Grant:
		dst = appendText(dst, c.Subscription)
		dst = appendNumbers(dst, c.Session, c.Limit)
	case Detach:
		dst = appendText(dst, c.Subscription)
		dst = appendNumbers(dst, c.Session)
	case Limit:
		dst = appendText(dst, c.Subscription)
		dst = appendNumbers(dst, c.Limit)
	case Unsubscribe:
		dst = appendText(dst, c.Subscription)
	case Settle:
		dst = appendText(dst, c.Subscription)
		dst = appendNumbers(dst, c.Session, c.Offset, c.Attempt, c.Term)
		dst = append(dst, byte(c.Verb))
	case Register, Retire:
		dst = appendText(dst, c.Producer)
		dst = append(dst, c.Identity[:]...)
		dst = appendNumbers(dst, c.Session)
	case PublishFrom:
		dst = appendNumbers(dst, c.Slot, c.Seq, c.Low)
	case Configure:
		dst = appendNumbers(dst, c.MaxMessages, c.MaxBytes)
		dst = appendBool(dst, c.Closed)
	case Purge, DetachBelow:
		dst = appendNumbers(dst, c.Session)
	case Publish, DetachAll: // nothing but the kind
	}
	return dst
}

func appendNumbers(dst []byte, list ...uint64) []byte {
	for _, v := range list {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// Decode reads a command. Nothing of b is kept.
func Decode(b []byte) (Command, error) {
	d := decoder{b: b}
	c := Command{Kind: Kind(d.byte())}
	switch c.Kind {
	case Publish, DetachAll:
	case Attach, Grant:
		c.Subscription, c.Session, c.Limit = d.text(), d.uint(), d.uint()
	case Detach:
		c.Subscription, c.Session = d.text(), d.uint()
	case Limit:
		c.Subscription, c.Limit = d.text(), d.uint()
	case Unsubscribe:
		c.Subscription = d.text()
	case Settle:
		c.Subscription, c.Session = d.text(), d.uint()
		c.Offset, c.Attempt, c.Term = d.uint(), d.uint(), d.uint()
		c.Verb = Verb(d.byte())
		if c.Verb < Accept || c.Verb > Reject {
			d.fail("an undefined verb")
		}
	case Register, Retire:
		c.Producer = d.text()
		copy(c.Identity[:], d.take(len(c.Identity)))
		c.Session = d.uint()
		if c.Producer == "" {
			d.fail("a producer without an id")
		}
	case PublishFrom:
		c.Slot, c.Seq, c.Low = d.uint(), d.uint(), d.uint()
	case Configure:
		c.MaxMessages, c.MaxBytes, c.Closed = d.uint(), d.uint(), d.bool()
	case Purge, DetachBelow:
		c.Session = d.uint()
	default:
		return Command{}, fmt.Errorf("queue: command of unknown kind %d", c.Kind)
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail("bytes left over")
	}
	if d.err != nil {
		return Command{}, fmt.Errorf("queue: command of kind %d: %w", c.Kind, d.err)
	}
	return c, nil
}
