package wal

import (
	"fmt"
	"io"

	"weida/segment"
)

// This part of a verification compares entries with the bodies they name and reads what lies in files
// of its own.

// record takes one record of the log, in order.
func (x *verifier) record(n segment.Number, row segment.Row, r segment.Record) error {
	x.sum.Records++
	x.sum.Bytes += row.Size
	switch row.Kind {
	case segment.KindBody:
		_, payload, err := segment.ParseBody(r.Body)
		if err != nil {
			return corruptAt("", x.g, row.Pos, err.Error())
		}
		x.here.add(row.Ref)
		x.fresh[row.Ref] = segment.Commit{Length: int64(len(payload)), Digest: segment.DigestOf(payload)}
	case segment.KindVoid:
		x.voids.add(row.Ref)
		delete(x.fresh, row.Ref)
	case segment.KindTruncate:
		x.missing, x.larges = below(x.missing, row.Index), below(x.larges, row.Index)
	case segment.KindEntry:
		return x.entry(n, row, r)
	default:
		panic("bug: wal: a batch with a record of kind " + row.Kind.String())
	}
	return nil
}

// below drops what entries at or above an index name.
func below(list []lost, from segment.Index) []lost {
	kept := list[:0]
	for _, b := range list {
		if b.index < from {
			kept = append(kept, b)
		}
	}
	return kept
}

func (x *verifier) entry(n segment.Number, row segment.Row, r segment.Record) error {
	e, err := segment.ParseEntry(r.Body)
	if err == nil && e.Type == segment.EntryNormal && len(e.Data) > 0 {
		err = segment.EachCommit(e.Data, func(c segment.Commit) error {
			at := lost{index: e.Index, commit: c, batch: segment.Position{Segment: n, Pos: row.Pos}}
			x.named(at)
			return nil
		})
	}
	if err != nil && !isCorrupt(err) {
		err = &segment.CorruptError{
			Path: x.path(segmentName(n)), Group: x.g, Index: e.Index, Cause: err.Error(),
			At: segment.Position{Segment: n, Pos: row.Pos},
		}
	}
	return err
}

// named compares a commit record with the body it names.
func (x *verifier) named(b lost) {
	ref := b.commit.Ref
	have, fresh := x.fresh[ref]
	delete(x.fresh, ref)
	switch {
	case b.commit.Large:
		x.larges = append(x.larges, b)
	case fresh && (have.Length != b.commit.Length || have.Digest != b.commit.Digest):
		x.note("", x.bodyError(b, "is not the one that the entry names"))
	case !fresh && !x.here.has(ref):
		x.missing = append(x.missing, b)
	}
}

func (x *verifier) bodyError(b lost, what string) error {
	return &segment.CorruptError{
		Path: x.path(segmentName(b.batch.Segment)), Group: x.g, At: b.batch, Index: b.index,
		Cause: fmt.Sprintf("entry %d names body %v, which %s", uint64(b.index), b.commit.Ref, what),
	}
}

// bodies sees that every body a live entry names is here, and reads the large ones whole.
func (x *verifier) bodies() {
	for _, b := range x.missing {
		if b.index > x.snap && !x.voids.has(b.commit.Ref) && !x.here.has(b.commit.Ref) {
			x.note("", x.bodyError(b, "is not here"))
		}
	}
	for _, b := range x.larges {
		if x.voids.has(b.commit.Ref) {
			continue
		}
		r, err := openBodyFile(x.fs, x.dir, x.g, b.commit)
		if isAbsent(err) {
			if b.index > x.snap {
				x.note("", x.bodyError(b, "is not here"))
			}
			continue
		}
		if err == nil {
			err = x.readAll(r)
			err = joinClose(err, r)
		}
		x.sum.Files++
		x.note(x.path(bodyName(b.commit.Ref)), err)
	}
}

func (x *verifier) readAll(r io.Reader) error {
	n, err := io.Copy(io.Discard, r)
	x.sum.Bytes += n
	return err
}

// snapshots reads every snapshot that the manifest names. Damage of an older one is survived, and so
// is that of the newest while the log still holds what only it covers.
func (x *verifier) snapshots() {
	for i := range x.man.Snapshots {
		info := &x.man.Snapshots[i]
		x.sum.Files++
		r, err := openSnapshot(x.fs, x.dir, x.g, *info)
		if err == nil {
			err = joinClose(x.readAll(r), r)
		}
		if err == nil {
			continue
		}
		f := finding(x.g, x.path(snapshotName(info.Mark.Index)), err)
		f.Survived = f.Verdict == segment.Corrupt && x.covered(i)
		x.found = append(x.found, f)
	}
}

// covered reports whether the group opens without snapshot i: another one, or the log's beginning,
// reaches what was dropped.
func (x *verifier) covered(i int) bool {
	if x.man.Dropped.Upto.Index == 0 {
		return true
	}
	for j := range x.man.Snapshots {
		if j != i && x.man.Snapshots[j].Mark.Index >= x.man.Dropped.Upto.Index {
			return true
		}
	}
	return false
}
