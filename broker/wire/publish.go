package wire

// Publish is one message. A body above InlineMax is Large: it follows on the sender's unidirectional
// stream of number Stream, which starts with a BodyHead. With Within it is a PUBLISH_WITHIN on the wire.
type Publish struct {
	Seq  uint64
	Low  uint64 // the producer's lowest unresolved sequence
	Want Want   // unspecified: the stream's default
	// Within is how many milliseconds after its commit the message's want may take; 0: as long as the node allows.
	Within  uint64
	Headers []byte // opaque to the broker
	Large   bool
	Stream  uint64 // of a large body
	Length  uint64 // of a large body
	Body    []byte // of a small one
}

// WithinMax bounds Publish.Within, in milliseconds.
const WithinMax = 60_000

// Type is TypePublish, or TypePublishWithin.
func (f *Publish) Type() Type {
	if f.Within > 0 {
		return TypePublishWithin
	}
	return TypePublish
}

func (f *Publish) encode(e *enc) {
	e.uint(f.Seq)
	e.uint(f.Low)
	e.evidence(f.Want)
	if f.Within > 0 {
		e.uint(f.Within)
	}
	e.bytes(f.Headers)
	e.body(f.Large, f.Stream, f.Length, f.Body)
}

// decode reads the frame whose type f has.
func (f *Publish) decode(d *dec) {
	within := f.Within > 0
	f.Seq = d.uint()
	f.Low = d.uint()
	f.Want = d.evidence(true)
	if within {
		if f.Within = d.uint(); d.err == nil && (f.Within == 0 || f.Within > WithinMax) {
			d.fail("a time that is none, or too long")
		}
	}
	f.Headers = d.bytes(HeadersMax, "headers")
	f.Large, f.Stream, f.Length, f.Body = d.body()
	if d.err == nil && f.Large && f.Length <= InlineMax {
		d.fail("a large body that would fit a frame")
	}
}

// body: a flag, then stream and length of a large body or the bytes of a small one.
func (e *enc) body(large bool, stream, length uint64, small []byte) {
	e.bool(large)
	if large {
		e.uint(stream)
		e.uint(length)
		return
	}
	e.bytes(small)
}

func (d *dec) body() (large bool, stream, length uint64, small []byte) {
	if large = d.bool(); !large {
		return false, 0, 0, d.bytes(InlineMax, "body")
	}
	return large, d.uint(), d.uint(), nil
}

// BodyHead starts a unidirectional stream: Length raw bytes follow, then the body's 16-byte digest
// (xxh3-128, big-endian).
type BodyHead struct{ Length uint64 }

// Type is TypeBodyHead.
func (*BodyHead) Type() Type { return TypeBodyHead }

func (f *BodyHead) encode(e *enc) { e.uint(f.Length) }
func (f *BodyHead) decode(d *dec) { f.Length = d.uint() }
