package segment

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/zeebo/xxh3"

	"weida/segment/rules"
)

// Sizes of the format, in bytes.
const (
	HeaderSize = 56        // of a record header
	Version    = 1         // the format version this build writes and reads
	BatchMax   = 256 << 10 // of a batch from its header to its trailer: one write
	InlineMax  = 64 << 10  // of a body's payload in a segment; above it the body has its own file
	FrameMax   = 64 << 10  // of the content of one frame of such a file

	align = 8
	magic = 0x43524557 // "WERC"
)

// Offsets of the fields of a record header.
const (
	offMagic    = 0
	offVersion  = 4
	offKind     = 5
	offFlags    = 6
	offLength   = 8
	offReserved = 12
	offGroup    = 16
	offSalt     = 24
	offChain    = 32
	offBodySum  = 40
	offHeadSum  = 48
)

var le = binary.LittleEndian

// ErrShort says that the buffer ends before the record does. Whether that is a torn end depends on
// what the file holds beyond the buffer, so only the caller can tell.
var ErrShort = errors.New("segment: the buffer ends before the record does")

// SizeOf returns the bytes a record with a body of n bytes takes: header, body and padding.
func SizeOf(n int) int64 { return HeaderSize + (int64(n)+align-1)&^(align-1) }

// mix is a bijection of 64 bits in which every input bit reaches every output bit.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// seed returns what all checksums of the file have in common.
func (f File) seed() uint64 {
	salt, group, number := uint64(f.Salt), uint64(f.Group), uint64(f.Segment)
	if rules.Off.Salt {
		salt = 0
	}
	if rules.Off.Seat {
		group, number = 0, 0
	}
	return mix(mix(mix(salt)+group) + bits.RotateLeft64(number, 32))
}

// seedAt returns the seed of the checksums of a record at pos.
func seedAt(seed uint64, pos int64) uint64 {
	if rules.Off.Seat {
		return seed
	}
	return mix(seed + uint64(pos))
}

// AppendRecord appends the record of kind k that will stand at pos of file f; its body is the
// concatenation of the given pieces. The returned chain is the hash of the header just written, to
// carry on with; kinds outside the chain (segment header, footer, manifest, hard state) carry 0 and
// give chain back as it came.
func AppendRecord(dst []byte, f File, pos int64, k Kind, chain Chain, body ...[]byte) ([]byte, Chain) {
	return appendRecord(dst, f, f.seed(), pos, k, chain, body...)
}

func appendRecord(dst []byte, f File, seed uint64, pos int64, k Kind, c Chain, body ...[]byte) ([]byte, Chain) {
	if pos < 0 || pos%align != 0 {
		panic("bug: segment: record at an unaligned position")
	}
	start := len(dst)
	dst = append(dst, zeros[:HeaderSize]...)
	for _, p := range body {
		dst = append(dst, p...)
	}
	n := len(dst) - start - HeaderSize
	spec, ok := kindSpec(k)
	if !ok || n < spec.min || n > spec.max {
		panic("bug: segment: body length outside the bounds of its kind")
	}
	dst = append(dst, zeros[:SizeOf(n)-HeaderSize-int64(n)]...)

	h, s := dst[start:start+HeaderSize], seedAt(seed, pos)
	le.PutUint32(h[offMagic:], magic)
	h[offVersion] = Version
	h[offKind] = byte(k)
	le.PutUint32(h[offLength:], uint32(n))
	le.PutUint64(h[offGroup:], uint64(f.Group))
	le.PutUint64(h[offSalt:], uint64(f.Salt))
	if spec.chained {
		le.PutUint64(h[offChain:], uint64(c))
	}
	le.PutUint64(h[offBodySum:], xxh3.HashSeed(dst[start+HeaderSize:start+HeaderSize+n], s))
	le.PutUint64(h[offHeadSum:], xxh3.HashSeed(h[:offHeadSum], s))
	if !spec.chained {
		return dst, c
	}
	return dst, Chain(xxh3.Hash(h))
}

var zeros [pageSize]byte

// ParseRecord reads the record at the start of b, which stands at pos of file f; b may go on behind
// it. The returned chain is the hash of its header. The body aliases b. A record is returned only if
// header and body verify for exactly this file and position; whether its own chain continues the
// log is the caller's to compare. Errors are *CorruptError, *VersionError or ErrShort.
func ParseRecord(b []byte, f File, pos int64) (Record, Chain, error) {
	r, c, bad := parseRecord(b, f, f.seed(), pos)
	return r, c, bad.err(f)
}

// A fault says why bytes are no record, without allocating; the zero fault says they are one.
type fault struct {
	code  faultCode
	got   uint8 // version found
	pos   int64
	cause string
}

type faultCode uint8

const (
	sound faultCode = iota
	short
	damaged
	foreignVersion
)

func (t fault) err(f File) error {
	at := Position{Segment: f.Segment, Pos: t.pos}
	switch t.code {
	case sound:
		return nil
	case short:
		return ErrShort
	case foreignVersion:
		return &VersionError{Group: f.Group, At: at, Got: t.got, Want: Version}
	case damaged:
		return &CorruptError{Group: f.Group, At: at, Cause: t.cause}
	}
	panic("bug: segment: unknown fault code")
}

func parseRecord(b []byte, f File, seed uint64, pos int64) (Record, Chain, fault) {
	h, bad := parseHead(b, f, seed, pos)
	if bad.code != sound {
		return Record{}, 0, bad
	}
	if int64(len(b)) < h.size {
		return Record{}, 0, fault{code: short, pos: pos}
	}
	body := b[HeaderSize : HeaderSize+h.length : HeaderSize+h.length]
	if xxh3.HashSeed(body, seedAt(seed, pos)) != h.bodySum {
		return Record{}, 0, fault{code: damaged, pos: pos, cause: "the body does not match its checksum"}
	}
	if !rules.Off.Padding && !allZero(b[HeaderSize+h.length:h.size]) {
		return Record{}, 0, fault{code: damaged, pos: pos, cause: "padding is not zero"}
	}
	return Record{Kind: h.kind, Pos: pos, Chain: h.chain, Body: body, Size: h.size}, h.hash, fault{}
}

// head is a verified record header.
type head struct {
	kind    Kind
	length  int   // of the body
	size    int64 // of the whole record
	chain   Chain // carried
	hash    Chain // of this header
	bodySum uint64
}

// parseHead verifies the record header at the start of b. The version is looked at first: a header
// of another version need not have its checksum where this one has it.
func parseHead(b []byte, f File, seed uint64, pos int64) (head, fault) {
	if len(b) < HeaderSize {
		return head{}, fault{code: short, pos: pos}
	}
	b = b[:HeaderSize]
	bad := func(cause string) (head, fault) {
		return head{}, fault{code: damaged, pos: pos, cause: cause}
	}
	if le.Uint32(b) != magic {
		if allZero(b) {
			return bad("zeros where a record should be")
		}
		return bad("no record starts here")
	}
	ours := GroupID(le.Uint64(b[offGroup:])) == f.Group && Salt(le.Uint64(b[offSalt:])) == f.Salt
	s := seedAt(seed, pos)
	if v := b[offVersion]; v != Version {
		if v != 0 && ours && !wasVersion1(b, s) {
			return head{}, fault{code: foreignVersion, got: v, pos: pos}
		}
		return bad("the version byte is damaged")
	}
	if !ours && !rules.Off.Salt && !rules.Off.Seat {
		return bad("the record belongs to another group or to another file")
	}
	if xxh3.HashSeed(b[:offHeadSum], s) != le.Uint64(b[offHeadSum:]) {
		return bad("the header does not match its checksum")
	}
	if !rules.Off.Padding && (le.Uint16(b[offFlags:]) != 0 || le.Uint32(b[offReserved:]) != 0) {
		return bad("reserved bits are not zero")
	}
	h := head{kind: Kind(b[offKind]), chain: Chain(le.Uint64(b[offChain:])), bodySum: le.Uint64(b[offBodySum:])}
	spec, ok := kindSpec(h.kind)
	if !ok {
		return bad("the kind is not one of this version")
	}
	if n := le.Uint32(b[offLength:]); int64(n) < int64(spec.min) || int64(n) > int64(spec.max) {
		return bad("the body length is outside the bounds of its kind")
	} else {
		h.length, h.size = int(n), SizeOf(int(n))
	}
	if !spec.chained && h.chain != 0 {
		return bad("a record outside the chain carries a chain")
	}
	h.hash = Chain(xxh3.Hash(b))
	return h, fault{}
}

// wasVersion1 reports whether the header verifies with its version byte put back to 1: then that
// byte is damaged, and the record is not one of another version.
func wasVersion1(b []byte, seed uint64) bool {
	var h [offHeadSum]byte
	copy(h[:], b)
	h[offVersion] = Version
	return xxh3.HashSeed(h[:], seed) == le.Uint64(b[offHeadSum:])
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if le.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
