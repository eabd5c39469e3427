package wire

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/quic-go/quic-go/quicvarint"
)

// Type tells frames apart. Numbers are never reused.
type Type uint64

// The frame types.
const (
	TypeOpenProducer  Type = 1
	TypeOpenConsumer  Type = 2
	TypeOpened        Type = 3
	TypePublish       Type = 4
	TypeEvidence      Type = 5
	TypeRefused       Type = 6
	TypeBelow         Type = 7
	TypeIndeterminate Type = 8
	TypeDeliver       Type = 9
	TypeCredit        Type = 10
	TypeSettle        Type = 11
	TypeSettled       Type = 12
	TypeError         Type = 13
	TypeBodyHead      Type = 14
	TypeOpenPeek      Type = 15
	TypePeekEnd       Type = 16
	TypePurge         Type = 17
	TypePurged        Type = 18
	TypeUnsubscribe   Type = 19
	TypeRetire        Type = 20
	TypeDone          Type = 21
	TypeRedirect      Type = 22
	TypeForwarded     Type = 23
	TypeSingle        Type = 24
	TypePublishWithin Type = 25
)

// Bounds of what a frame may carry, in bytes.
const (
	// InlineMax is the largest body inside a frame; a larger one has a stream of its own.
	InlineMax = 64 << 10
	// QueueMax is the longest queue name (W-20).
	QueueMax = 512
	// IDMax is the longest producer or subscription id.
	IDMax = 64
	// HostMax is the longest host of a redirect.
	HostMax = 255
	// HeadersMax bounds a message's headers.
	HeadersMax = 8 << 10
	// DetailMax bounds the text of an error.
	DetailMax = 2 << 10
	// FrameMax bounds a frame's payload.
	FrameMax = InlineMax + HeadersMax + 1<<10
)

// Frame is one of the frame structs of this package, as a pointer.
type Frame interface {
	// Type is the frame's number on the wire.
	Type() Type
	encode(*enc)
	decode(*dec)
}

var frameNames = [...]string{
	TypeOpenProducer: "OPEN_PRODUCER", TypeOpenConsumer: "OPEN_CONSUMER", TypeOpened: "OPENED",
	TypePublish: "PUBLISH", TypeEvidence: "EVIDENCE", TypeRefused: "REFUSED", TypeBelow: "BELOW",
	TypeIndeterminate: "INDETERMINATE", TypeDeliver: "DELIVER", TypeCredit: "CREDIT",
	TypeSettle: "SETTLE", TypeSettled: "SETTLED", TypeError: "ERROR", TypeBodyHead: "BODY_HEAD",
	TypeOpenPeek: "OPEN_PEEK", TypePeekEnd: "PEEK_END", TypePurge: "PURGE", TypePurged: "PURGED",
	TypeUnsubscribe: "UNSUBSCRIBE", TypeRetire: "RETIRE", TypeDone: "DONE",
	TypeRedirect: "REDIRECT", TypeForwarded: "FORWARDED", TypeSingle: "SINGLE", TypePublishWithin: "PUBLISH_WITHIN",
}

func (t Type) String() string {
	if t > 0 && t < Type(len(frameNames)) {
		return frameNames[t]
	}
	return fmt.Sprintf("type %d", uint64(t))
}

// makers give an empty frame of each type.
var makers = [...]func() Frame{
	TypeOpenProducer:  func() Frame { return new(OpenProducer) },
	TypeOpenConsumer:  func() Frame { return new(OpenConsumer) },
	TypeOpened:        func() Frame { return new(Opened) },
	TypePublish:       func() Frame { return new(Publish) },
	TypeEvidence:      func() Frame { return new(EvidenceFrame) },
	TypeRefused:       func() Frame { return new(Refused) },
	TypeBelow:         func() Frame { return new(Below) },
	TypeIndeterminate: func() Frame { return new(Indeterminate) },
	TypeDeliver:       func() Frame { return new(Deliver) },
	TypeCredit:        func() Frame { return new(Credit) },
	TypeSettle:        func() Frame { return new(Settle) },
	TypeSettled:       func() Frame { return new(Settled) },
	TypeError:         func() Frame { return new(ErrorFrame) },
	TypeBodyHead:      func() Frame { return new(BodyHead) },
	TypeOpenPeek:      func() Frame { return new(OpenPeek) },
	TypePeekEnd:       func() Frame { return new(PeekEnd) },
	TypePurge:         func() Frame { return new(Purge) },
	TypePurged:        func() Frame { return new(Purged) },
	TypeUnsubscribe:   func() Frame { return new(Unsubscribe) },
	TypeRetire:        func() Frame { return new(Retire) },
	TypeDone:          func() Frame { return new(Done) },
	TypeRedirect:      func() Frame { return new(Redirect) },
	TypeForwarded:     func() Frame { return new(Forwarded) },
	TypeSingle:        func() Frame { return new(Single) },
	TypePublishWithin: func() Frame { return &Publish{Within: 1} },
}

func newFrame(t Type) Frame { return makers[t]() }

// Append encodes f behind dst. Fields beyond their bounds are a bug of the caller.
func Append(dst []byte, f Frame) []byte {
	dst = quicvarint.Append(dst, uint64(f.Type()))
	at := len(dst) // of the payload's length, whose own length is known behind the payload only
	e := encoders.Get().(*enc)
	e.b = append(dst, 0, 0, 0, 0)
	f.encode(e)
	dst, e.b = e.b, nil
	encoders.Put(e)
	size := len(dst) - at - 4
	if size > FrameMax {
		panic(fmt.Sprintf("bug: wire: %v frame of %d bytes", f.Type(), size))
	}
	head := len(quicvarint.Append(dst[:at], uint64(size)))
	return dst[:head+copy(dst[head:], dst[at+4:])]
}

// encoders keeps what would be made anew for each frame.
var encoders = sync.Pool{New: func() any { return new(enc) }}

// Parse decodes the first frame of b and returns how many bytes it took. io.ErrUnexpectedEOF means
// that b ends inside the frame; a *FormatError that it never will be one. Byte fields alias b.
func Parse(b []byte) (Frame, int, error) {
	t, size, err := frameSize(b)
	if err != nil {
		return nil, 0, err
	}
	f := newFrame(t)
	if err := decodePayload(f, b[size.head:size.limit]); err != nil {
		return nil, 0, err
	}
	return f, size.limit, nil
}

// extent is where the payload of a frame lies: [head, limit).
type extent struct{ head, limit int }

// frameSize reads a frame's type and length; nil means that its payload is there as a whole.
func frameSize(b []byte) (Type, extent, error) {
	v, n, err := quicvarint.Parse(b)
	if err != nil {
		return 0, extent{}, io.ErrUnexpectedEOF
	}
	t := Type(v)
	if t == 0 || t >= Type(len(frameNames)) {
		return 0, extent{}, &FormatError{Cause: fmt.Sprintf("unknown type %d", v)}
	}
	if quicvarint.Len(v) != n {
		return 0, extent{}, &FormatError{t.String(), "its type is not in its shortest form"}
	}
	length, m, err := quicvarint.Parse(b[n:])
	if err != nil {
		return 0, extent{}, io.ErrUnexpectedEOF
	}
	if quicvarint.Len(length) != m {
		return 0, extent{}, &FormatError{t.String(), "its length is not in its shortest form"}
	}
	if length > FrameMax {
		return 0, extent{}, &FormatError{t.String(), fmt.Sprintf("payload of %d bytes, at most %d", length, FrameMax)}
	}
	if uint64(len(b)-n-m) < length {
		return 0, extent{}, io.ErrUnexpectedEOF
	}
	return t, extent{n + m, n + m + int(length)}, nil
}

func decodePayload(f Frame, payload []byte) error {
	d := dec{b: payload}
	f.decode(&d)
	if err := d.end(); err != nil {
		return &FormatError{f.Type().String(), err.Error()}
	}
	return nil
}

// readMax is how far a Reader's memory grows while the other side is ahead of it, in bytes.
const readMax = 128 << 10

// Reader takes frames off a stream.
type Reader struct {
	r   io.Reader
	buf []byte
	at  int // first byte not yet taken
	end int

	filled  bool // the last read left no room: whoever writes is ahead
	dec     dec
	publish Publish // lent out by Next
}

// headMax is the most that stands before a frame's payload: its type and its length, in their shortest form.
const headMax = 16

// NewReader returns a Reader of r. It may read ahead: what follows the last frame is had by Rest.
func NewReader(r io.Reader) *Reader { return &Reader{r: r, buf: make([]byte, 16<<10)} }

// Next returns the next frame. It and its byte fields are valid until the next call. io.EOF means that the
// stream ended between two frames, io.ErrUnexpectedEOF inside one.
func (r *Reader) Next() (Frame, error) {
	for {
		if r.end > r.at {
			f, n, err := r.parse(r.buf[r.at:r.end])
			if err == nil {
				r.at += n
				return f, nil
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, err
			}
		}
		if err := r.more(); err != nil {
			if errors.Is(err, io.EOF) && r.end > r.at {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// parse is Parse with memory that is used again.
func (r *Reader) parse(b []byte) (Frame, int, error) {
	t, size, err := frameSize(b)
	if err != nil {
		return nil, 0, err
	}
	var f Frame
	switch t {
	case TypePublish:
		r.publish = Publish{}
		f = &r.publish
	case TypePublishWithin:
		r.publish = Publish{Within: 1}
		f = &r.publish
	default:
		f = newFrame(t)
	}
	r.dec = dec{b: b[size.head:size.limit]}
	f.decode(&r.dec)
	if err := r.dec.end(); err != nil {
		return nil, 0, &FormatError{f.Type().String(), err.Error()}
	}
	return f, size.limit, nil
}

// Buffered says whether Next answers without reading the stream: with a frame, or with its error.
// While it does not, what was gathered must not wait for the next frame: its rest may never come.
func (r *Reader) Buffered() bool {
	_, _, err := frameSize(r.buf[r.at:r.end])
	return !errors.Is(err, io.ErrUnexpectedEOF)
}

// Rest continues with the raw bytes behind the last frame.
func (r *Reader) Rest() io.Reader {
	return io.MultiReader(&leftover{r}, r.r)
}

type leftover struct{ r *Reader }

func (l *leftover) Read(p []byte) (int, error) {
	if l.r.at == l.r.end {
		return 0, io.EOF
	}
	n := copy(p, l.r.buf[l.r.at:l.r.end])
	l.r.at += n
	return n, nil
}

func (r *Reader) more() error {
	if r.at > 0 {
		r.end = copy(r.buf, r.buf[r.at:r.end])
		r.at = 0
	}
	if r.end == len(r.buf) || r.filled && len(r.buf) < readMax {
		grown := make([]byte, min(2*len(r.buf), FrameMax+headMax))
		copy(grown, r.buf)
		r.buf = grown
	}
	for range 100 {
		n, err := r.r.Read(r.buf[r.end:])
		r.end += n
		r.filled = r.end == len(r.buf)
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
