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
	body, repaired, err := loadTwin(fs, path, plainFile(g, segment.KindManifest), segment.KindManifest, manifestMax)
	if err != nil {
		return manifest{}, false, err
	}
	m, cause := decodeManifest(body)
	if cause != "" {
		return manifest{}, false, corruptAt(path, g, 0, cause)
	}
	return m, repaired, nil
}

// saveManifest replaces the manifest in dir by m and raises m.Seq. It blocks on flush rounds. After
// fsync.ErrDiskFull, without fsync.ErrPoisoned, the old manifest stands; after any other error see
// replaceFile.
func saveManifest(fs fsync.FS, fl *fsync.Flusher, dir string, g segment.GroupID, m *manifest) error {
	if flaw := m.flaw(); flaw != "" {
		panic("bug: wal: saving a wrong manifest: " + flaw)
	}
	m.Seq++
	data := encodeTwin(plainFile(g, segment.KindManifest), segment.KindManifest, encodeManifest(m))
	if len(data) > 2*manifestMax {
		panic(fmt.Sprintf("bug: wal: manifest of %d bytes", len(data)))
	}
	if err := replaceFile(fs, fl, dir, manifestName, data); err != nil {
		m.Seq--
		return fmt.Errorf("wal: save the manifest of group %d: %w", uint64(g), err)
	}
	return nil
}
