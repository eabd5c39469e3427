package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
)

const testDir = "/node/data/groups/7"

// provesRule runs a scenario with a rule on, where it must succeed, and off, where it must not.
func provesRule(t *testing.T, rule *bool, scenario func() error) {
	t.Helper()
	if err := guarded(scenario); err != nil {
		t.Fatal(err)
	}
	*rule = true
	defer func() { *rule = false }()
	err := guarded(scenario)
	if err == nil {
		t.Fatal("the scenario goes well without the rule")
	}
	t.Logf("without the rule: %v", err)
}

// appendRange appends entries [lo, hi) of the term with a body each.
func (l *life) appendRange(lo, hi segment.Index, term segment.Term) error {
	for i := lo; i < hi; i++ {
		if err := l.append(oneEntry(i, term, uint64(i), 300)); err != nil {
			return err
		}
	}
	return nil
}

func openDisk(fs *memfs.FS) (*life, error) {
	return openLife(fs, lifeOptions{boot: fs.BootID(), segBytes: 16 << 10})
}

// A log whose last stop was not in order is flushed when it is opened again, before what it holds
// counts as flushed.
func TestReopenFlushesTail(t *testing.T) {
	provesRule(t, &off.recoverFlush, func() error {
		mem := memfs.New()
		fault := faultfs.New(mem)
		l, err := openLife(fault, lifeOptions{boot: mem.BootID()})
		if err != nil {
			return err
		}
		if err := l.appendRange(1, 10, 1); err != nil {
			return err
		}
		fault.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: hardStateName}, 1, 1, syscall.EIO)
		if err := l.log.SetHardState(HardState{Term: 2}); err == nil {
			return errors.New("a failed hard state was accepted")
		}
		if err := l.log.Close(); err == nil {
			return errors.New("a poisoned log was closed in order")
		}
		again, err := l.store.OpenLog(testGroup)
		if err != nil {
			return err
		}
		flushed := again.Flushed()
		mem.PowerCut(memfs.KeepNone, nil)
		if l, err = openDisk(mem); err != nil {
			return err
		}
		if flushed.Index != 9 || l.log.Last() != flushed {
			return fmt.Errorf("%+v was flushed, %+v is there", flushed, l.log.Last())
		}
		return nil
	})
}

// A manifest that was renamed and not flushed when the process died is flushed before anything rests on
// it. Opening the store flushes the whole file system, which would hide that, so it is left out here.
func TestReopenFlushesDirectory(t *testing.T) {
	live := func(die int) (*memfs.FS, *faultfs.FS) {
		mem := memfs.New()
		fault := faultfs.New(mem)
		fault.DieAfter(die)
		l, err := openLife(fault, lifeOptions{boot: mem.BootID()})
		must(t, err)
		if err := l.append(oneEntry(1, 1, 1, 10)); (err != nil) != (die > 0) {
			t.Fatal(err)
		}
		return mem, fault
	}
	renamed := 0
	_, fault := live(0)
	for _, c := range fault.Trace() {
		if c.Op == faultfs.OpRename && c.To == filepath.Join(testDir, manifestName) {
			renamed = c.N
		}
	}
	provesRule(t, &off.recoverDirFlush, func() error {
		mem, _ := live(renamed)
		mem.Kill()
		fault := faultfs.New(mem)
		fault.IgnoreSyncFS()
		l, err := openLife(fault, lifeOptions{boot: mem.BootID(), strategy: fsync.Files})
		if err != nil {
			return err
		}
		if err := l.appendRange(1, 5, 1); err != nil {
			return err
		}
		if err := l.flush(); err != nil {
			return err
		}
		flushed := l.log.Flushed()
		mem.PowerCut(memfs.KeepNone, nil)
		if l, err = openDisk(mem); err != nil {
			return err
		}
		if flushed.Index != 4 || l.log.Last() != flushed {
			return fmt.Errorf("%+v was flushed, %+v is there", flushed, l.log.Last())
		}
		return nil
	})
}

// F3: after a failed write-back the kernel shows what the disk does not have. What is opened again is
// what the disk has, and only that counts as flushed.
func TestLostWriteBack(t *testing.T) {
	provesRule(t, &off.reread, func() error {
		mem := memfs.New()
		l, err := openDisk(mem)
		if err != nil {
			return err
		}
		if err := errors.Join(l.appendRange(1, 5, 1), l.flush()); err != nil {
			return err
		}
		if err := l.appendRange(5, 12, 1); err != nil {
			return err
		}
		path := filepath.Join(testDir, segmentName(1))
		if err := mem.FailWriteback(path); err != nil {
			return err
		}
		if err := l.flush(); !errors.Is(err, fsync.ErrPoisoned) {
			return fmt.Errorf("flush: %w", err)
		}
		if err := l.log.Append(oneEntry(12, 1, 12, 1)); !errors.Is(err, fsync.ErrPoisoned) {
			return fmt.Errorf("append to a poisoned log: %w", err)
		}
		if got := l.log.Flushed().Index; got != 4 {
			return fmt.Errorf("flushed %d after the failure", got)
		}
		mem.Kill()
		if l, err = openDisk(mem); errors.Is(err, syscall.EIO) {
			mem.Kill() // the file system told of it; once
			l, err = openDisk(mem)
		}
		if err != nil {
			return err
		}
		flushed := l.log.Flushed()
		mem.PowerCut(memfs.KeepAll, nil)
		if l, err = openDisk(mem); err != nil {
			return err
		}
		if flushed.Index < 4 || l.log.Last() != flushed {
			return fmt.Errorf("%+v counted as flushed, %+v is there", flushed, l.log.Last())
		}
		return nil
	})
}

// A dropped prefix must not be explained by a truncation that a power cut may take.
func TestTrimWaitsForTruncation(t *testing.T) {
	smallSegments(t, 4<<10)
	provesRule(t, &off.trimFlushedVoids, func() error {
		mem := memfs.New()
		open := func() (*life, error) {
			return openLife(mem, lifeOptions{boot: mem.BootID(), segBytes: 4 << 10})
		}
		l, err := open()
		if err != nil {
			return err
		}
		for i := segment.Index(1); i < 60; i++ {
			data := segment.AppendData(nil, nil, payload(segment.BodyRef{}, 200))
			if err := l.append(&Append{Entries: []segment.Entry{{Index: i, Term: 1, Data: data}}}); err != nil {
				return err
			}
		}
		if err := errors.Join(l.flush(), l.jobs()); err != nil {
			return err
		}
		w, err := l.log.NewSnapshot(Mark{2, 5}) // voids all, with the next append
		if err != nil {
			return err
		}
		if err := w.Commit(); err != nil {
			return err
		}
		l.log.Trim()
		if err := l.jobs(); err != nil {
			return err
		}
		mem.PowerCut(memfs.KeepNone, nil)
		if l, err = open(); err != nil {
			return err
		}
		if got := l.log.Last(); got != (Mark{2, 5}) {
			return fmt.Errorf("the log ends with %+v", got)
		}
		return l.append(oneEntry(6, 3, 1, 10))
	})
}

// A snapshot that contradicts a log whose beginning was voided before replaces it all the same.
func TestSnapshotContradictsLogWithGap(t *testing.T) {
	mem := memfs.New()
	l := mustLife(t, mem, lifeOptions{})
	install := func(m Mark) {
		t.Helper()
		w, err := l.log.NewSnapshot(m)
		must(t, err)
		must(t, w.Commit())
		must(t, l.log.Advance())
	}
	install(Mark{2, 4})
	must(t, l.appendRange(5, 19, 5))
	must(t, l.flush())
	install(Mark{6, 18})
	mem.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, mem, lifeOptions{})
	if l.log.Last() != (Mark{6, 18}) {
		t.Fatalf("the log ends with %+v", l.log.Last())
	}
	must(t, l.appendRange(19, 22, 7))
	must(t, l.flush())
	mem.PowerCut(memfs.KeepNone, nil)
	l = mustLife(t, mem, lifeOptions{})
	if l.log.Last() != (Mark{7, 21}) || l.log.First() != 19 {
		t.Fatalf("recovered %+v", l.log.Recovered())
	}
	checkEntries(t, l.log)
}

// A segment is sealed only when the large bodies that its entries name are flushed too: its sealing is
// a promise.
func TestSealWaitsForLargeBody(t *testing.T) {
	smallSegments(t, 4<<10)
	provesRule(t, &off.sealFlush, func() error {
		mem := memfs.New()
		open := func() (*life, error) {
			return openLife(mem, lifeOptions{boot: mem.BootID(), segBytes: 4 << 10})
		}
		l, err := open()
		if err != nil {
			return err
		}
		ref := segment.BodyRef{Term: 1, Seq: 1000}
		c := commitOf(ref, 70_000, true)
		f, err := l.log.NewBody(ref, c.Length)
		if err != nil {
			return err
		}
		if _, err := f.Write(payload(ref, 70_000)); err != nil {
			return err
		}
		if err := f.Finish(c.Digest); err != nil {
			return err
		}
		e := segment.Entry{Index: 1, Term: 1, Data: segment.AppendData(nil, []segment.Commit{c}, nil)}
		if err := l.append(&Append{Large: []*BodyFile{f}, Entries: []segment.Entry{e}}); err != nil {
			return err
		}
		if err := errors.Join(l.appendRange(2, 20, 1), l.jobs()); err != nil {
			return err
		}
		mem.PowerCut(memfs.KeepNone, nil)
		_, err = open()
		return err
	})
}
