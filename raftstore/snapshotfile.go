package raftstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"weida/segment"
)

// The content of a replica's snapshot, inside the store's own framing and checksums:
//
//	magic     8 bytes
//	version   1 byte
//	flags     1 byte: the machine is empty, the configuration leaves its joint step by itself
//	replicas  four lists (voters, learners, outgoing voters, learners to come), each: count, ids
//	members   count, each: replica, node, learner (0 or 1)
//	runs      of live bodies: each 1, term, sequence, count; or 2, term, sequence, length, digest; then 0
//	machine   its own bytes up to the end; none if it is empty
//
// Numbers are uvarints. The configuration is that of the entry that the snapshot stands for. A reader keeps no more
// than one run in memory, however many there are.

const (
	snapshotMagic   = "weida/rs"
	snapshotVersion = 1

	snapshotEmpty     = 1 << 0
	snapshotAutoLeave = 1 << 1

	runEnd    = 0
	runInline = 1
	runLarge  = 2

	// configReplicasMax bounds each list of a configuration: voters, learners and those on their way.
	configReplicasMax = 64
)

var errSnapshotFile = errors.New("the snapshot's content is not one of this version")

// confState is a configuration as raft knows it.
type confState struct {
	Voters         []ReplicaID
	Learners       []ReplicaID
	VotersOutgoing []ReplicaID // of the configuration before, while joint
	LearnersNext   []ReplicaID // outgoing voters that will learn
	AutoLeave      bool
}

// snapshotHead is what a replica's snapshot says before its machine's bytes.
type snapshotHead struct {
	Conf confState
	// Members has a row for every replica that Conf names.
	Members []Member
	// Empty says that there are no machine's bytes: the group begins here.
	Empty bool
}

// bodyRun is n live inline bodies with the refs first, first+1, …, or one large body.
type bodyRun struct {
	first BodyRef
	n     uint64
	large segment.Commit // Large is set if it is one
}

// writeSnapshot writes head, the runs of src if it has bodies, and its bytes. src is nil if the head says Empty.
func writeSnapshot(w io.Writer, h *snapshotHead, src Source) (int64, error) {
	if h.Empty != (src == nil) {
		panic("bug: raftstore: a snapshot is empty or has a source")
	}
	c := &counting{w: w}
	b := bufio.NewWriterSize(c, 16<<10)
	if err := errors.Join(writeHead(b, h), writeRuns(b, src)); err != nil {
		return c.n, err
	}
	if err := b.Flush(); err != nil || src == nil {
		return c.n, err
	}
	_, err := src.WriteTo(c)
	return c.n, err
}

func writeHead(b *bufio.Writer, h *snapshotHead) error {
	buf := append([]byte(snapshotMagic), snapshotVersion)
	var flags byte
	if h.Empty {
		flags |= snapshotEmpty
	}
	if h.Conf.AutoLeave {
		flags |= snapshotAutoLeave
	}
	buf = append(buf, flags)
	for _, list := range h.Conf.lists() {
		buf = binary.AppendUvarint(buf, uint64(len(*list)))
		for _, id := range *list {
			buf = binary.AppendUvarint(buf, uint64(id))
		}
	}
	buf = binary.AppendUvarint(buf, uint64(len(h.Members)))
	for _, m := range h.Members {
		buf = binary.AppendUvarint(buf, uint64(m.Replica))
		buf = binary.AppendUvarint(buf, uint64(m.Node))
		learner := byte(0)
		if m.Learner {
			learner = 1
		}
		buf = append(buf, learner)
	}
	_, err := b.Write(buf)
	return err
}

// lists are the lists of the configuration in the order of the file.
func (s *confState) lists() [4]*[]ReplicaID {
	return [4]*[]ReplicaID{&s.Voters, &s.Learners, &s.VotersOutgoing, &s.LearnersNext}
}

// writeRuns writes what src holds, inline bodies first, and the end of the list.
func writeRuns(b *bufio.Writer, src Source) (err error) {
	holder, ok := src.(BodySource)
	if !ok {
		return b.WriteByte(runEnd)
	}
	var buf []byte
	put := func(kind byte, numbers ...uint64) bool {
		buf = append(buf[:0], kind)
		for _, n := range numbers {
			buf = binary.AppendUvarint(buf, n)
		}
		_, err = b.Write(buf)
		return err == nil
	}
	holder.Bodies(func(first BodyRef, n uint64) bool {
		return n == 0 || put(runInline, uint64(first.Term), first.Seq, n)
	})
	if err != nil {
		return err
	}
	holder.LargeBodies(func(c segment.Commit) bool {
		if !put(runLarge, uint64(c.Ref.Term), c.Ref.Seq, uint64(c.Length)) {
			return false
		}
		_, err = b.Write(c.Digest[:])
		return err == nil
	})
	if err != nil {
		return err
	}
	return b.WriteByte(runEnd)
}

// snapshotFile reads a replica's snapshot: its head, then its runs, then, as a Source, the machine's bytes.
type snapshotFile struct {
	head snapshotHead
	b    *bufio.Reader
	runs bool // the runs are read
}

// readSnapshot reads the head. Errors of r are passed on; content that this build can't read wraps errSnapshotFile.
func readSnapshot(r io.Reader) (*snapshotFile, error) {
	f := &snapshotFile{b: bufio.NewReaderSize(r, 16<<10)}
	var fixed [len(snapshotMagic) + 2]byte
	if _, err := io.ReadFull(f.b, fixed[:]); err != nil {
		return nil, short(err)
	}
	version, flags := fixed[len(snapshotMagic)], fixed[len(snapshotMagic)+1]
	switch {
	case string(fixed[:len(snapshotMagic)]) != snapshotMagic:
		return nil, fmt.Errorf("%w: it does not begin with its magic", errSnapshotFile)
	case version != snapshotVersion:
		return nil, fmt.Errorf("%w: it has version %d, this build reads %d", errSnapshotFile, version, snapshotVersion)
	case flags > snapshotEmpty|snapshotAutoLeave:
		return nil, fmt.Errorf("%w: flags %#x", errSnapshotFile, flags)
	}
	f.head.Empty, f.head.Conf.AutoLeave = flags&snapshotEmpty != 0, flags&snapshotAutoLeave != 0
	for _, list := range f.head.Conf.lists() {
		n, err := f.count()
		if err != nil {
			return nil, err
		}
		for range n {
			id, err := f.uint()
			if err != nil {
				return nil, err
			}
			*list = append(*list, ReplicaID(id))
		}
	}
	if err := f.members(); err != nil {
		return nil, err
	}
	return f, f.head.check()
}

func (f *snapshotFile) members() error {
	n, err := f.count()
	if err != nil {
		return err
	}
	for range n {
		var v [3]uint64
		for i := range v {
			if v[i], err = f.uint(); err != nil {
				return err
			}
		}
		if v[2] > 1 {
			return fmt.Errorf("%w: a member is neither voter nor learner", errSnapshotFile)
		}
		f.head.Members = append(f.head.Members, Member{ReplicaID(v[0]), NodeID(v[1]), v[2] == 1})
	}
	return nil
}

// check says whether the configuration can be one.
func (h *snapshotHead) check() error {
	known := make(map[ReplicaID]bool, len(h.Members))
	for _, m := range h.Members {
		if m.Replica == 0 || m.Node == 0 || known[m.Replica] {
			return fmt.Errorf("%w: replica %d stands twice in the table of members, or is none", errSnapshotFile, m.Replica)
		}
		known[m.Replica] = true
	}
	for _, list := range h.Conf.lists() {
		for _, id := range *list {
			if !known[id] {
				return fmt.Errorf("%w: replica %d is in no row of the table of members", errSnapshotFile, id)
			}
		}
	}
	return nil
}

// nextRun returns the next run; ok is false behind the last.
func (f *snapshotFile) nextRun() (run bodyRun, ok bool, err error) {
	if f.runs {
		return run, false, nil
	}
	kind, err := f.uint()
	switch {
	case err != nil:
		return run, false, err
	case kind == runEnd:
		f.runs = true
		return run, false, nil
	case kind > runLarge:
		return run, false, fmt.Errorf("%w: run of kind %d", errSnapshotFile, kind)
	}
	var v [3]uint64
	for i := range v {
		if v[i], err = f.uint(); err != nil {
			return run, false, err
		}
	}
	run.first = BodyRef{Term: Term(v[0]), Seq: v[1]}
	if run.n = v[2]; kind == runLarge {
		run.n, run.large = 1, segment.Commit{Ref: run.first, Length: int64(v[2]), Large: true}
		if _, err := io.ReadFull(f.b, run.large.Digest[:]); err != nil {
			return run, false, short(err)
		}
	}
	if !validRef(run.first) || v[2] == 0 || v[2] > math.MaxInt64 || run.first.Seq+run.n < run.first.Seq {
		return run, false, fmt.Errorf("%w: run from %v", errSnapshotFile, run.first)
	}
	return run, true, nil
}

// WriteTo implements Source: the machine's bytes. Runs that were not read are passed over.
func (f *snapshotFile) WriteTo(w io.Writer) (int64, error) {
	for !f.runs {
		if _, _, err := f.nextRun(); err != nil {
			return 0, err
		}
	}
	return f.b.WriteTo(w)
}

func (f *snapshotFile) uint() (v uint64, err error) {
	for shift := 0; ; shift += 7 {
		c, err := f.b.ReadByte()
		switch {
		case err != nil:
			return 0, short(err)
		case shift == 63 && c > 1:
			return 0, fmt.Errorf("%w: a number is too large", errSnapshotFile)
		}
		if v |= uint64(c&0x7f) << shift; c < 0x80 {
			return v, nil
		}
	}
}

func (f *snapshotFile) count() (int, error) {
	n, err := f.uint()
	if err == nil && n > configReplicasMax {
		err = fmt.Errorf("%w: %d replicas in a list", errSnapshotFile, n)
	}
	return int(n), err
}

// short tells the end of the file from damage that the store below has found.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", errSnapshotFile)
	}
	return err
}

// counting counts what is written.
type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
