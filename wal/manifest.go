package wal

import (
	"fmt"
	"path/filepath"
	"slices"

	"weida/fsync"
	"weida/segment"
)

// manifestMax bounds one copy of a manifest, in bytes: more than 100,000 segments.
const manifestMax = 16 << 20

// segState is how far a segment has come.
type segState uint8

const (
	segOpen   segState = iota // takes or took batches; no footer
	segSealed                 // flushed as a whole, with a footer
)

// segInfo is what the manifest knows about one segment. An open one has only Number, Salt, Base and,
// after a crash cut, Limit; the rest is recorded when it is sealed.
type segInfo struct {
	Number    segment.Number
	Salt      segment.Salt
	State     segState
	Base      segment.Index // first index expected when it was made
	Size      int64         // of the file, footer included
	FooterPos int64
	Last      Mark            // last entry that stands at its end
	FirstRef  segment.BodyRef // least ref of a body in it
	LastRef   segment.BodyRef // greatest
	Bodies    int64           // count of bodies in it
	Chain     segment.Chain   // at its end
	Limit     int64           // crash cut: the log of this segment ends here; 0 for none
	Named     segment.Index   // last entry known that names a body in it or settles a tombstone in it
	Large     int64           // count of large bodies named by entries in it
	Payload   int64           // bytes of body records in it
}

// snapInfo is what the manifest knows about a snapshot: enough to tell the file it means from any
// other.
type snapInfo struct {
	Mark   Mark // last entry it covers
	Size   int64
	Salt   segment.Salt
	Length int64 // of the content, uncompressed
	Digest segment.Digest
}

// compactInfo says that the live bodies of segment From were copied to To.
type compactInfo struct{ From, To segment.Number }

// dropInfo says what of the log is gone for good, and what justified it.
type dropInfo struct {
	Upto   Mark          // last entry dropped
	Commit segment.Index // commit index known to be flushed when it was dropped: never less than Upto.Index
	Chain  segment.Chain // at the end of the last dropped segment
}

// manifest is the whole content of a group's manifest file: which files make up the group. A file
// that it does not name is no part of the log; one that it names must be there.
type manifest struct {
	Seq         uint64         // rises with every save
	Next        segment.Number // of the next segment to be made
	Segments    []segInfo      // in order of Number
	Dropped     dropInfo
	Snapshots   []snapInfo // in order of index
	Compactions []compactInfo
	Promise     segment.Position // greatest position known to be flushed when it was saved
}

// clone returns a copy that shares nothing with m.
func (m *manifest) clone() manifest {
	c := *m
	c.Segments = slices.Clone(m.Segments)
	c.Snapshots = slices.Clone(m.Snapshots)
	c.Compactions = slices.Clone(m.Compactions)
	return c
}

// loadManifest reads the manifest of the group in dir. An absent file is fs.ErrNotExist. One whole
// copy is enough; repaired says that the other is damaged, so the caller should save the manifest
// again. With no whole copy the error is a *segment.CorruptError or a *segment.VersionError.
func loadManifest(fs fsync.FS, dir string, g segment.GroupID) (m manifest, repaired bool, err error) {
	path := filepath.Join(dir, manifestName)
	err = withFile(fs, path, func(f fsync.File, size int64) error {
		if size > 2*manifestMax {
			return corruptAt(path, g, 0, fmt.Sprintf("the file has %d bytes, more than a manifest can have", size))
		}
		a, b := readManifestCopies(f, g, size)
		m, repaired, err = pickManifest(path, g, a, b)
		return err
	})
	return m, repaired, err
}

// readManifestCopies reads both halves of the file. The second copy begins in its middle.
func readManifestCopies(f fsync.File, g segment.GroupID, size int64) (a, b slotCopy) {
	file, half := plainFile(g, segment.KindManifest), size/2
	if size%(2*blockBytes) != 0 {
		// Cut or grown: where the second copy stood is not known, the first may still be whole.
		a = readCopy(f, file, segment.KindManifest, 0, min(size, manifestMax))
		if a.err != nil && !isVersion(a.err) {
			a = trimCopy(a, file)
		}
		b.err = corruptAt("", g, half, "the file's length is not that of two copies")
		return a, b
	}
	return readCopy(f, file, segment.KindManifest, 0, half), readCopy(f, file, segment.KindManifest, half, half)
}

// trimCopy judges a copy again without asking for zeros behind it.
func trimCopy(c slotCopy, file segment.File) slotCopy {
	r, _, err := segment.ParseRecord(c.raw, file, 0)
	if err != nil || r.Kind != segment.KindManifest {
		return c
	}
	return slotCopy{body: r.Body, raw: c.raw}
}

func pickManifest(path string, g segment.GroupID, a, b slotCopy) (m manifest, repaired bool, err error) {
	if a.err != nil && b.err != nil {
		return manifest{}, false, worstOf(path, a, b)
	}
	whole, pos := a, int64(0)
	if a.err != nil {
		whole, pos = b, int64(len(a.raw))
	}
	m, cause := decodeManifest(whole.body)
	if cause != "" {
		return manifest{}, false, corruptAt(path, g, pos, cause)
	}
	if a.err == nil && b.err == nil && string(a.body) != string(b.body) {
		return manifest{}, false, corruptAt(path, g, int64(len(a.raw)), "its two copies are whole and differ")
	}
	return m, a.err != nil || b.err != nil, nil
}

// saveManifest replaces the manifest in dir by m and raises m.Seq. It blocks on flush rounds. After
// fsync.ErrDiskFull the old manifest stands; after any other error see replaceFile.
func saveManifest(fs fsync.FS, fl *fsync.Flusher, dir string, g segment.GroupID, m *manifest) error {
	if flaw := m.flaw(); flaw != "" {
		panic("bug: wal: saving a wrong manifest: " + flaw)
	}
	m.Seq++
	body := encodeManifest(m)
	if n := segment.SizeOf(len(body)); n > manifestMax {
		panic(fmt.Sprintf("bug: wal: manifest of %d bytes", n))
	}
	file := plainFile(g, segment.KindManifest)
	data := appendCopy(nil, file, 0, segment.KindManifest, body)
	data = appendCopy(data, file, int64(len(data)), segment.KindManifest, body)
	if err := replaceFile(fs, fl, dir, manifestName, data); err != nil {
		m.Seq--
		return fmt.Errorf("wal: save the manifest of group %d: %w", uint64(g), err)
	}
	return nil
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
