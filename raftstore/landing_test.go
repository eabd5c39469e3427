package raftstore

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"weida/segment"
	"weida/wal"
)

// landingRig is a landing over a real log, and what came out of it.
type landingRig struct {
	*landing
	t    *testing.T
	rig  *rig
	came []parcel
	lost int // streams of bodies that came to nothing
	full bool
}

func newLandingRig(t *testing.T) *landingRig {
	r, log, _ := fetchLog(t)
	l := &landingRig{t: t, rig: r}
	d := &dock{bodiesMax: dockBodies, snapshotsMax: dockSnapshots}
	l.landing = &landing{log: log, self: 2, dock: d, give: func(p parcel) bool {
		if l.full {
			return false
		}
		if p.kind == parcelLost {
			l.lost++
		} else {
			l.came = append(l.came, p)
		}
		return true
	}}
	return l
}

// leftovers are files of bodies and snapshots that are not finished or not wanted.
func (l *landingRig) leftovers() (list []string) {
	for _, f := range l.rig.disk.Files() {
		named := strings.HasSuffix(f, "0002-0000000000000006.body")
		if strings.HasSuffix(f, ".body") && !named || strings.HasSuffix(f, ".tmp") {
			list = append(list, f)
		}
	}
	return list
}

func (l *landingRig) clean() {
	l.t.Helper()
	if list := l.leftovers(); len(list) > 0 {
		l.t.Fatalf("left behind: %v", list)
	}
	if l.dock.bodies+l.dock.snapshots != 0 || len(l.bodies) != 0 || l.snapshot != nil {
		l.t.Fatalf("dock %+v, %d bodies", l.dock, len(l.bodies))
	}
}

func stream(content []byte) []byte {
	sum := segment.DigestOf(content)
	return append(bytes.Clone(content), sum[:]...)
}

// bodyHead is the head of a stream with body 3.1 of n bytes.
func bodyHead(n int) *streamHead {
	return &streamHead{kind: bodyStream, group: 1, from: 1, to: 2, ref: bref(3, 1), length: int64(n)}
}

func TestLandingBody(t *testing.T) {
	l := newLandingRig(t)
	const n = 200_000
	body := fill(bref(3, 1), n)
	whole := stream(body)
	// Cut at every piece, and inside: nothing stays, and the same ref can come again.
	for at := 0; at < len(whole); at += pieceBytes / 2 {
		for _, end := range []error{nil, errNet} {
			r := io.Reader(bytes.NewReader(whole[:at]))
			if end != nil {
				r = io.MultiReader(r, errReader{end})
			}
			if err := l.receive(1, bodyHead(n), r); !errors.Is(err, errCut) && !errors.Is(err, errNet) {
				t.Fatalf("cut at %d: %v", at, err)
			}
			l.clean()
		}
	}
	bad := bytes.Clone(whole)
	bad[1000] ^= 1
	if err := l.receive(1, bodyHead(n), bytes.NewReader(bad)); !errors.Is(err, errStreamDigest) {
		t.Fatalf("changed: %v", err)
	}
	l.clean()
	if len(l.came) != 0 || l.lost == 0 {
		t.Fatal("something came that was not whole")
	}
	other := bodyHead(n)
	other.to = 3
	if err := l.receive(1, other, bytes.NewReader(whole)); !errors.Is(err, errNotHere) {
		t.Fatalf("for another replica: %v", err)
	}
	l.full = true
	if err := l.receive(1, bodyHead(n), bytes.NewReader(whole)); !errors.Is(err, errNoLanding) {
		t.Fatalf("the replica has ended: %v", err)
	}
	l.clean()
	l.full = false
	if err := l.receive(1, bodyHead(n), bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	f := l.came[0].file
	if f.Ref() != bref(3, 1) || f.Digest() != segment.DigestOf(body) {
		t.Fatalf("came %+v", f)
	}
	// A second copy is refused, and does not touch the first.
	if err := l.receive(1, bodyHead(n), bytes.NewReader(whole)); err == nil {
		t.Fatal("received twice")
	}
	c := segment.Commit{Ref: f.Ref(), Length: n, Digest: f.Digest(), Large: true}
	a := &wal.Append{Entries: []segment.Entry{*entryOf(2, 3, c)}, Large: []*wal.BodyFile{f}}
	if err := l.log.Append(a); err != nil {
		t.Fatal(err)
	}
	r, err := l.log.OpenBody(c)
	if err != nil {
		t.Fatal(err)
	}
	var got sink
	if _, err := r.WriteTo(&got); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// A ref is never received twice at a time, and a replica that stops leaves nothing although a read is stuck.
func TestLandingGivesUp(t *testing.T) {
	for _, how := range []string{"close", "term"} {
		l := newLandingRig(t)
		const n = 200_000
		whole := stream(fill(bref(3, 1), n))
		done := false
		r := io.MultiReader(bytes.NewReader(whole[:70_000]), readerFunc(func(p []byte) (int, error) {
			if done {
				return copy(p, whole[70_000:]), nil
			}
			done = true
			if err := l.receive(1, bodyHead(n), bytes.NewReader(whole)); !errors.Is(err, errOnItsWay) {
				t.Fatalf("received twice at a time: %v", err)
			}
			if !l.receiving(bref(3, 1)) {
				t.Fatal("not receiving")
			}
			if len(l.leftovers()) != 1 {
				t.Fatal("no file under way")
			}
			var err error
			if how == "close" {
				err = l.close()
			} else {
				if err = l.dropBodies(3); err != nil || len(l.leftovers()) != 1 {
					t.Fatalf("a body of the present term was dropped, %v", err)
				}
				err = l.dropBodies(4)
			}
			if err != nil || len(l.leftovers()) != 0 {
				t.Fatalf("%v, left %v", err, l.leftovers())
			}
			return copy(p, whole[70_000:]), nil
		}))
		if err := l.receive(1, bodyHead(n), r); !errors.Is(err, errNoLanding) {
			t.Fatalf("received after it was given up: %v", err)
		}
		l.clean()
		err := l.receive(1, bodyHead(n), bytes.NewReader(whole))
		if how == "close" {
			if !errors.Is(err, errNoLanding) {
				t.Fatalf("received after close: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := l.came[0].file.Abort(); err != nil {
			t.Fatal(err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestLandingDock(t *testing.T) {
	l := newLandingRig(t)
	l.dock.bodiesMax = 0
	if err := l.receive(1, bodyHead(100_000), bytes.NewReader(nil)); !errors.Is(err, errDockFull) {
		t.Fatalf("no bound: %v", err)
	}
	l.dock.bodiesMax = 1
	l.rig.disk.SetCapacity(l.rig.disk.Used() + 50_000)
	whole := stream(fill(bref(3, 1), 200_000))
	if err := l.receive(1, bodyHead(200_000), bytes.NewReader(whole)); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("full disk: %v", err)
	}
	l.clean()
	l.rig.disk.SetCapacity(0)
}

// A snapshot's stream, cut at every place, leaves nothing and harms nothing; the whole one says what it needs.
func TestLandingSnapshot(t *testing.T) {
	l := newLandingRig(t)
	head, src := sampleHead(), sampleHolder()
	src.frozen = frozen(bytes.Repeat([]byte("machine"), 30_000))
	content := encodeSnapshot(t, head, src)
	whole := stream(content)
	h := &streamHead{
		kind: snapshotStream, group: 1, from: 1, to: 2, term: 4, mark: wal.Mark{Term: 3, Index: 77},
		length: int64(len(content)),
	}
	for at := 0; at < len(whole); at += 1 + at/10 {
		if err := l.receive(1, h, bytes.NewReader(whole[:at])); !errors.Is(err, errCut) {
			t.Fatalf("cut at %d: %v", at, err)
		}
		l.clean()
		bad := bytes.Clone(whole)
		bad[at] ^= 4
		err := l.receive(1, h, bytes.NewReader(bad))
		if !errors.Is(err, errStreamDigest) && !errors.Is(err, errSnapshotFile) {
			t.Fatalf("changed at %d: %v", at, err)
		}
		l.clean()
	}
	if !l.ownBegins() {
		t.Fatal("no snapshot of its own although none arrives")
	}
	if err := l.receive(1, h, bytes.NewReader(whole)); !errors.Is(err, errNoLanding) {
		t.Fatalf("beside one of its own: %v", err)
	}
	l.ownEnds()
	if err := l.receive(1, h, bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	if l.ownBegins() {
		t.Fatal("a snapshot of its own beside one that arrives")
	}
	s := l.came[0].snapshot
	if s.mark != h.mark || s.sender != 1 || s.term != 4 || len(s.runs) != 3 || len(s.head.Members) != 5 {
		t.Fatalf("came %+v", s)
	}
	if _, err := l.log.OpenSnapshot(); !errors.Is(err, wal.ErrAbsent) {
		t.Fatalf("it counts before it is committed: %v", err)
	}
	if err := s.writer.Abort(); err != nil {
		t.Fatal(err)
	}
	if err := l.receive(1, h, bytes.NewReader(whole)); !errors.Is(err, errNoLanding) {
		t.Fatalf("two snapshots at a time: %v", err)
	}
	l.leave()
	l.clean()
}

// What peers can send is bounded before the shard looks at it: frames, and words of snapshots that are known here.
func TestParcelsAreBounded(t *testing.T) {
	for _, kind := range []parcelKind{parcelFrame, parcelLost, parcelKnown} {
		var b parcels
		for range parcelFramesMax {
			if taken, _ := b.put(parcel{kind: kind}); !taken {
				t.Fatalf("kind %d: refused too early", kind)
			}
		}
		if taken, _ := b.put(parcel{kind: kind}); taken {
			t.Errorf("kind %d is not bounded", kind)
		}
		n := len(b.take(nil))
		if taken, _ := b.put(parcel{kind: kind}); n != parcelFramesMax || !taken {
			t.Errorf("kind %d: %d taken, and no room after it", kind, n)
		}
	}
}
