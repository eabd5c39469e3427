package raftstore

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"weida/segment"
	"weida/wal"
)

// raftLog is the wal.Log as raft sees it: raft.Storage. Only what is written is in it; raft keeps what it has not yet
// heard to be flushed. It lives on the shard.
type raftLog struct {
	log *wal.Log
	// recent are the entries from recent[0] on up to the last one that were written in this life and not yet applied,
	// so that what is committed need not be read back. Bounded by recentBytes.
	recent []*raftpb.Entry
	bytes  int
	// snap is the newest snapshot that a follower can be brought up with, conf its configuration.
	snap wal.Mark
	conf *config
	// now is the configuration that is applied. A snapshot that lacks one of its members can't bring that one up: wanted
	// says that another is to be taken.
	now    *config
	wanted *bool
	hard   wal.HardState // at opening
	hint   Index         // of the commit index, at opening
	// failed is why a read failed. Raft has no way to pass an error on and panics with it; replica.guard, where the shard
	// called raft, catches that.
	failed error
}

var _ raft.Storage = (*raftLog)(nil)

// recentBytes bounds the entries that a replica keeps in memory until they are applied, in bytes of their data.
const recentBytes = 1 << 20

// InitialState implements raft.Storage.
func (l *raftLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hs := &raftpb.HardState{
		Term:   new(uint64(l.hard.Term)),
		Vote:   new(l.hard.Vote),
		Commit: new(uint64(l.hint)),
	}
	return hs, l.conf.state.raft(), nil
}

// Entries implements raft.Storage.
func (l *raftLog) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if list, ok := l.fromRecent(Index(lo), Index(hi), maxSize); ok {
		return list, nil
	}
	entries, err := l.log.Entries(Index(lo), Index(hi), int64(min(maxSize, raftMessageBytes)))
	if err != nil {
		return nil, l.raftError(err)
	}
	list := make([]*raftpb.Entry, 0, len(entries))
	for i := range entries {
		list = append(list, toRaft(&entries[i]))
	}
	return list, nil
}

// fromRecent answers from memory if the first entry is there.
func (l *raftLog) fromRecent(lo, hi Index, maxSize uint64) ([]*raftpb.Entry, bool) {
	if len(l.recent) == 0 {
		return nil, false
	}
	first := Index(l.recent[0].GetIndex())
	if lo < first || hi > first+Index(len(l.recent)) {
		return nil, false
	}
	var list []*raftpb.Entry
	size := uint64(0)
	for _, e := range l.recent[lo-first : hi-first] {
		size += uint64(len(e.GetData())) + entryOverhead
		if len(list) > 0 && size > maxSize {
			break
		}
		list = append(list, e)
	}
	return list, true
}

// entryOverhead is at least what the encoding of an entry adds to its data.
const entryOverhead = 32

// wrote takes note of entries that were written, in place of those at or above the first.
func (l *raftLog) wrote(list []*raftpb.Entry) {
	if len(list) == 0 {
		return
	}
	l.truncate(Index(list[0].GetIndex()))
	if n := len(l.recent); n > 0 && l.recent[n-1].GetIndex()+1 != list[0].GetIndex() {
		l.forget()
	}
	for _, e := range list {
		l.recent = append(l.recent, e)
		l.bytes += len(e.GetData()) + entryOverhead
	}
	for len(l.recent) > 0 && l.bytes > recentBytes {
		l.dropFirst()
	}
}

func (l *raftLog) truncate(from Index) {
	for n := len(l.recent); n > 0 && Index(l.recent[n-1].GetIndex()) >= from; n-- {
		l.bytes -= len(l.recent[n-1].GetData()) + entryOverhead
		l.recent[n-1] = nil
		l.recent = l.recent[:n-1]
	}
}

// applied drops what is needed no more.
func (l *raftLog) applied(i Index) {
	for len(l.recent) > 0 && Index(l.recent[0].GetIndex()) <= i {
		l.dropFirst()
	}
	if len(l.recent) == 0 {
		l.recent = nil
	}
}

func (l *raftLog) dropFirst() {
	l.bytes -= len(l.recent[0].GetData()) + entryOverhead
	l.recent[0] = nil
	l.recent = l.recent[1:]
}

func (l *raftLog) forget() { l.recent, l.bytes = nil, 0 }

// Term implements raft.Storage.
func (l *raftLog) Term(i uint64) (uint64, error) {
	t, err := l.log.Term(Index(i))
	return uint64(t), l.raftError(err)
}

// FirstIndex implements raft.Storage. A log that was an owner's may have its entry 1, and that must not be sent to a
// replica that has nothing: the members do not stand in the entries, but in the snapshot with which the group began.
func (l *raftLog) FirstIndex() (uint64, error) {
	if first := l.log.First(); first > 1 || l.log.Last().Index == 0 {
		return uint64(first), nil
	}
	return 2, nil
}

// LastIndex implements raft.Storage.
func (l *raftLog) LastIndex() (uint64, error) { return uint64(l.log.Last().Index), nil }

// Snapshot implements raft.Storage. It names the newest snapshot; its content travels by itself.
func (l *raftLog) Snapshot() (*raftpb.Snapshot, error) {
	if l.snap.Index == 0 || l.snap.Index+1 < l.log.First() || !l.conf.covers(l.now) {
		*l.wanted = true
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: l.conf.state.raft(),
		Index:     new(uint64(l.snap.Index)),
		Term:      new(uint64(l.snap.Term)),
	}}, nil
}

// raftError is an error of the log as raft knows it.
func (l *raftLog) raftError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wal.ErrTrimmed):
		return raft.ErrCompacted
	case errors.Is(err, wal.ErrAbsent):
		return raft.ErrUnavailable
	}
	l.failed = err
	return err
}

func toRaft(e *segment.Entry) *raftpb.Entry {
	return &raftpb.Entry{
		Term:  new(uint64(e.Term)),
		Index: new(uint64(e.Index)),
		Type:  raftpb.EntryType(e.Type).Enum(),
		Data:  e.Data,
	}
}

func fromRaftEntry(e *raftpb.Entry) segment.Entry {
	return segment.Entry{
		Index: Index(e.GetIndex()),
		Term:  Term(e.GetTerm()),
		Type:  segment.EntryType(e.GetType()),
		Data:  e.GetData(),
	}
}

// quietLogger drops what raft would log: what matters shows in Status, in Machine.Role and as events. A panic of raft
// stays one: it is a defect.
type quietLogger struct{}

func (quietLogger) Debug(...any)            {}
func (quietLogger) Debugf(string, ...any)   {}
func (quietLogger) Error(...any)            {}
func (quietLogger) Errorf(string, ...any)   {}
func (quietLogger) Info(...any)             {}
func (quietLogger) Infof(string, ...any)    {}
func (quietLogger) Warning(...any)          {}
func (quietLogger) Warningf(string, ...any) {}
func (quietLogger) Fatal(v ...any)          { panic("bug: raftstore: raft: " + fmt.Sprint(v...)) }
func (quietLogger) Fatalf(f string, v ...any) {
	panic("bug: raftstore: raft: " + fmt.Sprintf(f, v...))
}
func (quietLogger) Panic(v ...any) { panic("bug: raftstore: raft: " + fmt.Sprint(v...)) }
func (quietLogger) Panicf(f string, v ...any) {
	panic("bug: raftstore: raft: " + fmt.Sprintf(f, v...))
}
