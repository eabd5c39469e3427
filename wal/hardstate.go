package wal

import (
	"fmt"
	"path/filepath"

	"weida/fsync"
	"weida/segment"
)

// A group's hard state is a file of four blocks: slot 0 in blocks 0 and 1, slot 1 in blocks 2 and 3,
// each slot twice. Version n of the state is in slot n mod 2. Writing version n+1 replaces version
// n-1 and is flushed before version n+2 replaces n, so the newest flushed version is never touched.
//
// What is read after a crash:
//
//  1. A copy that verifies is what was written. A slot holds the newer of its two copies.
//  2. Both slots hold a version: the newer one counts. They must be neighbours, else a flushed write
//     was lost: corrupt.
//  3. One slot holds version n and neither copy of the other verifies. It held n-1 or was to hold
//     n+1. Only if both copies are torn (each a splice of n-1 and n+1, told by the sequence that
//     stands at both ends of a record) was n+1 never flushed, and n counts. Otherwise n+1 may have
//     been flushed and have rotted: going back to n could give a vote twice, so it is corrupt.
//  4. A copy of another format version: nothing is decided here.
//
// So one damaged copy is survived wherever it is, and is written anew.
const (
	hardStateBytes = 4 * blockBytes
	slotBytes      = 2 * blockBytes
	hardStateLen   = 32 // sequence, term, vote, sequence again
)

// HardState is what must be flushed before any message that depends on it.
type HardState struct {
	Term segment.Term
	Vote uint64
}

// hardStateFile is a group's hard state and the file that holds it. One goroutine uses it. It holds
// no descriptor between calls.
type hardStateFile struct {
	path   string
	group  segment.GroupID
	seq    uint64
	state  HardState
	broken error // of a write or flush; final
	// repaired: a copy was damaged or torn; the two versions to come make both slots whole.
	repaired bool
}

// State is the newest flushed hard state.
func (h *hardStateFile) State() HardState { return h.state }

// firstHardState is the content of the file of a new group: the zero state in both slots.
func firstHardState(g segment.GroupID) []byte {
	data := make([]byte, 0, hardStateBytes)
	return appendSlot(appendSlot(data, g, 0, HardState{}), g, 1, HardState{})
}

// appendSlot appends both copies of version seq.
func appendSlot(dst []byte, g segment.GroupID, seq uint64, s HardState) []byte {
	w := words{b: make([]byte, 0, hardStateLen)}
	w.u64(seq, uint64(s.Term), s.Vote, seq)
	file, pos := plainFile(g, segment.KindHardState), slotPos(seq)
	dst = appendCopy(dst, file, pos, segment.KindHardState, w.b)
	return appendCopy(dst, file, pos+blockBytes, segment.KindHardState, w.b)
}

func slotPos(seq uint64) int64 { return int64(seq%2) * slotBytes }

// loadHardState reads the hard state of the group in dir by the rules above. Errors: fs.ErrNotExist,
// *segment.CorruptError, *segment.VersionError, or the system's. Nothing is written; if repaired is
// set, repair should be called once start-up may write.
func loadHardState(fs fsync.FS, dir string, g segment.GroupID) (*hardStateFile, error) {
	h := &hardStateFile{path: filepath.Join(dir, hardStateName), group: g}
	err := withFile(fs, h.path, func(f fsync.File, _ int64) error {
		file := plainFile(g, segment.KindHardState)
		var c [4]slotCopy
		for i := range c {
			c[i] = readCopy(f, file, segment.KindHardState, int64(i)*blockBytes, blockBytes)
		}
		return h.decide(c)
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// version is one version of the hard state.
type version struct {
	seq   uint64
	state HardState
}

// decide applies the rules to the four copies, numbered by block.
func (h *hardStateFile) decide(c [4]slotCopy) error {
	for _, one := range c {
		if isVersion(one.err) { // rule 4
			return worstOf(h.path, one)
		}
	}
	var slot [2]version
	var held [2]bool
	for i := range c {
		v, ok, err := h.decode(c[i], i)
		if err != nil {
			return err
		}
		h.repaired = h.repaired || !ok
		if ok && (!held[i/2] || v.seq > slot[i/2].seq) { // rule 1
			h.repaired = h.repaired || held[i/2]
			slot[i/2], held[i/2] = v, true
		} else if ok && v.seq < slot[i/2].seq {
			h.repaired = true
		}
	}
	switch {
	case held[0] && held[1]:
		return h.takeNewer(slot)
	case held[0]:
		return h.takeOnly(slot[0], c[2], c[3])
	case held[1]:
		return h.takeOnly(slot[1], c[0], c[1])
	}
	return worstOf(h.path, c[:]...)
}

// decode reads one copy; ok is false if it does not verify.
func (h *hardStateFile) decode(c slotCopy, block int) (v version, ok bool, err error) {
	if c.err != nil {
		return version{}, false, nil
	}
	pos := int64(block) * blockBytes
	if len(c.body) != hardStateLen {
		return version{}, false, corruptAt(h.path, h.group, pos, "the hard state has another length")
	}
	r := words{b: c.body}
	v.seq = r.next()
	v.state = HardState{Term: segment.Term(r.next()), Vote: r.next()}
	if again := r.next(); again != v.seq || slotPos(v.seq) != pos/slotBytes*slotBytes {
		return version{}, false, corruptAt(h.path, h.group, pos, "the sequence does not belong to this slot")
	}
	return v, true, nil
}

// takeNewer is rule 2.
func (h *hardStateFile) takeNewer(slot [2]version) error {
	newer, older := slot[0], slot[1]
	if newer.seq < older.seq {
		newer, older = older, newer
	}
	if newer.seq != older.seq+1 {
		return corruptAt(h.path, h.group, slotPos(older.seq),
			fmt.Sprintf("versions %d and %d are not neighbours: a flushed write was lost", older.seq, newer.seq))
	}
	h.seq, h.state = newer.seq, newer.state
	return nil
}

// takeOnly is rule 3: v is whole, a and b are the damaged copies of the other slot.
func (h *hardStateFile) takeOnly(v version, a, b slotCopy) error {
	if !torn(a, v.seq) || !torn(b, v.seq) {
		return worstOf(h.path, a, b)
	}
	h.seq, h.state = v.seq, v.state
	return nil
}

// torn reports whether a damaged copy is what a power cut leaves of version n+1 written over n-1: one
// at its one end, the other at its other.
func torn(c slotCopy, n uint64) bool {
	const head, tail = segment.HeaderSize, segment.HeaderSize + hardStateLen - 8
	if !isCorrupt(c.err) || len(c.raw) < tail+8 || n == 0 {
		return false
	}
	a, b := le.Uint64(c.raw[head:]), le.Uint64(c.raw[tail:])
	return a == n+1 && b == n-1 || a == n-1 && b == n+1
}

// Set replaces the hard state and returns when it is flushed. After fsync.ErrDiskFull without
// fsync.ErrPoisoned the old state stands and Set may be called again. After any other error the state
// on disk is not known: every later call returns that error, and only a restart decides.
func (h *hardStateFile) Set(fs fsync.FS, fl *fsync.Flusher, s HardState) error {
	if h.broken != nil {
		return h.broken
	}
	err := h.write(fs, fl, s)
	if err == nil {
		h.seq++
		h.state = s
		return nil
	}
	err = fmt.Errorf("wal: set the hard state of group %d: %w; "+
		"no message that depends on it may be sent", uint64(h.group), err)
	if !harmless(err) {
		h.broken = err
	}
	return err
}

func (h *hardStateFile) write(fs fsync.FS, fl *fsync.Flusher, s HardState) error {
	f, err := fs.Open(h.path, fsync.ReadWrite)
	if err != nil {
		return err
	}
	data := appendSlot(make([]byte, 0, slotBytes), h.group, h.seq+1, s)
	if _, err = f.WriteAt(data, slotPos(h.seq+1)); err == nil {
		err = flush(fl, h.path, f)
	}
	return joinClose(err, f)
}

// repair writes the present state as the next two versions, so that all four copies are whole.
func (h *hardStateFile) repair(fs fsync.FS, fl *fsync.Flusher) error {
	for range 2 {
		if err := h.Set(fs, fl, h.state); err != nil {
			return err
		}
	}
	h.repaired = false
	return nil
}
