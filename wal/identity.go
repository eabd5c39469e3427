package wal

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"weida/fsync"
	"weida/segment"
)

// The files that say what the data directory is. Each is one record in two copies, replaced as a
// whole; its first word is a headType, which is also the salt, so none can stand in another's place.
//
//	disk         16 random bytes, made once with the directory
//	incarnation  how often the directory was opened, 16 random bytes drawn for this time, and those that
//	             were drawn before, newest first
//	clean        written when the store is closed in order: disk, incarnation, and the groups it does
//	             not speak for
const (
	lockName        = "LOCK"
	diskName        = "disk"
	incarnationName = "incarnation"
	cleanName       = "clean"

	headDisk        headType = 3
	headIncarnation headType = 4
	headClean       headType = 5

	nodeFileMax = segment.BatchMax // of one copy, in bytes
	// cleanGroupsMax bounds the list in a clean marker; with more there is no marker.
	cleanGroupsMax = 16 << 10
	// LivesKept is how many of the incarnations before a directory remembers.
	LivesKept = 1024
)

func nodeFile(t headType) segment.File { return segment.File{Salt: segment.Salt(t)} }

// saveNode replaces a node file. It flushes by itself: it runs only while the store is opened or
// closed.
func saveNode(fs fsync.FS, dir, name string, t headType, body []byte) error {
	w := words{}
	w.u64(uint64(t))
	return fsync.WriteFileAtomic(fs, dir, name, encodeTwin(nodeFile(t), segment.KindFileHead, append(w.b, body...)))
}

// loadNode reads a node file's body of at least n bytes. An absent file is fs.ErrNotExist.
func loadNode(fs fsync.FS, dir, name string, t headType, n int) (body []byte, repaired bool, err error) {
	path := filepath.Join(dir, name)
	body, repaired, err = loadTwin(fs, path, nodeFile(t), segment.KindFileHead, nodeFileMax)
	if err != nil {
		return nil, false, err
	}
	if len(body) < 8+n || headType(le.Uint64(body)) != t {
		return nil, false, corruptAt(path, 0, 0, "the record is not that of a file "+name)
	}
	return body[8:], repaired, nil
}

// readIdentity reads what the directory says about itself. It changes nothing. held says for which
// groups a clean stop does not hold. repair names files with a damaged copy.
func readIdentity(fs fsync.FS, dir string) (id Identity, held []segment.GroupID, repair []string, err error) {
	body, bad, err := loadNode(fs, dir, diskName, headDisk, len(id.Disk))
	if err != nil {
		return id, nil, nil, identityError(dir, diskName, err)
	}
	copy(id.Disk[:], body)
	if bad {
		repair = append(repair, diskName)
	}
	body, bad, err = loadNode(fs, dir, incarnationName, headIncarnation, 8+len(id.Nonce))
	if err != nil {
		return id, nil, nil, identityError(dir, incarnationName, err)
	}
	id.Incarnation = le.Uint64(body)
	copy(id.Nonce[:], body[8:])
	for b := body[8+len(id.Nonce):]; len(b) >= len(id.Nonce) && len(id.Before) < LivesKept; b = b[len(id.Nonce):] {
		id.Before = append(id.Before, [16]byte(b))
	}
	if bad {
		repair = append(repair, incarnationName)
	}
	held, id.CleanStop, err = readClean(fs, dir, id)
	if err != nil {
		return id, nil, nil, identityError(dir, cleanName, err)
	}
	return id, held, repair, nil
}

// identityError says what the loss of an identity file means.
func identityError(dir, name string, err error) error {
	if isAbsent(err) {
		err = corruptAt(filepath.Join(dir, name), 0, 0, "the file is missing")
	}
	if isCorrupt(err) {
		return fmt.Errorf("wal: open %s: %w; the file %s is never made anew, because a disk taken for another one "+
			"can break promises given to its peers; no group was opened", dir, err, name)
	}
	return fmt.Errorf("wal: open %s: %w; no group was opened", dir, err)
}

// readClean reads the clean marker. A damaged or foreign one proves nothing, so it counts as none.
func readClean(fs fsync.FS, dir string, id Identity) (held []segment.GroupID, clean bool, err error) {
	body, _, err := loadNode(fs, dir, cleanName, headClean, len(id.Disk)+16)
	switch {
	case isAbsent(err), isCorrupt(err):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	r := words{b: body[len(id.Disk):]}
	incarnation, count := r.next(), r.next()
	if [16]byte(body[:16]) != id.Disk || incarnation != id.Incarnation || uint64(len(r.b)) != count*8 {
		return nil, false, nil
	}
	for range count {
		held = append(held, segment.GroupID(r.next()))
	}
	return held, true, nil
}

// writeClean says that this incarnation stopped in order, except for the groups in held. With too many
// of those it writes nothing.
func writeClean(fs fsync.FS, dir string, id Identity, held []segment.GroupID) error {
	if len(held) > cleanGroupsMax {
		return nil
	}
	slices.Sort(held)
	w := words{b: slices.Clone(id.Disk[:])}
	w.u64(id.Incarnation, uint64(len(held)))
	for _, g := range held {
		w.u64(uint64(g))
	}
	return saveNode(fs, dir, cleanName, headClean, w.b)
}

func writeDisk(fs fsync.FS, dir string, disk [16]byte) error {
	return saveNode(fs, dir, diskName, headDisk, disk[:])
}

func writeIncarnation(fs fsync.FS, dir string, n uint64, nonce [16]byte, before [][16]byte) error {
	w := words{}
	w.u64(n)
	w.b = append(w.b, nonce[:]...)
	for i := range before {
		w.b = append(w.b, before[i][:]...)
	}
	return saveNode(fs, dir, incarnationName, headIncarnation, w.b)
}

// Follows says whether this life comes after, or is, the one with that incarnation and nonce of the same disk. A
// directory that was put back from a copy does not know the lives that the disk had after the copy was made, however
// often it is opened: it counts them too, with other nonces. What is older than the directory remembers is not
// believed.
func (id *Identity) Follows(incarnation uint64, nonce [16]byte) bool {
	switch back := id.Incarnation - incarnation; {
	case incarnation > id.Incarnation:
		return false
	case back == 0:
		return nonce == id.Nonce
	default:
		return back <= uint64(len(id.Before)) && id.Before[back-1] == nonce
	}
}

// raise begins a new incarnation: the clean marker goes, the count rises, both flushed when it
// returns. The marker names its incarnation, so it is void from the moment the count has risen, even
// if its removal is lost.
func raise(fs fsync.FS, dir string, id *Identity, rand io.Reader) error {
	var nonce [16]byte
	if _, err := io.ReadFull(rand, nonce[:]); err != nil {
		return fmt.Errorf("wal: open %s: draw a nonce: %w", dir, err)
	}
	if err := removeIfThere(fs, filepath.Join(dir, cleanName)); err != nil {
		return fmt.Errorf("wal: open %s: %w", dir, err)
	}
	before := append([][16]byte{id.Nonce}, id.Before...)
	before = before[:min(len(before), LivesKept)]
	if err := writeIncarnation(fs, dir, id.Incarnation+1, nonce, before); err != nil {
		return fmt.Errorf("wal: open %s: raise the incarnation: %w", dir, err)
	}
	id.Incarnation++
	id.Nonce, id.Before = nonce, before
	return nil
}
