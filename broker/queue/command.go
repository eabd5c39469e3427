package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind tells commands apart on disk. Numbers are never reused.
type Kind uint8

// The commands. Publish carries a body, the others none.
const (
	Publish Kind = iota + 1
	Attach
	Detach
	DetachAll
	Limit
	Settle
	Unsubscribe
)

// Verb is how a delivery is settled.
type Verb uint8

// The verbs: accept and reject take the message out, release puts it back in its place.
const (
	Accept Verb = iota + 1
	Release
	Reject
)

// SubscriptionMax bounds a subscription id in bytes.
const SubscriptionMax = 64

// Command is one change of a queue, as it stands in the log.
type Command struct {
	Kind         Kind
	Subscription string
	Session      uint64 // of Attach, Detach: who holds the subscription; of Settle: who gets the answer
	Limit        uint64 // of Attach, Limit: absolute number of deliveries allowed
	Offset       uint64 // of Settle, with Attempt and Term
	Attempt      uint64
	Term         uint64
	Verb         Verb

	Body  Ref    // of Publish, from the commit record
	Large *Large // of Publish, if the body is large
}

// Append encodes the command behind dst; Body and Large are not part of it, the log has them.
func (c *Command) Append(dst []byte) []byte {
	dst = append(dst, byte(c.Kind))
	switch c.Kind {
	case Attach:
		dst = appendText(dst, c.Subscription)
		dst = binary.AppendUvarint(dst, c.Session)
		dst = binary.AppendUvarint(dst, c.Limit)
	case Detach:
		dst = appendText(dst, c.Subscription)
		dst = binary.AppendUvarint(dst, c.Session)
	case Limit:
		dst = appendText(dst, c.Subscription)
		dst = binary.AppendUvarint(dst, c.Limit)
	case Unsubscribe:
		dst = appendText(dst, c.Subscription)
	case Settle:
		dst = appendText(dst, c.Subscription)
		dst = binary.AppendUvarint(dst, c.Session)
		dst = binary.AppendUvarint(dst, c.Offset)
		dst = binary.AppendUvarint(dst, c.Attempt)
		dst = binary.AppendUvarint(dst, c.Term)
		dst = append(dst, byte(c.Verb))
	case Publish, DetachAll: // nothing but the kind
	}
	return dst
}

// Decode reads a command. Nothing of b is kept.
func Decode(b []byte) (Command, error) {
	d := decoder{b: b}
	c := Command{Kind: Kind(d.byte())}
	switch c.Kind {
	case Publish, DetachAll:
	case Attach:
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

func appendText(dst []byte, s string) []byte {
	if len(s) > SubscriptionMax {
		panic("bug: queue: subscription id beyond its bound")
	}
	return append(append(dst, byte(len(s))), s...)
}

// decoder takes fields off bytes; the first error stays.
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

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("a number is cut short")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.fail("cut short")
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string {
	n := int(d.byte())
	if n > SubscriptionMax {
		d.fail("a subscription id beyond its bound")
		return ""
	}
	return string(d.take(n))
}
