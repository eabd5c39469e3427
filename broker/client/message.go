package client

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"weida/broker/wire"
)

// Message is what is published. Its body is Bytes, or what is read from Body.
type Message struct {
	// Bytes is the body if Body is nil; at most wire.InlineMax. It is copied.
	Bytes []byte
	// Body is read once, before Send returns. A large one of a producer with an id that is an io.Seeker
	// may be read again from where it stood, until the message's result.
	Body   io.Reader
	Length int64     // of Body in bytes; below 0 means "until its end", which has to come within wire.InlineMax
	Want   wire.Want // zero: the producer's
	// Within is how long, from its commit on, a message waits for the replicas that its want asks for; then its outcome is
	// below_request. Zero is the node's own time, 5 s; a minute is the most.
	Within time.Duration
	// Seq is the message's sequence; 0 is the producer's next. A sequence that was sent is sent again
	// under the same number only if it was refused or indeterminate.
	Seq uint64
}

// within is Within as frames have it.
func (m *Message) within() uint64 {
	if m.Within <= 0 {
		return 0
	}
	return uint64(min(max(m.Within.Milliseconds(), 1), wire.WithinMax))
}

// large says that the body has a stream of its own.
func (m *Message) large() bool { return m.Body != nil && m.Length > wire.InlineMax }

// appendBody reads a body that is not large behind dst.
func (m *Message) appendBody(dst []byte) ([]byte, error) {
	if m.Body == nil {
		if len(m.Bytes) > wire.InlineMax {
			return dst, fmt.Errorf("client: a body above %d bytes is given as a reader with its length", wire.InlineMax)
		}
		return append(dst, m.Bytes...), nil
	}
	if m.Length >= 0 {
		at := len(dst)
		dst = slices.Grow(dst, int(m.Length))[:at+int(m.Length)]
		if _, err := io.ReadFull(m.Body, dst[at:]); err != nil {
			return dst, fmt.Errorf("client: read the message's body: %w", noEOF(err))
		}
		return dst, nil
	}
	b, err := io.ReadAll(io.LimitReader(m.Body, wire.InlineMax+1))
	switch {
	case err != nil:
		return dst, fmt.Errorf("client: read the message's body: %w", err)
	case len(b) > wire.InlineMax:
		return dst, fmt.Errorf("client: a body above %d bytes needs its length to be given", wire.InlineMax)
	}
	return append(dst, b...), nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Outcome is how a publish ended.
type Outcome string

// The outcomes.
const (
	OK            Outcome = "ok"
	Refused       Outcome = "refused"       // definitely not stored
	BelowRequest  Outcome = "below_request" // stored, with less than was asked
	Indeterminate Outcome = "indeterminate" // nobody knows
)

// Result is the end of one publish.
type Result struct {
	Seq       uint64
	Outcome   Outcome
	Evidence  wire.Evidence // with ok and below_request
	Committed bool          // Offset and Term are known
	Offset    uint64
	Term      uint64
	Err       *wire.Error // unless ok
	Latency   time.Duration
}
