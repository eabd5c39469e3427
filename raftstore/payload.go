package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"weida/segment"
)

// Frames of Transport.Payload. Numbers are little-endian; a frame begins with its kind.
//
//	body     ref, digest, length (4 bytes), bytes
//	want     count (2 bytes), each: index, ref, length, digest, flags
//	settled  index, count (2 bytes), each: ref
//	absent   count (2 bytes), each: ref
//
// Decoding is strict: what is shorter, longer or has unknown flags is refused as a whole, and the bytes of a body
// count only when they have its digest.

type payloadKind uint8

// The kinds of payload frames. Numbers are never reused.
const (
	bodyFrame    payloadKind = 1 // an inline body
	wantFrame    payloadKind = 2 // bodies asked for
	settledFrame payloadKind = 3 // bodies that are settled, as of an index
	absentFrame  payloadKind = 4 // bodies that the answerer does not have
)

const (
	refSize        = 16
	bodyFrameHead  = 1 + refSize + 16 + 4
	wantSize       = 8 + refSize + 8 + 16 + 1
	wantFrameHead  = 1 + 2
	settleFrameLen = 1 + 8 + 2
	absentFrameLen = 1 + 2

	// payloadRefsMax bounds the refs of one frame: what one request can make its answerer do.
	payloadRefsMax = 512

	wantLarge = 1 << 0 // the body lies in a file of its own
	wantLoose = 1 << 1 // a snapshot holds it; of an inline body length and digest are not known
)

var (
	_ = [1]struct{}{}[(bodyFrameHead+segment.InlineMax)/PayloadFrameMax] // a body and its head fit into a frame
	_ = [1]struct{}{}[(wantFrameHead+payloadRefsMax*wantSize)/PayloadFrameMax]
)

var (
	le = binary.LittleEndian

	errPayload = errors.New("raftstore: a payload frame is not one of this version")
	// errBodyDigest means that the bytes of a body are not those that its digest names.
	errBodyDigest = errors.New("raftstore: the bytes of a body do not have its digest")
)

// want is a body that somebody asks for.
type want struct {
	// Index is that of the entry that names the body, or if Loose of the snapshot that holds it.
	Index Index
	Body  segment.Commit // only the ref if it is Loose and not Large
	Loose bool
}

// payload is a decoded frame; which fields count depends on its kind.
type payload struct {
	kind   payloadKind
	body   segment.Commit // of a body
	bytes  []byte         // of a body; aliases the frame
	wants  []want
	refs   []BodyRef // settled or absent
	settle Index
}

// appendBodyFrame appends the frame that carries an inline body. The digest must be that of the bytes.
func appendBodyFrame(dst []byte, ref BodyRef, d Digest, body []byte) []byte {
	if len(body) > segment.InlineMax {
		panic("bug: raftstore: a body frame with a large body")
	}
	dst = append(dst, byte(bodyFrame))
	dst = appendRef(dst, ref)
	dst = append(dst, d[:]...)
	dst = le.AppendUint32(dst, uint32(len(body)))
	return append(dst, body...)
}

// encodeWants is a frame that asks for at most payloadRefsMax bodies.
func encodeWants(list []want) []byte {
	dst := appendCount([]byte{byte(wantFrame)}, len(list))
	for i := range list {
		w := &list[i]
		dst = le.AppendUint64(dst, uint64(w.Index))
		dst = appendRef(dst, w.Body.Ref)
		dst = le.AppendUint64(dst, uint64(w.Body.Length))
		dst = append(dst, w.Body.Digest[:]...)
		var flags byte
		if w.Body.Large {
			flags |= wantLarge
		}
		if w.Loose {
			flags |= wantLoose
		}
		dst = append(dst, flags)
	}
	return dst
}

// encodeSettled is a frame that says that at most payloadRefsMax bodies are settled as of an index.
func encodeSettled(at Index, refs []BodyRef) []byte {
	return appendRefs(le.AppendUint64([]byte{byte(settledFrame)}, uint64(at)), refs)
}

// encodeAbsent is a frame that says that at most payloadRefsMax bodies are not here.
func encodeAbsent(refs []BodyRef) []byte { return appendRefs([]byte{byte(absentFrame)}, refs) }

func appendRefs(dst []byte, refs []BodyRef) []byte {
	dst = appendCount(dst, len(refs))
	for _, r := range refs {
		dst = appendRef(dst, r)
	}
	return dst
}

func appendCount(dst []byte, n int) []byte {
	if n == 0 || n > payloadRefsMax {
		panic("bug: raftstore: a payload frame without refs or with too many")
	}
	return le.AppendUint16(dst, uint16(n))
}

func appendRef(dst []byte, r BodyRef) []byte {
	dst = le.AppendUint64(dst, uint64(r.Term))
	return le.AppendUint64(dst, r.Seq)
}

func getRef(b []byte) BodyRef { return BodyRef{Term: Term(le.Uint64(b)), Seq: le.Uint64(b[8:])} }

// decodePayload reads a frame. errPayload means that nothing of it can be used, errBodyDigest that a body came
// damaged: payload then still names it. What it allocates is bounded by the frame's length.
func decodePayload(b []byte) (p payload, err error) {
	if len(b) == 0 || len(b) > PayloadFrameMax {
		return p, fmt.Errorf("%w: %d bytes", errPayload, len(b))
	}
	p.kind = payloadKind(b[0])
	switch p.kind {
	case bodyFrame:
		err = p.decodeBody(b)
	case wantFrame:
		err = p.decodeWants(b[1:])
	case settledFrame:
		if len(b) < settleFrameLen {
			return p, fmt.Errorf("%w: settled, %d bytes", errPayload, len(b))
		}
		if p.settle = Index(le.Uint64(b[1:])); p.settle == 0 {
			return p, fmt.Errorf("%w: settled at index 0", errPayload)
		}
		err = p.decodeRefs(b[9:])
	case absentFrame:
		err = p.decodeRefs(b[1:])
	default:
		err = fmt.Errorf("%w: kind %d", errPayload, p.kind)
	}
	return p, err
}

func (p *payload) decodeBody(b []byte) error {
	if len(b) < bodyFrameHead {
		return fmt.Errorf("%w: body, %d bytes", errPayload, len(b))
	}
	p.body.Ref = getRef(b[1:])
	copy(p.body.Digest[:], b[1+refSize:])
	n := int64(le.Uint32(b[1+refSize+16:]))
	if n > segment.InlineMax || n != int64(len(b)-bodyFrameHead) || !validRef(p.body.Ref) {
		return fmt.Errorf("%w: body %v of %d bytes in %d", errPayload, p.body.Ref, n, len(b))
	}
	p.body.Length, p.bytes = n, b[bodyFrameHead:]
	if segment.DigestOf(p.bytes) != p.body.Digest {
		return fmt.Errorf("%w: body %v", errBodyDigest, p.body.Ref)
	}
	return nil
}

func (p *payload) decodeWants(b []byte) error {
	b, n, err := takeCount(b, wantSize)
	if err != nil {
		return err
	}
	p.wants = make([]want, 0, n)
	for ; len(b) > 0; b = b[wantSize:] {
		w := want{Index: Index(le.Uint64(b)), Body: segment.Commit{Ref: getRef(b[8:])}}
		length, flags := le.Uint64(b[24:]), b[48]
		copy(w.Body.Digest[:], b[32:48])
		w.Body.Large, w.Loose = flags&wantLarge != 0, flags&wantLoose != 0
		w.Body.Length = int64(length)
		if w.Index == 0 || flags > wantLarge|wantLoose || length > math.MaxInt64 || !validRef(w.Body.Ref) {
			return fmt.Errorf("%w: want %v", errPayload, w.Body.Ref)
		}
		p.wants = append(p.wants, w)
	}
	return nil
}

func (p *payload) decodeRefs(b []byte) error {
	b, n, err := takeCount(b, refSize)
	if err != nil {
		return err
	}
	p.refs = make([]BodyRef, 0, n)
	for ; len(b) > 0; b = b[refSize:] {
		r := getRef(b)
		if !validRef(r) {
			return fmt.Errorf("%w: ref %v", errPayload, r)
		}
		p.refs = append(p.refs, r)
	}
	return nil
}

// takeCount reads a count of things of size bytes each, which have to fill the rest.
func takeCount(b []byte, size int) (rest []byte, n int, err error) {
	if len(b) < 2 {
		return nil, 0, fmt.Errorf("%w: no count", errPayload)
	}
	n = int(le.Uint16(b))
	if n == 0 || n > payloadRefsMax || n*size != len(b)-2 {
		return nil, 0, fmt.Errorf("%w: count %d in %d bytes", errPayload, n, len(b))
	}
	return b[2:], n, nil
}

func validRef(r BodyRef) bool { return r.Term > 0 && r.Seq > 0 }
