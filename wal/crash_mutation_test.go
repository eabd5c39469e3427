package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
)

// lie makes a flush report success and do nothing where it follows a given call: that is how one
// single flush of a directory is told from the others.
type lie struct {
	fsync.FS
	skip func(before, dir string) bool
	last string // the last call that changed the disk
}

func (l *lie) note(op, name string) { l.last = op + " " + filepath.Base(name) }

func (l *lie) Create(name string) (fsync.File, error) {
	l.note("create", name)
	f, err := l.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return &lieFile{f, l, name}, nil
}

func (l *lie) Open(name string, access fsync.Access) (fsync.File, error) {
	f, err := l.FS.Open(name, access)
	if err != nil {
		return nil, err
	}
	return &lieFile{f, l, name}, nil
}

func (l *lie) OpenDir(name string) (fsync.Dir, error) {
	d, err := l.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &lieDir{d, l, name}, nil
}

func (l *lie) Rename(oldName, newName string) error {
	l.note("rename", newName)
	return l.FS.Rename(oldName, newName)
}

type lieFile struct {
	fsync.File
	l    *lie
	name string
}

func (f *lieFile) Sync() error {
	f.l.note("fdatasync", f.name)
	return f.File.Sync()
}

type lieDir struct {
	fsync.Dir
	l    *lie
	name string
}

func (d *lieDir) Sync() error {
	if d.l.skip(d.l.last, d.name) {
		return nil
	}
	return d.Dir.Sync()
}

// skipDir skips the flush of the group's directory behind a call that matches.
func skipDir(pattern string) func(fsync.FS) fsync.FS {
	return func(fs fsync.FS) fsync.FS {
		return &lie{FS: fs, skip: func(before, dir string) bool {
			ok, err := filepath.Match(pattern, before)
			if err != nil {
				panic(err)
			}
			return ok && strings.Contains(dir, "groups/")
		}}
	}
}

// skipFile skips every flush of files that match.
func skipFile(pattern string) func(fsync.FS) fsync.FS {
	return func(fs fsync.FS) fsync.FS {
		f := faultfs.New(fs)
		f.IgnoreSync(pattern)
		return f
	}
}

// mutation is one rule switched off.
type mutation struct {
	name     string
	off      *bool
	lies     func(fsync.FS) fsync.FS
	strategy fsync.Strategy // that the lie works with; Auto for any
	hint     uint64         // a random run that notices it; tried first
	fault    int            // a short write, of the script with seed 1, that notices it; tried first
}

var mutations = []mutation{
	{name: "directory not flushed before the manifest names a segment", off: &off.createDirFlush},
	{name: "segment not flushed before the manifest names it", off: &off.createFileFlush},
	{name: "manifest names a segment before it stands", off: &off.manifestLast},
	{name: "log goes on in place behind a cut", off: &off.cutNewSegment, hint: 75},
	{name: "cut not recorded", off: &off.cutManifest},
	{name: "sealed before it is flushed", off: &off.sealFlush},
	{name: "unlinked before the manifest says so", off: &off.trimManifest},
	{name: "promise of the batch's own start", off: &off.promiseNotOwn},
	{name: "no truncation record", off: &off.truncateRecord},
	{name: "flush of a truncated entry counts", off: &off.flushedVoid, hint: 35},
	{name: "mark advanced before its flush", off: &off.advanceEarly},
	{name: "large body not flushed with its entry", off: &off.largeFlush, strategy: fsync.Files},
	{name: "directory entry of a large body not flushed", off: &off.largeDirFlush, strategy: fsync.Files},
	{name: "large body of the tail not verified", off: &off.largeVerify},
	{name: "dropped before the copies are flushed", off: &off.copyFlush},
	{name: "term not raised to the last entry's", off: &off.termFromLog},
	{name: "short write not cleared", off: &off.zeroAfterShort, fault: 86},
	{name: "manifest's rename not flushed", lies: skipDir("rename manifest"), strategy: fsync.Files},
	{name: "snapshot's rename not flushed", lies: skipDir("rename *.snap"), strategy: fsync.Files},
	{name: "segment's creation not flushed", lies: skipDir("fdatasync *.seg"), strategy: fsync.Files},
	{name: "segments not flushed", lies: skipFile("*.seg"), strategy: fsync.Files},
	{name: "manifest not flushed", lies: skipFile("manifest.tmp"), strategy: fsync.Files},
	{name: "hard state not flushed", lies: skipFile("hardstate"), strategy: fsync.Files},
	{name: "snapshot not flushed before it is named", lies: skipFile("*.snap.tmp"), strategy: fsync.Files},
	{name: "body files not flushed", lies: skipFile("*.body"), strategy: fsync.Files},
}

// TestCrashSuiteFindsEachRule switches each rule off and asks the suite to notice.
func TestCrashSuiteFindsEachRule(t *testing.T) {
	hurry(t)
	smallSegments(t, 16<<10)
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			if m.off != nil {
				*m.off = true
				defer func() { *m.off = false }()
			}
			how := m.detect()
			if how == "" {
				t.Fatal("the suite does not notice")
			}
			t.Log(how)
		})
	}
}

// TestRulesAreOn proves that nothing is switched off by default, and that every switch has a mutation
// or a directed test here.
func TestRulesAreOn(t *testing.T) {
	v := reflect.ValueOf(&off).Elem()
	directed := map[string]string{
		"promise": "TestDamageBelowPromise", "reread": "TestLostWriteBack", "trimFlushedVoids": "TestTrimWaitsForTruncation",
		"copyVerify": "TestCompactDamage", "restoreFirst": "TestBringUp", "passOver": "TestDamagedBodyIsAlone",
		"recoverFlush": "TestReopenFlushesTail", "recoverDirFlush": "TestReopenFlushesDirectory",
	}
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).Bool() {
			t.Errorf("rule %s is off", name)
		}
		field := v.Field(i).Addr().UnsafePointer()
		found := directed[name] != ""
		for _, m := range mutations {
			found = found || m.off != nil && reflect.ValueOf(m.off).UnsafePointer() == field
		}
		if !found {
			t.Errorf("rule %s has no mutation", name)
		}
	}
}

// detect runs the suites until one fails and says how it noticed, "" if none did.
func (m mutation) detect() (how string) {
	const randomRuns = 1500
	if m.hint > 0 {
		if err := guarded(func() error { _, err := m.random(m.hint); return err }); err != nil {
			return fmt.Sprintf("random run %d: %v", m.hint, err)
		}
	}
	if m.fault > 0 {
		if err := guarded(func() error { return m.faults(1, m.fault, m.fault+1) }); err != nil {
			return fmt.Sprint(err)
		}
	}
	for seed := uint64(1); seed <= 2; seed++ {
		if err := guarded(func() error { return m.everywhere(seed) }); err != nil {
			return fmt.Sprintf("script, seed %d: %v", seed, err)
		}
		if err := guarded(func() error { return m.faults(seed, 1, 120) }); err != nil {
			return fmt.Sprintf("fault, seed %d: %v", seed, err)
		}
	}
	for seed := uint64(1); seed <= randomRuns; seed++ {
		if err := guarded(func() error { _, err := m.random(seed); return err }); err != nil {
			return fmt.Sprintf("random run %d: %v", seed, err)
		}
	}
	return ""
}

// guarded turns a panic into an error: a run on a broken rule may end in one.
func guarded(run func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return run()
}

func (m mutation) everywhere(seed uint64) error {
	w := newWorld(memfs.New(), lifeOptions{seed: seed, strategy: m.strategy, segBytes: 16 << 10})
	w.lies = m.lies
	s := &suite{w: w, rng: newRand(seed), second: 40}
	var first error
	s.fail = func(err error) {
		if first == nil {
			first, s.stop = err, true
		}
	}
	w.fs = &tapFS{inner: w.under(w.mem), tap: func(op string, mids []mid) {
		s.fork(op, mids)
		if s.stop {
			panic(errStop) // the rest of the script would cost time and say nothing new
		}
	}}
	err := guarded(func() error { return runScript(w, script) })
	if first == nil && err != nil {
		return err
	}
	return first
}

var errStop = errors.New("stop")

// faults lets writes [lo, hi) of the script be cut short.
func (m mutation) faults(seed uint64, lo, hi int) error {
	if m.lies != nil {
		return nil
	}
	for n := lo; n < hi; n++ {
		for _, short := range []int{300, 5000} {
			kind := faultKind{"short write", errNoSpace, short}
			if _, err := faultRun(seed, kind, n, true); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m mutation) random(seed uint64) (string, error) { return randomRun(seed, m.strategy, m.lies) }
