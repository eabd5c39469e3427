package wal

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"weida/fsync"
	"weida/segment"
)

// DumpField is one field of a record. Its name is that of STORE.md's table; Value is a uint64, an
// int64 or a string.
type DumpField struct {
	Name  string
	Value any
}

// DumpLine is one record, one copy of a record, one row of a manifest or one commit record, or the
// reason why the rest of a file can't be read (kind "damage") or need not be (kind "end").
type DumpLine struct {
	File   string // name in the group's directory
	Pos    int64  // of the record in the file
	Size   int64  // of the record with header and padding; 0 for a row
	Kind   string // that of the table in STORE.md: "batch", "entry", "commit record", "manifest segment", …
	Fields []DumpField
}

// DumpGroup calls visit for everything that stands in the files of one group: manifest, hard state,
// segments in order, snapshots, body files. It judges no damage, it shows what can be read and says
// where reading ended; VerifyGroup judges. Payloads are not shown. It ends with the error of visit, or
// of the file system; a damaged manifest ends it too, because the other files can't be told apart
// without it.
func DumpGroup(fs fsync.FS, dir string, g segment.GroupID, visit func(DumpLine) error) error {
	v, err := viewGroup(fs, dir, g)
	if err != nil {
		return fmt.Errorf("wal: dump group %d: %w", uint64(g), err)
	}
	d := dumper{groupView: v, visit: visit}
	for _, part := range []func() error{d.manifest, d.hardState, d.segments, d.snapshots, d.bodies} {
		if err := part(); err != nil {
			return fmt.Errorf("wal: dump group %d: %w", uint64(g), err)
		}
	}
	return nil
}

type dumper struct {
	*groupView
	visit func(DumpLine) error
}

// line sends one line; fields alternate between names and values.
func (d *dumper) line(file string, pos, size int64, kind string, fields ...any) error {
	l := DumpLine{File: file, Pos: pos, Size: size, Kind: kind}
	for i := 0; i < len(fields); i += 2 {
		l.Fields = append(l.Fields, DumpField{Name: fields[i].(string), Value: plain(fields[i+1])})
	}
	return d.visit(l)
}

// plain turns the numbers of package segment into what a DumpField holds.
func plain(v any) any {
	switch v := v.(type) {
	case segment.Index:
		return uint64(v)
	case segment.Term:
		return uint64(v)
	case segment.Number:
		return uint64(v)
	case segment.Salt:
		return fmt.Sprintf("%016x", uint64(v))
	case segment.Chain:
		return fmt.Sprintf("%016x", uint64(v))
	case segment.BodyRef:
		return v.String()
	case segment.Position:
		return fmt.Sprintf("%d %d", uint64(v.Segment), v.Pos)
	case segment.Digest:
		return hex.EncodeToString(v[:])
	case segment.Boot:
		return hex.EncodeToString(v[:])
	case segment.EntryType:
		return uint64(v)
	case segState:
		return [...]string{"open", "sealed"}[v]
	case Mark:
		return fmt.Sprintf("%d %d", uint64(v.Term), uint64(v.Index))
	case int:
		return int64(v)
	case uint64, int64, string:
		return v
	}
	panic(fmt.Sprintf("bug: wal: dump of a %T", v))
}

// damage reports why the rest of a file is not shown. Errors of visit pass.
func (d *dumper) damage(file string, pos int64, err error) error {
	c, corrupt := errors.AsType[*segment.CorruptError](err)
	v, version := errors.AsType[*segment.VersionError](err)
	switch {
	case corrupt:
		return d.line(file, c.At.Pos, 0, "damage", "cause", c.Cause)
	case version:
		return d.line(file, v.At.Pos, 0, "damage", "cause", fmt.Sprintf("format version %d", v.Got))
	case isAbsent(err):
		return d.line(file, pos, 0, "damage", "cause", "the file is missing")
	}
	return err
}

func (d *dumper) manifest() error {
	m := &d.man
	size := segment.SizeOf(len(encodeManifest(m)))
	err := d.line(manifestName, 0, size, "manifest head", "sequence", m.Seq, "next", m.Next,
		"dropped upto", m.Dropped.Upto, "dropped commit", m.Dropped.Commit, "dropped chain", m.Dropped.Chain,
		"promise", m.Promise,
		"segments", len(m.Segments), "snapshots", len(m.Snapshots), "compactions", len(m.Compactions))
	for i := range m.Segments {
		s := &m.Segments[i]
		if err == nil {
			err = d.line(manifestName, 0, 0, "manifest segment", "number", s.Number, "salt", s.Salt, "state", s.State,
				"base", s.Base, "size", s.Size, "footer pos", s.FooterPos, "last", s.Last, "first ref", s.FirstRef,
				"last ref", s.LastRef, "bodies", s.Bodies, "chain", s.Chain, "limit", s.Limit, "named", s.Named,
				"large", s.Large, "payload", s.Payload)
		}
	}
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		if err == nil {
			err = d.line(manifestName, 0, 0, "manifest snapshot", "mark", s.Mark, "size", s.Size, "salt", s.Salt,
				"length", s.Length, "digest", s.Digest)
		}
	}
	for _, c := range m.Compactions {
		if err == nil {
			err = d.line(manifestName, 0, 0, "manifest compaction", "from", c.From, "to", c.To)
		}
	}
	if err == nil && d.oneCopy {
		err = d.line(manifestName, 0, 0, "damage", "cause", "one of its two copies")
	}
	return err
}

func (d *dumper) hardState() error {
	err := withFile(d.fs, d.path(hardStateName), func(f fsync.File, _ int64) error {
		for pos := int64(0); pos < hardStateBytes; pos += blockBytes {
			c := readCopy(f, plainFile(d.g, segment.KindHardState), segment.KindHardState, pos, blockBytes)
			var err error
			if c.err == nil && len(c.body) == hardStateLen {
				w := words{b: c.body}
				err = d.line(hardStateName, pos, segment.SizeOf(hardStateLen), "hardstate", "sequence", w.next(),
					"term", w.next(), "vote", w.next(), "sequence again", w.next())
			} else {
				err = d.damage(hardStateName, pos, first(c.err, corruptAt("", d.g, pos, "the hard state has another length")))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if isAbsent(err) {
		return d.damage(hardStateName, 0, err)
	}
	return err
}

func (d *dumper) segments() error {
	for i := range d.man.Segments {
		if err := d.segment(&d.man.Segments[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) segment(s *segInfo) error {
	name := segmentName(s.Number)
	f, size, h, err := d.openSegmentFile(s)
	if err != nil {
		return d.damage(name, 0, err)
	}
	err = d.line(name, 0, segment.FirstBatch, "segment", "number", s.Number, "base", h.Base, "manifest", h.Manifest)
	if err == nil {
		err = d.batches(name, f, size, s)
	}
	return joinClose(err, f)
}

func (d *dumper) batches(name string, f io.ReaderAt, size int64, s *segInfo) error {
	limit := size
	switch {
	case s.State == segSealed:
		limit = min(size, s.FooterPos)
	case s.Limit > 0:
		limit = min(size, s.Limit)
	}
	var stopped error
	end, _, err := segment.EachBatch(f, limit, d.segFile(s), segment.FirstBatch, func(b *segment.Batch) error {
		stopped = d.batch(name, b)
		return stopped
	})
	switch {
	case stopped != nil:
		return stopped
	case err != nil:
		return d.damage(name, end, err)
	case s.State == segSealed:
		return d.footer(name, f, s)
	}
	return d.line(name, end, 0, "end", "limit", s.Limit)
}

func (d *dumper) batch(name string, b *segment.Batch) error {
	err := d.line(name, b.Pos, b.Size, "batch", "batch length", b.Size, "count", len(b.Rows),
		"promise segment", b.Stamp.Promise.Segment, "promise pos", b.Stamp.Promise.Pos, "commit", b.Stamp.Commit,
		"boot", b.Stamp.Boot)
	for _, row := range b.Rows {
		if err == nil {
			err = d.record(name, row, b.Record(row))
		}
	}
	return err
}

func (d *dumper) record(name string, row segment.Row, r segment.Record) error {
	switch row.Kind {
	case segment.KindBody:
		_, payload, err := segment.ParseBody(r.Body)
		if err != nil {
			return d.damage(name, row.Pos, corruptAt("", d.g, row.Pos, err.Error()))
		}
		return d.line(name, row.Pos, row.Size, "body", "ref term", row.Ref.Term, "ref seq", row.Ref.Seq,
			"payload", len(payload))
	case segment.KindEntry:
		return d.entry(name, row, r)
	case segment.KindTruncate:
		return d.line(name, row.Pos, row.Size, "truncate", "from", row.Index)
	case segment.KindVoid:
		ref, settled, err := segment.ParseVoid(r.Body)
		if err != nil {
			return d.damage(name, row.Pos, corruptAt("", d.g, row.Pos, err.Error()))
		}
		return d.line(name, row.Pos, row.Size, "void", "ref term", ref.Term, "ref seq", ref.Seq, "settled", settled)
	default:
		panic("bug: wal: a batch with a record of kind " + row.Kind.String())
	}
}

func (d *dumper) entry(name string, row segment.Row, r segment.Record) error {
	e, err := segment.ParseEntry(r.Body)
	if err != nil {
		return d.damage(name, row.Pos, corruptAt("", d.g, row.Pos, err.Error()))
	}
	err = d.line(name, row.Pos, row.Size, "entry", "index", e.Index, "term", e.Term, "type", e.Type, "data", len(e.Data))
	if err != nil || e.Type != segment.EntryNormal || len(e.Data) == 0 {
		return err
	}
	commits, _, err := segment.ParseData(e.Data)
	if err != nil {
		return d.damage(name, row.Pos, corruptAt("", d.g, row.Pos, err.Error()))
	}
	for _, c := range commits {
		flags := uint64(0)
		if c.Large {
			flags = 1
		}
		err := d.line(name, row.Pos, 0, "commit record", "ref term", c.Ref.Term, "ref seq", c.Ref.Seq, "length", c.Length,
			"digest", c.Digest, "flags", flags)
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) footer(name string, f io.ReaderAt, s *segInfo) error {
	t, err := segment.OpenFooter(f, d.segFile(s), s.FooterPos)
	if err != nil {
		return d.damage(name, s.FooterPos, err)
	}
	return d.line(name, t.Pos, t.Size, "footer", "chain", t.Chain, "first index", t.First, "last index", t.Last,
		"entries", t.Entries, "bodies", t.Bodies, "others", t.Others)
}

func (d *dumper) snapshots() error {
	for i := range d.man.Snapshots {
		s := &d.man.Snapshots[i]
		if err := d.framed(snapshotName(s.Mark.Index), s.Size); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) bodies() error {
	for _, ref := range d.list.refs {
		if err := d.framed(bodyName(ref), d.list.bodies[ref]); err != nil {
			return err
		}
	}
	return nil
}

// framed shows head and tail of a framed file, not its frames.
func (d *dumper) framed(name string, size int64) error {
	r, err := openFramed(d.fs, d.path(name), d.g, size)
	if err != nil {
		return d.damage(name, 0, err)
	}
	h, t := r.head, r.tail
	err = d.line(name, 0, framedHeadSize, "filehead", "type", uint64(h.Type), "term", h.Word[0], "seq or index", h.Word[1],
		"announced", h.Word[2])
	if err == nil {
		err = d.line(name, size-framedTailSize, framedTailSize, "filetail", "length", t.Length, "digest", t.Digest,
			"plain length", t.Plain)
	}
	return joinClose(err, r)
}
