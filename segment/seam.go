package segment

import (
	"fmt"
	"io"
)

// This file fixes the package's API; implementations lie beside it.

// File seeds every checksum of one file: what verifies here verifies nowhere else.
type File struct {
	Group   GroupID
	Segment Number // 0 for files that are no segments
	Salt    Salt
}

// Header is the content of a segment's first record.
type Header struct {
	Base     Index  // first index expected when the segment was made (a hint for people)
	Manifest uint64 // sequence of the manifest that first names this segment
}

// Stamp is what every batch says about the group at the moment it was built.
type Stamp struct {
	// Promise is a position known to be flushed before the batch was built, never the batch's own: the
	// end of the last batch a completed flush covers. The start of a segment in which nothing was
	// flushed yet is no promise; the end of the segment before it is.
	Promise Position
	// Commit is the commit index then known; a hint.
	Commit Index
	Boot   Boot
}

// Record is one parsed record. Body aliases the buffer it was parsed from.
type Record struct {
	Kind  Kind
	Pos   int64 // of its header in the file
	Chain Chain // the hash it carries: of the header before it
	Body  []byte
	Size  int64 // header, body and padding
}

// Row places one record of a batch or of a sealed segment: Pos and Size as in Record.
type Row struct {
	Kind  Kind    // KindBody, KindEntry, KindTruncate or KindVoid
	Ref   BodyRef // of a body or void
	Index Index   // of an entry or truncation
	Term  Term    // of an entry
	Pos   int64
	Size  int64
}

// Part is one unsealed segment handed to Recover, in order of Segment.
type Part struct {
	File  File
	R     io.ReaderAt
	Size  int64 // of the file
	Start int64 // where scanning begins: after the header record, or at a cut recorded in the manifest
	// Limit is where the manifest says this segment's log ends (a recorded crash cut); 0 if unknown.
	Limit int64
}

// Known is what recovery knows apart from the unsealed segments themselves.
type Known struct {
	Chain     Chain    // final chain of the last sealed segment (or 0 at the group's beginning)
	Promise   Position // greatest flushed position named by manifest and footers
	Boot      Boot     // the present life of the page cache
	CleanStop bool     // the node stopped in order: nothing may be torn
}

// End is Recover's answer.
type End struct {
	Verdict Verdict // Valid (ends in zeros), Torn (cut at Position), Corrupt, UnknownVersion
	// At is the end of the valid log: where the next batch goes, or the cut. If only zeros stand behind
	// the last batch, it lies in the newest part, because the writer had moved on to that one.
	At      Position
	Chain   Chain    // to carry on with
	Promise Position // greatest promise seen anywhere, also behind the end
	Commit  Index    // greatest commit hint seen in valid batches
	Boot    Boot     // of the last valid batch (zero if none)
	// Reusable: the log may go on in the same file at At. False after a cut, and where a footer or
	// anything else but zeros lies behind At.
	Reusable bool
	// Parts says, for each part given, where its log ends and the chain there: what its footer needs
	// when it is sealed. From At on, parts hold nothing of the log.
	Parts []PartEnd
	Err   error // *CorruptError or *VersionError when the verdict says so, any other when Unreadable
}

// PartEnd is where one part's log ends.
type PartEnd struct {
	End   int64
	Chain Chain
	Last  Index // of the last entry read up to there, 0 if none was; truncations counted
}

// CorruptError is damage: bytes below the promise, or such as no crash leaves. Never cut.
type CorruptError struct {
	Path  string // filled in by the caller that knows it
	Group GroupID
	At    Position
	Index Index // of the entry concerned, 0 if unknown
	Cause string
}

func (e *CorruptError) Error() string {
	path := e.Path
	if path == "" {
		path = fmt.Sprintf("group %d %08d.seg", uint64(e.Group), uint64(e.At.Segment))
	}
	if e.Group == 0 { // a file of the node
		return fmt.Sprintf("%s is corrupt at byte %d: %s; nothing was cut or deleted; restore this file, or let the "+
			"node join again with an empty directory and rebuild its replicas from their peers", path, e.At.Pos, e.Cause)
	}
	return fmt.Sprintf("%s is corrupt at byte %d: %s; nothing was cut or deleted; "+
		"other groups are not affected; restore the whole directory it lies in from one copy", path, e.At.Pos, e.Cause)
}

// VersionError is a record of a format version this build does not know; it is not damage.
type VersionError struct {
	Path      string // filled in by the caller that knows it
	Group     GroupID
	At        Position
	Got, Want uint8
}

func (e *VersionError) Error() string {
	path := e.Path
	if path == "" {
		path = fmt.Sprintf("group %d %08d.seg", uint64(e.Group), uint64(e.At.Segment))
	}
	return fmt.Sprintf("%s at byte %d has format version %d, this build reads version %d; "+
		"nothing was changed; start a build that knows it", path, e.At.Pos, e.Got, e.Want)
}
