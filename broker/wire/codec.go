package wire

import (
	"errors"
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// FormatError is a frame that this build cannot read. The stream is of no more use.
type FormatError struct {
	Frame string // name of the frame, or "" if its type is unknown
	Cause string
}

func (e *FormatError) Error() string {
	if e.Frame == "" {
		return "wire: malformed frame: " + e.Cause
	}
	return fmt.Sprintf("wire: malformed %s frame: %s", e.Frame, e.Cause)
}

// enc appends fields to a payload.
type enc struct{ b []byte }

func (e *enc) uint(v uint64)  { e.b = quicvarint.Append(e.b, v) }
func (e *enc) byte(v byte)    { e.b = append(e.b, v) }
func (e *enc) raw(v []byte)   { e.b = append(e.b, v...) }
func (e *enc) bytes(v []byte) { e.uint(uint64(len(v))); e.raw(v) }
func (e *enc) text(v string)  { e.uint(uint64(len(v))); e.b = append(e.b, v...) }

func (e *enc) bool(v bool) {
	if v {
		e.byte(1)
	} else {
		e.byte(0)
	}
}

// evidence: one byte of kind (0 unspecified, 1 accepted, 2 stored, 3 replicated), one of
// persistence, and the count if replicated.
func (e *enc) evidence(v Evidence) {
	switch v.Level() {
	case "":
		e.byte(0)
		return
	case "accepted":
		e.byte(1)
		return
	case "stored":
		e.byte(2)
	case "replicated":
		e.byte(3)
	}
	e.byte(byte(v.Persistence))
	if v.Replicas >= 2 {
		e.uint(uint64(v.Replicas))
	}
}

// dec takes fields off a payload; the first error stays.
type dec struct {
	b   []byte
	err error
}

func (d *dec) fail(cause string) {
	if d.err == nil {
		d.err = errors.New(cause)
		d.b = nil
	}
}

func (d *dec) uint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n, err := quicvarint.Parse(d.b)
	if err != nil {
		d.fail("a number is cut short")
		return 0
	}
	if quicvarint.Len(v) != n {
		d.fail("a number is not in its shortest form")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *dec) byte() byte {
	if len(d.b) == 0 {
		d.fail("a byte is missing")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *dec) bool() bool {
	v := d.byte()
	if v > 1 {
		d.fail("a flag is neither 0 nor 1")
	}
	return v == 1
}

func (d *dec) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("bytes are missing")
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *dec) bytes(limit uint64, what string) []byte {
	n := d.uint()
	if n > limit {
		d.fail(fmt.Sprintf("%s of %d bytes, at most %d", what, n, limit))
		return nil
	}
	return d.take(n)
}

func (d *dec) text(limit uint64, what string) string { return string(d.bytes(limit, what)) }

func (d *dec) digest() (v [16]byte) {
	copy(v[:], d.take(16))
	return v
}

func (d *dec) fingerprint() (v [32]byte) {
	copy(v[:], d.take(32))
	return v
}

func (d *dec) evidence(unspecified bool) Evidence {
	kind := d.byte()
	switch kind {
	case 0:
		if !unspecified {
			d.fail("evidence is missing")
		}
		return Evidence{}
	case 1:
		return Accepted()
	}
	p := Persistence(d.byte())
	if p != Written && p != Flushed {
		d.fail("stored or replicated without a level")
		return Evidence{}
	}
	switch kind {
	case 2:
		return Stored(p)
	case 3:
		n := d.uint()
		if n < 2 || n > ReplicasMax {
			d.fail(fmt.Sprintf("replicated %d", n))
			return Evidence{}
		}
		return Replicated(uint32(n), p)
	}
	d.fail(fmt.Sprintf("evidence of unknown kind %d", kind))
	return Evidence{}
}

func (d *dec) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail(fmt.Sprintf("%d bytes left over", len(d.b)))
	}
	return d.err
}
