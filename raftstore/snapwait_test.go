package raftstore

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
	"weida/wal"
)

// A snapshot that is ahead of the flushed log is not committed before the log has caught up: otherwise
// a power cut would leave a state whose entries are lost. Here the flush of the log's last segment hangs
// while every other flush goes through.
func TestSnapshotWaitsForTheLog(t *testing.T) {
	fs := faultfs.New(memfs.New())
	root, err := fs.OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	fl := fsync.NewFlusher(fsync.Options{Root: root, Strategy: fsync.Files, LateAfter: time.Millisecond})
	fl.Start()
	store, err := wal.OpenStore(fs, rigDir, wal.Options{Flusher: fl, Boot: segment.Boot{1}, SegmentBytes: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, fs: fs, fl: fl, store: store}
	event := func(e Event) { r.events = append(r.events, e) }
	r.host = NewHost(HostOptions{Store: store, Shards: 1, SnapshotBytes: 600 << 10, Event: event})
	m := newKV(t, "a")
	r.open(1, m)
	body := strings.Repeat("x", 50<<10)
	for m.group.Status().Store.Segments < 2 || m.now().Flushed < 11 {
		if m.now().Written < 11 { // 550 KiB: into the second segment
			m.must(put("k", body))
		} else {
			<-r.host.shards[0].signal
		}
		r.run()
	}
	if r.told(SnapshotTaken) != 0 {
		t.Fatal("too early for a snapshot")
	}
	gate := fs.Gate(faultfs.Match{Op: faultfs.OpSync, Path: filepath.Join(rigDir, "groups", "1", "00000002.seg")})
	m.must(put("k", body), put("k", body))
	r.run()
	<-gate.Entered()
	r.run()
	if m.now().Written != 12 || m.now().Flushed != 11 {
		t.Fatalf("marks %+v", m.now())
	}
	if r.told(SnapshotTaken) != 0 {
		t.Fatalf("events %+v with %d flushed", r.events, m.now().Flushed)
	}
	gate.Open()
	for r.told(SnapshotTaken) == 0 {
		<-r.host.shards[0].signal
		r.run()
	}
	if e := r.events[len(r.events)-1]; e.Kind != SnapshotTaken || e.Index != 12 {
		t.Fatalf("events %+v", r.events)
	}
	if err := errors.Join(r.host.Stop(), store.Close(), fl.Close()); err != nil {
		t.Fatal(err)
	}
}
