package history

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	machine "weida/broker/queue"
	"weida/fsync"
	"weida/raftstore"
	"weida/segment"
	"weida/wal"
)

// This file reads what a stopped node's disk holds.

// controlGroup is the group that is no queue's.
const controlGroup segment.GroupID = 1

// DiskOptions say what a disk is, for DumpDisk.
type DiskOptions struct {
	Node  string
	At    DumpAt
	Taken Time // when it came to be so; 0 is when its lines are noted
	Quiet bool
	// Scratch is where a copy of the data directory is made and removed; the system's place for that if "".
	Scratch string
}

// DumpDisk notes what the data directory dir of a node that does not run holds: of each queue a Dump, its entries with
// the messages they add, and its end. It recovers the logs as a start of the node would, after a power cut if that is
// how the directory came to be, but on a copy: dir itself is only read. An error says that the disk cannot be read
// through, which is damage or a mistake; what was noted before it is of whole queues.
func DumpDisk(dir string, o DiskOptions, note func(Event)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("history: dump the disk of %s: %w", o.Node, err)
		}
	}()
	tmp, err := os.MkdirTemp(o.Scratch, "history-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	data := filepath.Join(tmp, "data")
	if err := os.CopyFS(data, os.DirFS(dir)); err != nil {
		return err
	}
	boot := [16]byte{1} // of no kernel: what was not flushed may be gone
	if o.At != AtPowerCut {
		if boot, err = fsync.BootID(dir); err != nil {
			return err
		}
	}
	s, err := wal.OpenStore(fsync.OS(), data, wal.Options{
		Flusher: fsync.NewFlusher(fsync.Options{Strategy: fsync.Files}), Boot: boot,
	})
	if err != nil {
		return err
	}
	groups, err := s.Groups()
	for _, g := range groups {
		if err == nil && g != controlGroup {
			err = dumpGroup(s, g, o, note)
		}
	}
	return errors.Join(err, s.Abandon())
}

// diskGroup is one group that is being dumped.
type diskGroup struct {
	log   *wal.Log
	g     segment.GroupID
	o     DiskOptions
	state *machine.State
	lines []Event
}

func dumpGroup(s *wal.Store, g segment.GroupID, o DiskOptions, note func(Event)) error {
	log, err := s.OpenLog(g)
	if err != nil {
		return fmt.Errorf("group %d: %w", uint64(g), err)
	}
	d := &diskGroup{log: log, g: g, o: o, state: new(machine.State)}
	if err := errors.Join(d.base(), d.entries()); err != nil {
		return fmt.Errorf("group %d: %w", uint64(g), err)
	}
	r := log.Recovered()
	d.lines = append(d.lines, &DumpEnd{
		Node: o.Node, Group: uint64(g), Last: uint64(r.Last.Index), LastTerm: uint64(r.Last.Term), Commit: uint64(r.Commit),
		Next: d.state.Next(), State: DigestOf(d.state.Snapshot()),
	})
	for _, e := range d.lines {
		note(e)
	}
	return nil
}

// base reads the snapshot that the log goes on from.
func (d *diskGroup) base() error {
	e := &Dump{Node: d.o.Node, Group: uint64(d.g), At: d.o.At, Taken: d.o.Taken, Quiet: d.o.Quiet}
	d.lines = append(d.lines, e)
	r, err := d.log.OpenSnapshot()
	if errors.Is(err, wal.ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	var in restoring
	known, err := raftstore.ReadMachine(r, &in)
	err = errors.Join(err, r.Close())
	if err == nil && known {
		d.state, err = in.Finish()
	}
	if err != nil {
		return err
	}
	e.Base, e.Next = uint64(d.log.Recovered().Snapshot.Index), d.state.Next()
	for _, m := range d.state.View().Peek(0, int(d.state.Next())) {
		if n := len(e.Held); n > 0 && e.Held[n-1].Offset+e.Held[n-1].Count == m.Offset {
			e.Held[n-1].Count++
		} else {
			e.Held = append(e.Held, Run{m.Offset, 1})
		}
	}
	return nil
}

type restoring struct{ machine.Restorer }

// Write implements io.Writer.
func (r *restoring) Write(b []byte) (int, error) { return len(b), r.Restorer.Write(b) }

// entries reads the log behind the snapshot.
func (d *diskGroup) entries() error {
	next := max(d.log.First(), d.log.Recovered().Snapshot.Index+1)
	for last := d.log.Last().Index; next <= last; {
		list, err := d.log.Entries(next, last+1, 1<<20)
		if err != nil {
			return err
		}
		for i := range list {
			if err := d.entry(&list[i]); err != nil {
				return fmt.Errorf("entry %d: %w", uint64(list[i].Index), err)
			}
		}
		next += segment.Index(len(list))
	}
	return nil
}

func (d *diskGroup) entry(e *segment.Entry) error {
	line := &Entry{
		Node: d.o.Node, Group: uint64(d.g), Index: uint64(e.Index), Term: uint64(e.Term),
		Sum: DigestOf(append([]byte{byte(e.Type)}, e.Data...)),
	}
	d.lines = append(d.lines, line)
	if e.Type != segment.EntryNormal {
		return nil
	}
	items, err := raftstore.ReadItems(e.Data)
	if err != nil {
		return err
	}
	for i := range items {
		if err := d.item(line, &items[i]); err != nil {
			return err
		}
	}
	return nil
}

// item applies one command, and notes the message that it adds.
func (d *diskGroup) item(line *Entry, it *raftstore.Item) error {
	c, err := machine.Decode(it.Command)
	if err != nil {
		return err
	}
	if it.HasBody {
		c.Body = machine.Ref{Term: uint64(it.Body.Ref.Term), Seq: it.Body.Ref.Seq}
		c.Length = it.Body.Length
		if it.Body.Large {
			c.Large = &machine.Large{Length: it.Body.Length, Digest: it.Body.Digest}
		}
	}
	offset := d.state.Next()
	d.state.Apply(c, nil)
	if d.state.Next() == offset {
		return nil
	}
	s := Stored{offset, c.Body.Term, Message{Length: it.Body.Length, Digest: Digest(it.Body.Digest)}}
	if c.Kind == machine.PublishFrom {
		s.Seq = c.Seq
		s.Producer = d.state.ProducerIn(c.Slot)
	}
	line.Adds = append(line.Adds, s)
	if !d.whole(it.Body) {
		line.Missing = append(line.Missing, offset)
	}
	return nil
}

// whole says that a body, or a tombstone for it, is there.
func (d *diskGroup) whole(c segment.Commit) bool {
	r, err := d.log.OpenBody(c)
	if errors.Is(err, wal.ErrAbsent) {
		ok, err := d.log.Holds(c)
		return ok && err == nil
	}
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close()) == nil
}
