package wal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"weida/segment"
)

// DamageKind says what is damaged.
type DamageKind string

// The kinds of damage, by what it takes to mend it.
const (
	DamagedBody     DamageKind = "body"       // Ref, and if it is known the Commit that names it in entry Index
	DamagedLarge    DamageKind = "large body" // Ref, and Index if it is known
	DamagedEntry    DamageKind = "entry"      // Index
	DamagedFraming  DamageKind = "framing"    // a batch's first or last record, a tombstone: neither entry nor body
	DamagedIndex    DamageKind = "index"      // header or footer of a segment: an opening would refuse it
	DamagedSnapshot DamageKind = "snapshot"   // Index
	DamagedSmall    DamageKind = "small file" // manifest or hard state; what it says is known while the log is open
)

// Damage is one thing on the disk that is not what was written.
type Damage struct {
	Kind DamageKind
	Path string
	Pos  int64 // of the record, in bytes from the beginning of the file
	// Segment is 0 if it is not in one.
	Segment segment.Number
	Ref     segment.BodyRef
	Index   segment.Index
	Commit  segment.Commit // zero if no entry beside the body says it
	// Needed says that something still asks for it: a body that is live and has no newer copy, an entry that no snapshot
	// has taken the place of. What is not needed goes with its file.
	Needed bool
	Err    error // *segment.CorruptError, or why it could not be read
}

// Scrub reads what a log keeps on its disk and sees that it is what was written: every record of the segments, the
// footers, large bodies, snapshots, manifest and hard state. It goes in steps, each as long as its caller likes, and
// keeps no file open between two but that of a long body. What comes after it began it does not look at; what goes
// meanwhile it passes over. It changes nothing and disturbs no append; sealed files it reads from the disk, not from
// the cache. One goroutine uses it at a time, any goroutine.
type Scrub struct {
	log   *Log
	found func(Damage)
	left  []scrubFile
	pos   int64         // in the segment at left[0]
	end   int64         // of what is looked at there
	hurt  *hurtSpan     // the stretch of an unsealed segment in which pos is, if something in it is damaged
	open  *framedReader // of the file at left[0]
	buf   []byte
}

// scrubFile is one file to be looked at.
type scrubFile struct {
	kind    DamageKind // DamagedIndex for a segment
	name    string
	segment segment.Number
	ref     segment.BodyRef
	snap    snapInfo
}

// scrubWindow is read at a time: at least one whole record.
const scrubWindow = segment.BatchMax + segment.HeaderSize

// NewScrub begins a scrub of what the log has now. found is called for each damage, within Step. Any goroutine.
func (l *Log) NewScrub(found func(Damage)) *Scrub {
	s := &Scrub{log: l, found: found}
	s.left = []scrubFile{{kind: DamagedSmall, name: manifestName}, {kind: DamagedSmall, name: hardStateName}}
	l.manMu.Lock()
	for _, info := range l.man.Snapshots {
		s.left = append(s.left, scrubFile{kind: DamagedSnapshot, name: snapshotName(info.Mark.Index), snap: info})
	}
	l.manMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.segs {
		n := one.file.Segment
		s.left = append(s.left, scrubFile{kind: DamagedIndex, name: segmentName(n), segment: n})
	}
	first := len(s.left)
	for ref, b := range l.large {
		if !b.unproved() && !l.voids.has(ref) {
			s.left = append(s.left, scrubFile{kind: DamagedLarge, name: bodyName(ref), ref: ref})
		}
	}
	slices.SortFunc(s.left[first:], func(a, b scrubFile) int {
		if a.ref.Less(b.ref) {
			return -1
		}
		return 1
	})
	return s
}

// Step reads about limit bytes, at least one record, and returns how many it read and whether that was the last of
// them. An error is one of the looking itself, such as fsync.ErrClosed after the log was closed: the scrub is where it
// was. Damage is no error.
func (s *Scrub) Step(limit int64) (n int64, done bool, err error) {
	for n < limit && len(s.left) > 0 {
		if s.log.isClosed() {
			s.Close()
			return n, false, errClosed
		}
		k, over, err := s.look(&s.left[0], limit-n)
		n += k
		if err != nil {
			return n, false, fmt.Errorf("wal: group %d: scrub %s: %w", uint64(s.log.group), s.left[0].name, err)
		}
		if over {
			s.left = s.left[1:]
			s.pos, s.end, s.hurt = 0, 0, nil
		}
	}
	if len(s.left) > 0 {
		return n, false, nil
	}
	s.buf = nil
	return n, true, nil
}

// Close gives back what an unfinished scrub holds.
func (s *Scrub) Close() {
	if s.open != nil {
		s.log.closeFile(s.open)
		s.open = nil
	}
}

func (s *Scrub) look(t *scrubFile, limit int64) (n int64, over bool, err error) {
	switch t.kind {
	case DamagedSmall:
		return s.small(t)
	case DamagedIndex:
		return s.segment(t, limit)
	case DamagedSnapshot, DamagedLarge:
		return s.framed(t, limit)
	default:
	}
	panic("bug: wal: nothing to scrub is of kind " + string(t.kind))
}

func (s *Scrub) path(t *scrubFile) string { return filepath.Join(s.log.dir, t.name) }

// tell reports damage of the file t. Its place is that of the record that does not verify.
func (s *Scrub) tell(t *scrubFile, d Damage) {
	d.Path, d.Segment = s.path(t), t.segment
	d.Err = withPath(d.Err, d.Path)
	if c, ok := errors.AsType[*segment.CorruptError](d.Err); ok && d.Pos == 0 {
		d.Pos = c.At.Pos
	}
	s.found(d)
}

// small reads manifest or hard state, which are written while it does so: what is damaged is looked at again.
func (s *Scrub) small(t *scrubFile) (n int64, over bool, err error) {
	l := s.log
	one := false
	err = settled(func() error {
		var err error
		if t.name == manifestName {
			_, one, err = loadManifest(l.fs, l.dir, l.group)
		} else {
			var h *hardStateFile
			if h, err = loadHardState(l.fs, l.dir, l.group); err == nil {
				one = h.repaired
			}
		}
		if err == nil && one {
			err = corruptAt(s.path(t), l.group, 0, "one of its copies is damaged, another is whole")
		}
		return err
	})
	if err != nil && !isAbsent(err) && !isCorrupt(err) {
		return 0, false, err
	}
	if err != nil && !l.isClosed() {
		s.tell(t, Damage{Kind: DamagedSmall, Needed: true, Err: err})
	}
	return 2 * blockBytes, true, nil
}

// framed reads on in a large body or a snapshot.
func (s *Scrub) framed(t *scrubFile, limit int64) (n int64, over bool, err error) {
	if !s.stands(t) {
		s.Close()
		return 0, true, nil // it went meanwhile
	}
	if s.open == nil {
		if s.open, err = s.begin(t); err != nil {
			return 0, true, s.ended(t, err)
		}
		n = framedHeadSize + framedTailSize
	}
	r := s.open
	for n < limit && err == nil {
		at := r.pos
		if err = r.f.DropCache(at, frameStride); err == nil {
			r.rest = nil
			err = r.fill()
		}
		n += r.pos - at
	}
	if err == nil {
		return n, false, nil
	}
	s.Close()
	if errors.Is(err, io.EOF) {
		return n, true, nil
	}
	return n, true, s.ended(t, err)
}

// begin opens the file and compares its head and tail with what they must be.
func (s *Scrub) begin(t *scrubFile) (*framedReader, error) {
	l := s.log
	if t.kind == DamagedLarge {
		r, err := openBodyRef(l.fs, l.dir, l.group, segment.Commit{Ref: t.ref})
		if err != nil {
			return nil, err
		}
		return r.framedReader, nil
	}
	r, err := openSnapshot(l.fs, l.dir, l.group, t.snap)
	if err != nil {
		return nil, err
	}
	r.z.Close()
	return r.r, nil
}

// ended judges why a framed file can't be read.
func (s *Scrub) ended(t *scrubFile, err error) error {
	l := s.log
	switch {
	case !s.stands(t):
		return nil
	case l.isClosed():
		return errClosed
	}
	d := Damage{Kind: t.kind, Ref: t.ref, Index: t.snap.Mark.Index, Err: err}
	l.manMu.Lock()
	newest := l.snapInfo.Mark.Index
	l.manMu.Unlock()
	d.Needed = t.kind == DamagedSnapshot && d.Index == newest
	l.mu.Lock()
	if b := l.large[t.ref]; t.kind == DamagedLarge && b != nil {
		d.Index = b.index
		d.Needed = b.live > 0 || b.index == 0 || b.index > newest
	}
	l.mu.Unlock()
	s.tell(t, d)
	return nil
}

// stands reports whether the file is still one of the log's: not one of a body that is settled, of which a crash may
// have left a part.
func (s *Scrub) stands(t *scrubFile) bool {
	l := s.log
	if t.kind == DamagedLarge {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.large[t.ref] != nil && !l.voids.has(t.ref)
	}
	l.manMu.Lock()
	defer l.manMu.Unlock()
	return slices.ContainsFunc(l.man.Snapshots, func(i snapInfo) bool { return i.Mark == t.snap.Mark })
}
