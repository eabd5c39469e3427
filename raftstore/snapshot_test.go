package raftstore

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"weida/fsync/memfs"
	"weida/segment"
)

// smallRig is a node with small segments that takes snapshots early.
func smallRig(t *testing.T) *rig {
	r := &rig{t: t, disk: memfs.New(), opts: HostOptions{Shards: 1, SnapshotBytes: 1 << 20}}
	r.wal.SegmentBytes = 512 << 10
	r.boot()
	return r
}

func snapRig(t *testing.T) (*rig, *kv) {
	r := smallRig(t)
	m := newKV(t, "a")
	r.open(1, m)
	return r, m
}

// churn writes n bodies of 64 KiB under few keys, so that most of what is written is settled.
func churn(r *rig, m *kv, n int) {
	body := strings.Repeat("x", segment.InlineMax)
	for i := range n {
		m.must(put(fmt.Sprint("k", i%4), body))
		r.settle()
	}
}

// A log whose bodies are settled does not grow without bound, and opens from its snapshot.
func TestSnapshotTrims(t *testing.T) {
	r, m := snapRig(t)
	m.must(put("pinned", "old but alive"))
	churn(r, m, 100) // 6.4 MiB
	m.must(del("pinned"))
	churn(r, m, 100)
	if r.told(SnapshotTaken) == 0 || r.told(SnapshotFailed) != 0 {
		t.Fatalf("events %+v", r.events)
	}
	st := m.group.Status()
	if st.Store.Segments > 8 || st.First == 1 {
		t.Fatalf("%d segments, first entry %d", st.Store.Segments, st.First)
	}
	m.complete()
	want, lines := m.lastI, strings.Join(m.applied, " ")
	r.kill()
	again := newKV(t, "a again")
	r.open(1, again)
	if again.lastI != want || strings.Join(again.applied, " ") != lines {
		t.Fatalf("entry %d after %d, or other lines", again.lastI, want)
	}
	if len(again.entries) == int(want) {
		t.Fatal("the whole log was replayed")
	}
	for _, k := range sortedKeys(again.state) {
		again.read(k)
	}
	churn(r, again, 50)
	if st := again.group.Status(); st.Store.Segments > 8 {
		t.Fatalf("%d segments in the second life", st.Store.Segments)
	}
	r.stop()
}

// A trim that a crash prevented is made up for at the next open.
func TestTrimAfterCrash(t *testing.T) {
	r, m := snapRig(t)
	body := strings.Repeat("x", segment.InlineMax)
	s := r.host.shards[0]
	for i := 0; r.told(SnapshotTaken) == 0; i++ {
		m.must(put(fmt.Sprint("k", i%4), body))
		for r.told(SnapshotTaken) == 0 {
			worked := s.round()
			if r.told(SnapshotTaken) > 0 {
				break // the trim was offered, and is not run
			}
			worked = r.host.pool.runInline() || worked
			if worked = r.fl.Step() || worked; !worked {
				break
			}
		}
	}
	before := m.group.Status()
	r.kill()
	again := newKV(t, "a again")
	r.open(1, again)
	r.settle()
	after := again.group.Status()
	if before.First != 1 || after.First == 1 || after.Store.Segments >= before.Store.Segments {
		t.Fatalf("from entry %d on in %d segments, before the crash %d in %d",
			after.First, after.Store.Segments, before.First, before.Store.Segments)
	}
	for _, k := range sortedKeys(again.state) {
		again.read(k)
	}
	r.stop()
}

// A body that the state holds is not trimmed, however old it is, also after a restart.
func TestLiveBodyPinsItsSegment(t *testing.T) {
	r, m := snapRig(t)
	m.must(put("pinned", "old but alive"))
	churn(r, m, 60)
	r.kill()
	again := newKV(t, "a again")
	r.open(1, again)
	churn(r, again, 60)
	if r.told(SnapshotTaken) == 0 {
		t.Fatalf("events %+v", r.events)
	}
	if again.read("pinned") != "old but alive" {
		t.Fatal("body differs")
	}
	r.stop()
}

// What a written entry settles is not forgotten before the entry is flushed.
func TestReleaseWaitsForSnapshot(t *testing.T) {
	r, m := snapRig(t)
	m.must(put("old", "precious"))
	churn(r, m, 30)
	m.must(del("old"))
	r.run() // written, not flushed
	if _, ok := m.state["old"]; ok {
		t.Fatal("not deleted")
	}
	r.powerCut(memfs.KeepNone, nil)
	again := newKV(t, "a again")
	r.open(1, again)
	if again.read("old") != "precious" {
		t.Fatal("the body went before the entry that settled it was flushed")
	}
	r.stop()
}

// plain hides everything a kv machine implements besides Machine.
type plain struct{ Machine }

// A machine that does not tell which bodies it holds is never snapshotted, so nothing is trimmed.
func TestNoSnapshotWithoutHolder(t *testing.T) {
	r, m := smallRig(t), newKV(t, "a")
	g, err := r.host.OpenOwner(1, plain{m}, OwnerOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	m.group = g
	churn(r, m, 60)
	if r.told(SnapshotTaken) != 0 {
		t.Fatalf("events %+v", r.events)
	}
	if st := g.Status(); st.First != 1 {
		t.Fatalf("first entry %d", st.First)
	}
	r.stop()
}

// failing is a machine whose snapshots can't be written.
type failing struct {
	*kv
	err error
}

type failingSource struct{ err error }

func (f failingSource) WriteTo(io.Writer) (int64, error) { return 0, f.err }

func (f failing) Snapshot() Source { return failingSource{f.err} }

// A failed snapshot costs nothing but the chance to trim, and frees the node's place for the next.
func TestSnapshotFails(t *testing.T) {
	r := smallRig(t)
	bad, good := newKV(t, "bad"), newKV(t, "good")
	g, err := r.host.OpenOwner(1, failing{bad, io.ErrShortWrite}, OwnerOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	bad.group = g
	r.open(2, good)
	churn(r, bad, 60)
	if r.told(SnapshotFailed) == 0 || r.told(SnapshotTaken) != 0 {
		t.Fatalf("events %+v", r.events)
	}
	churn(r, good, 60)
	if r.told(SnapshotTaken) == 0 {
		t.Fatalf("events %+v", r.events)
	}
	bad.complete()
	r.stop()
}

// Released large bodies make a snapshot worth while, and their files go.
func TestLargeBodiesGo(t *testing.T) {
	r, m := snapRig(t)
	body := []byte(strings.Repeat("x", 300<<10))
	for i := range 8 {
		w := writeBody(t, m.group, body)
		m.must(Item{Command: []byte(fmt.Sprint("pk:", i)), HasBody: true, Large: w})
		r.settle()
	}
	if n := bodyFiles(r); n > 5 {
		t.Fatalf("%d body files are left, one is alive", n)
	}
	if m.read("k") != string(body) {
		t.Fatal("body differs")
	}
	r.stop()
}
