package raftstore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"testing"

	"weida/segment"
)

// bodyHolder is a Source with bodies.
type bodyHolder struct {
	frozen
	runs  []bodyRun
	large []segment.Commit
}

func (h bodyHolder) Bodies(yield func(first BodyRef, n uint64) bool) {
	for _, r := range h.runs {
		if !yield(r.first, r.n) {
			return
		}
	}
}

func (h bodyHolder) LargeBodies(yield func(segment.Commit) bool) {
	for _, c := range h.large {
		if !yield(c) {
			return
		}
	}
}

func sampleHead() snapshotHead {
	return snapshotHead{
		Conf: confState{
			Voters: []ReplicaID{1, 2, 900}, Learners: []ReplicaID{7}, VotersOutgoing: []ReplicaID{1, 2, 3},
			LearnersNext: []ReplicaID{3}, AutoLeave: true,
		},
		Members: []Member{{1, 10, false}, {2, 20, false}, {3, 30, false}, {7, 40, true}, {900, 50, false}},
	}
}

func sampleHolder() bodyHolder {
	return bodyHolder{
		frozen("the machine's own bytes"),
		[]bodyRun{{first: bref(1, 4), n: 3}, {first: bref(2, 1), n: 1 << 40}},
		[]segment.Commit{{Ref: bref(2, 500), Length: 1 << 30, Digest: Digest{9, 8}, Large: true}},
	}
}

func encodeSnapshot(t testing.TB, h snapshotHead, src Source) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := writeSnapshot(&b, &h, src)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("%d bytes of %d, %v", n, b.Len(), err)
	}
	return b.Bytes()
}

func TestSnapshotFile(t *testing.T) {
	head, src := sampleHead(), sampleHolder()
	b := encodeSnapshot(t, head, src)
	f, err := readSnapshot(bytes.NewReader(b))
	if err != nil || !reflect.DeepEqual(f.head, head) {
		t.Fatalf("%+v, %v", f.head, err)
	}
	want := append([]bodyRun{}, src.runs...)
	want = append(want, bodyRun{first: src.large[0].Ref, n: 1, large: src.large[0]})
	for _, w := range want {
		if run, ok, err := f.nextRun(); run != w || !ok || err != nil {
			t.Fatalf("run %+v %v %v, want %+v", run, ok, err, w)
		}
	}
	for range 2 {
		if _, ok, err := f.nextRun(); ok || err != nil {
			t.Fatal("more runs than were written", err)
		}
	}
	for _, read := range []bool{true, false} { // runs read, or passed over
		if !read {
			f, _ = readSnapshot(bytes.NewReader(b))
		}
		var machine sink
		if _, err := f.WriteTo(&machine); err != nil || string(machine) != string(src.frozen) {
			t.Fatalf("machine %q, %v", machine, err)
		}
	}
	empty := snapshotHead{Empty: true}
	f, err = readSnapshot(bytes.NewReader(encodeSnapshot(t, empty, nil)))
	if err != nil || !f.head.Empty {
		t.Fatalf("%+v %v", f, err)
	}
	f, err = readSnapshot(bytes.NewReader(encodeSnapshot(t, head, frozen("no bodies"))))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := f.nextRun(); ok || err != nil {
		t.Fatal("runs of a machine without bodies")
	}
}

// Every prefix that ends before the machine's bytes is refused, and so is what no build writes.
func TestSnapshotFileStrict(t *testing.T) {
	b := encodeSnapshot(t, sampleHead(), sampleHolder())
	for n := range len(b) - len(sampleHolder().frozen) {
		if err := readAll(b[:n]); !errors.Is(err, errSnapshotFile) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for _, change := range []func(*snapshotHead){
		func(h *snapshotHead) { h.Members[1].Replica = 1 },
		func(h *snapshotHead) { h.Members[1].Node = 0 },
		func(h *snapshotHead) { h.Conf.Learners[0] = 8 },
		func(h *snapshotHead) { h.Conf.Voters = make([]ReplicaID, configReplicasMax+1) },
	} {
		h := sampleHead()
		change(&h)
		if err := readAll(encodeSnapshot(t, h, frozen("x"))); !errors.Is(err, errSnapshotFile) {
			t.Fatalf("%+v: %v", h, err)
		}
	}
	for at, v := range map[int]byte{0: 'x', len(snapshotMagic): 2, len(snapshotMagic) + 1: 4} {
		bad := bytes.Clone(b)
		bad[at] = v
		if err := readAll(bad); !errors.Is(err, errSnapshotFile) {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
}

func readAll(b []byte) error {
	f, err := readSnapshot(bytes.NewReader(b))
	if err != nil {
		return err
	}
	_, err = f.WriteTo(io.Discard)
	return err
}

// The bytes of STORE.md, once and for all: a change of them needs another version.
func TestSnapshotFileGolden(t *testing.T) {
	const want = "77656964612f7273" + "01" + "02" + // magic, version, flags
		"03" + "01" + "02" + "8407" + "01" + "07" + "03" + "01" + "02" + "03" + "01" + "03" + // lists
		"05" + "01" + "0a" + "00" + "02" + "14" + "00" + "03" + "1e" + "00" + "07" + "28" + "01" + "8407" + "32" + "00" +
		"01" + "01" + "04" + "03" + "01" + "02" + "01" + "808080808020" + // runs
		"02" + "02" + "f403" + "8080808004" + "09080000000000000000000000000000" + "00" // a large body, the end
	got := encodeSnapshot(t, sampleHead(), sampleHolder())
	if hex.EncodeToString(got) != want+hex.EncodeToString(sampleHolder().frozen) {
		t.Fatalf("%x", got)
	}
}

func FuzzSnapshotFile(f *testing.F) {
	f.Add(encodeSnapshot(f, sampleHead(), sampleHolder()))
	f.Add(encodeSnapshot(f, snapshotHead{Empty: true}, nil))
	f.Add([]byte("weida/rs\x01\x01\x80\x80\x80\xc0\xc0\xc0\xc0\xc0\xc00")) // a number of more than 64 bits
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := readAll(b); err != nil && !errors.Is(err, errSnapshotFile) {
			t.Fatal(err)
		}
	})
}
