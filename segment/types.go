package segment

import "fmt"

// GroupID names a group: one ordered log on one or more nodes. It is a control-log index, never
// reused, and never a name. 0 is no group.
type GroupID uint64

// Index is an entry's place in its group's log, from 1, dense. 0 is "before the first".
type Index uint64

// Term is a raft term, or the epoch of a one-replica group's owner.
type Term uint64

// Number is a segment file's number within its group, from 1, rising, never reused. 0 is no segment:
// small files (manifest, hard state, snapshots, large bodies) are sealed with number 0.
type Number uint64

// Salt is drawn at random for each file, so that bytes left over from another file cannot verify.
type Salt uint64

// Chain is the running hash over the records of a group's log: each record carries the hash of the
// header before it, which covers that record's body checksum and its own chain.
type Chain uint64

// Boot identifies one life of the page cache: what was written but not flushed is still there if and
// only if the boot is the same.
type Boot [16]byte

// Position is a place in a group's concatenated segments.
type Position struct {
	Segment Number
	Pos     int64
}

// Less orders positions by segment, then byte.
func (p Position) Less(q Position) bool {
	return p.Segment < q.Segment || p.Segment == q.Segment && p.Pos < q.Pos
}

func (p Position) String() string { return fmt.Sprintf("%08d.seg@%d", uint64(p.Segment), p.Pos) }

// BodyRef names a body within its group. Refs are given out by the leader of a term, in order, so a
// ref is never used twice.
type BodyRef struct {
	Term Term
	Seq  uint64
}

// Less orders refs by term, then sequence.
func (r BodyRef) Less(s BodyRef) bool {
	return r.Term < s.Term || r.Term == s.Term && r.Seq < s.Seq
}

func (r BodyRef) String() string { return fmt.Sprintf("%d.%d", uint64(r.Term), r.Seq) }

// Digest is the xxh3-128 of a body, big-endian. It proves a body's identity, not its origin.
type Digest [16]byte

// Commit is a commit record: the entry's proof of one body.
type Commit struct {
	Ref    BodyRef
	Length int64 // of the body in bytes
	Digest Digest
	Large  bool // the body lies in a file of its own
}

// EntryType tells what an entry's data is. Numbers are never reused.
type EntryType uint8

// The entry types. The values of the last two follow raft's own.
const (
	// EntryNormal's data is a commit table, then commands (see AppendData); a leader's first entry has none.
	EntryNormal       EntryType = 0
	EntryConfChange   EntryType = 1 // data = raft configuration change
	EntryConfChangeV2 EntryType = 2
)

// Entry is one unit of a group's log.
type Entry struct {
	Index Index
	Term  Term
	Type  EntryType
	Data  []byte
}

// Kind tells records apart. Numbers are never reused.
type Kind uint8

// The record kinds.
const (
	KindSegment   Kind = 1  // first record of a segment file
	KindBatch     Kind = 2  // starts a batch: length, promise, commit index, boot
	KindBody      Kind = 3  // payload store: ref, payload
	KindEntry     Kind = 4  // log: index, term, type, data
	KindTruncate  Kind = 5  // log: entries at or above an index are void
	KindVoid      Kind = 6  // payload store: a body known to be settled (tombstone)
	KindTrailer   Kind = 7  // ends a batch; never zero
	KindFooter    Kind = 8  // index of a sealed segment
	KindManifest  Kind = 9  // whole content of a manifest, in two copies
	KindHardState Kind = 10 // one copy of a hard-state slot
	KindFileHead  Kind = 11 // first record of a large body or snapshot file
	KindFrame     Kind = 12 // at most 64 KiB of a large body or snapshot
	KindFileTail  Kind = 13 // last record of such a file: length, digest
)

// Verdict is what the bytes of a record or of a log's end are.
type Verdict uint8

// The verdicts. Torn is expected after a crash and cut silently; corrupt never is; an unknown version
// is neither (craft of recovery: three results, three names).
const (
	Valid Verdict = iota
	Clean         // zeros up to the end: nothing was ever here
	Torn
	Corrupt
	UnknownVersion
	Unreadable // reading failed or the visitor stopped: nothing may be concluded
)

func (v Verdict) String() string {
	switch v {
	case Valid:
		return "valid"
	case Clean:
		return "clean"
	case Torn:
		return "torn"
	case Corrupt:
		return "corrupt"
	case UnknownVersion:
		return "unknown version"
	case Unreadable:
		return "unreadable"
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}
