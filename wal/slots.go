package wal

import (
	"encoding/binary"
	"errors"
	"io"

	"weida/fsync"
	"weida/segment"
)

// Small facts that must not be lost to one bad block are written twice, in blocks of their own. This
// file reads and writes such copies; manifest.go and hardstate.go say what they mean.

var le = binary.LittleEndian

// plainFile seeds the records of a file that is replaced as a whole or has fixed places: its salt is
// the number of its kind, for no stale record can stand in it that its sequence would not betray.
func plainFile(g segment.GroupID, k segment.Kind) segment.File {
	return segment.File{Group: g, Salt: segment.Salt(k)}
}

// blocksFor is the room a record of size bytes takes when it is alone in its blocks.
func blocksFor(size int64) int64 { return (size + blockBytes - 1) / blockBytes * blockBytes }

// appendCopy appends the record that will stand at pos, filled up with zeros to whole blocks.
func appendCopy(dst []byte, f segment.File, pos int64, k segment.Kind, body []byte) []byte {
	start := len(dst)
	dst, _ = segment.AppendRecord(dst, f, pos, k, 0, body)
	pad := blocksFor(int64(len(dst)-start)) - int64(len(dst)-start)
	return append(dst, make([]byte, pad)...)
}

// slotCopy is what stands at one place: a record's body, or the reason why there is none.
type slotCopy struct {
	body []byte
	raw  []byte // the bytes read
	err  error  // *segment.CorruptError, *segment.VersionError or the system's; nil for a whole copy
}

// readCopy reads the copy of kind k in the n bytes at pos. What stands behind the record must be
// zeros. A read error is a verdict on this copy only.
func readCopy(f fsync.File, file segment.File, k segment.Kind, pos, n int64) slotCopy {
	raw := make([]byte, n)
	got, err := f.ReadAt(raw, pos)
	raw = raw[:got]
	if err != nil && !errors.Is(err, io.EOF) {
		return slotCopy{raw: raw, err: err}
	}
	return parseCopy(raw, file, k, pos)
}

func parseCopy(raw []byte, file segment.File, k segment.Kind, pos int64) slotCopy {
	bad := func(cause string) slotCopy {
		at := segment.Position{Pos: pos}
		return slotCopy{raw: raw, err: &segment.CorruptError{Group: file.Group, At: at, Cause: cause}}
	}
	r, _, err := segment.ParseRecord(raw, file, pos)
	switch {
	case errors.Is(err, segment.ErrShort):
		return bad("the file ends inside the record")
	case err != nil:
		return slotCopy{raw: raw, err: err}
	case r.Kind != k:
		return bad("the record is of kind " + r.Kind.String() + ", not " + k.String())
	case !zeros(raw[r.Size:]):
		return bad("what follows the record is not zero")
	}
	return slotCopy{body: r.Body, raw: raw}
}

// encodeTwin returns a file that holds one record in two copies, each in blocks of its own.
func encodeTwin(f segment.File, k segment.Kind, body []byte) []byte {
	data := appendCopy(nil, f, 0, k, body)
	return appendCopy(data, f, int64(len(data)), k, body)
}

// loadTwin reads the body of a file that encodeTwin made; max bounds one copy. One whole copy is
// enough; repaired says that the other one, or the file's length, is damaged. An absent file is
// fs.ErrNotExist; without a whole copy the error is *segment.CorruptError, *segment.VersionError or
// the system's.
func loadTwin(fs fsync.FS, path string, file segment.File, k segment.Kind, limit int64) (
	body []byte, repaired bool, err error,
) {
	err = withFile(fs, path, func(f fsync.File, size int64) error {
		a, b, odd := readTwin(f, file, k, size, limit)
		if a.err == nil && b.err == nil && string(a.body) != string(b.body) {
			return corruptAt(path, file.Group, int64(len(a.raw)), "its two copies are whole and differ")
		}
		repaired = odd || a.err != nil || b.err != nil
		switch {
		case a.err == nil:
			body = a.body
		case b.err == nil:
			body = b.body
		default:
			return worstOf(path, a, b)
		}
		return nil
	})
	return body, repaired, err
}

// readTwin reads both copies. The second one begins in the middle of the file, unless the file was
// cut or has grown (odd): then it stands behind the first.
func readTwin(f fsync.File, file segment.File, k segment.Kind, size, limit int64) (a, b slotCopy, odd bool) {
	half := size / 2
	if size%(2*blockBytes) == 0 && half <= limit {
		if a, b = readCopy(f, file, k, 0, half), readCopy(f, file, k, half, half); a.err == nil || b.err == nil {
			return a, b, false
		}
	}
	a = readCopy(f, file, k, 0, min(size, limit))
	r, _, err := segment.ParseRecord(a.raw, file, 0)
	if err != nil || r.Kind != k {
		return a, slotCopy{err: corruptAt("", file.Group, half, "no copy stands in the middle of the file")}, true
	}
	half = blocksFor(r.Size)
	a = slotCopy{body: r.Body, raw: a.raw[:min(half, int64(len(a.raw)))]}
	return a, readCopy(f, file, k, half, half), true
}

// worstOf chooses the error to report when no copy is whole: an unknown version first, because then
// nothing is damaged; then the system's word; then the first damage.
func worstOf(path string, copies ...slotCopy) error {
	var version, system, damage error
	for _, c := range copies {
		switch {
		case c.err == nil:
		case isVersion(c.err):
			version = first(version, c.err)
		case isCorrupt(c.err):
			damage = first(damage, c.err)
		default:
			system = first(system, c.err)
		}
	}
	return withPath(first(version, first(system, damage)), path)
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func isCorrupt(err error) bool {
	_, ok := errors.AsType[*segment.CorruptError](err)
	return ok
}

func isVersion(err error) bool {
	_, ok := errors.AsType[*segment.VersionError](err)
	return ok
}

// withPath names the file in an error of package segment, which knows none.
func withPath(err error, path string) error {
	if c, ok := errors.AsType[*segment.CorruptError](err); ok && c.Path == "" {
		c.Path = path
	}
	if v, ok := errors.AsType[*segment.VersionError](err); ok && v.Path == "" {
		v.Path = path
	}
	return err
}

// corruptAt is damage at byte pos of a file that is no segment.
func corruptAt(path string, g segment.GroupID, pos int64, cause string) error {
	return &segment.CorruptError{Path: path, Group: g, At: segment.Position{Pos: pos}, Cause: cause}
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// withFile opens a file for reading, forgets what the page cache says about it, and closes it after
// fn. A cache may show bytes whose flush went wrong in the process before.
func withFile(fs fsync.FS, path string, fn func(f fsync.File, size int64) error) error {
	f, err := fs.Open(path, fsync.ReadOnly)
	if err != nil {
		return err
	}
	err = f.DropCache(0, 0)
	var size int64
	if err == nil {
		size, err = f.Size()
	}
	if err == nil {
		err = fn(f, size)
	}
	return joinClose(err, f)
}
