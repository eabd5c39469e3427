package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"weida/segment"
	"weida/wal"
)

// A Transport.Stream carries one long content. Its head is one byte that says what it is, then uvarints:
//
//	1  a large body: group, from, to, term and sequence of its ref, length
//	2  a snapshot: group, from, to, the sender's term, term and index of the snapshot, length
//
// The stream is the content, length bytes of it, and then the content's digest (16 bytes).

type streamKind byte

// The kinds of streams. Numbers are never reused.
const (
	bodyStream     streamKind = 1
	snapshotStream streamKind = 2
)

// streamHead is the head of a stream.
type streamHead struct {
	kind     streamKind
	group    GroupID
	from, to ReplicaID
	ref      BodyRef  // of a body
	term     Term     // of the sender of a snapshot
	mark     wal.Mark // of a snapshot
	length   int64
}

const (
	// pieceBytes is how much of a stream is read, checked and written at a time.
	pieceBytes = 64 << 10
	digestSize = len(Digest{})
)

var (
	errStreamHead = errors.New("raftstore: the head of a stream is not one of this version")
	// errCut means that a stream ended before its content, or with more.
	errCut = errors.New("raftstore: a stream ended before its content or after it; nothing of it is stored")
	// errStreamDigest means that what came is not what was sent.
	errStreamDigest = errors.New("raftstore: the content of a stream does not have its digest; nothing of it is stored")
)

func (h *streamHead) numbers() []uint64 {
	list := []uint64{uint64(h.group), uint64(h.from), uint64(h.to)}
	if h.kind == bodyStream {
		return append(list, uint64(h.ref.Term), h.ref.Seq, uint64(h.length))
	}
	return append(list, uint64(h.term), uint64(h.mark.Term), uint64(h.mark.Index), uint64(h.length))
}

func (h *streamHead) encode() []byte {
	b := []byte{byte(h.kind)}
	for _, v := range h.numbers() {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func parseStreamHead(b []byte) (h streamHead, err error) {
	bad := fmt.Errorf("%w: %d bytes", errStreamHead, len(b))
	if len(b) == 0 || len(b) > StreamHeadMax {
		return h, bad
	}
	h.kind = streamKind(b[0])
	if h.kind != bodyStream && h.kind != snapshotStream {
		return h, fmt.Errorf("%w: kind %d", errStreamHead, b[0])
	}
	b = b[1:]
	v := make([]uint64, len(h.numbers()))
	for i := range v {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return h, bad
		}
		v[i], b = x, b[n:]
	}
	length := v[len(v)-1]
	h.group, h.from, h.to, h.length = GroupID(v[0]), ReplicaID(v[1]), ReplicaID(v[2]), int64(length)
	ok := h.group != 0 && h.from != 0 && h.to != 0 && h.from != h.to && length <= math.MaxInt64 && len(b) == 0
	if h.kind == bodyStream {
		h.ref = BodyRef{Term: Term(v[3]), Seq: v[4]}
		ok = ok && validRef(h.ref) && h.length > segment.InlineMax
	} else {
		h.term, h.mark = Term(v[3]), wal.Mark{Term: Term(v[4]), Index: Index(v[5])}
		ok = ok && h.term > 0 && h.mark.Term > 0 && h.mark.Term <= h.term && h.mark.Index > 0
	}
	if !ok {
		return h, bad
	}
	return h, nil
}

// streamReader reads the content of a stream. It returns io.EOF only when all of it came and has its digest.
type streamReader struct {
	r      io.Reader
	left   int64
	digest segment.Hasher
	sum    Digest // of the whole content, once it has ended
	err    error
}

func (s *streamReader) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.left == 0 {
		s.err = s.end()
		return 0, s.err
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if _, herr := s.digest.Write(p[:n]); herr != nil {
		panic("bug: raftstore: a hash failed")
	}
	switch {
	case errors.Is(err, io.EOF) && s.left > 0:
		s.err = errCut
	case err != nil && !errors.Is(err, io.EOF):
		s.err = err
	}
	if n > 0 {
		return n, nil
	}
	return 0, s.err
}

// end reads the digest and sees that nothing follows it.
func (s *streamReader) end() error {
	var b [digestSize + 1]byte
	switch n, err := io.ReadFull(s.r, b[:]); {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case n != digestSize:
		return errCut
	}
	copy(s.sum[:], b[:])
	if s.digest.Sum() != s.sum {
		return errStreamDigest
	}
	return io.EOF
}
