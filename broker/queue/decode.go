package queue

import (
	"encoding/binary"
	"errors"
)

// errShort means that the bytes end within a field.
var errShort = errors.New("cut short")

// decoder takes fields off bytes; the first error stays. Every value has one encoding only.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(cause string) {
	if d.err == nil {
		d.err, d.b = errors.New(cause), nil
	}
}

func (d *decoder) short() {
	if d.err == nil {
		d.err, d.b = errShort, nil
	}
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.short()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	switch {
	case n == 0:
		d.short()
		return 0
	case n < 0:
		d.fail("a number beyond 64 bits")
		return 0
	case n > 1 && d.b[n-1] == 0:
		d.fail("a number that is longer than it has to be")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// int reads a number that appendInt wrote.
func (d *decoder) int() uint64 {
	v := d.uint()
	return v>>1 ^ -(v & 1)
}

// appendInt encodes a difference, short if it is near zero.
func appendInt(dst []byte, v uint64) []byte {
	return binary.AppendUvarint(dst, v<<1^uint64(int64(v)>>63))
}

func (d *decoder) bool() bool {
	v := d.byte()
	if v > 1 {
		d.fail("a flag that is neither yes nor no")
	}
	return v == 1
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.short()
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string {
	n := int(d.byte())
	if n > textMax {
		d.fail("an id beyond its bound")
		return ""
	}
	return string(d.take(n))
}

// textMax bounds the ids of subscriptions and producers.
const textMax = 64

func appendText(dst []byte, s string) []byte {
	if len(s) > textMax {
		panic("bug: queue: an id beyond its bound")
	}
	return append(append(dst, byte(len(s))), s...)
}
