package broker

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/raftstore"
)

// The file names what was begun, across starts; what is over leaves it with the next write; one that is damaged or cut
// anywhere makes whatever could have been in it count as begun, and nothing that comes later, and is kept.
func TestBegunFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, begunFile)
	open := func() *begunSet {
		t.Helper()
		b, err := readBegun(fsync.OS(), dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	never := func(uint64, uint64) bool { return false }
	b := open()
	var adds sync.WaitGroup
	for i := range 20 {
		adds.Go(func() {
			if err := b.add(raftstore.GroupID(100+i), raftstore.ReplicaID(1000+i), never); err != nil {
				t.Error(err)
			}
		})
	}
	adds.Wait()
	if b = open(); !b.has(105, 1005, 5000) || b.has(105, 1006, 5000) || b.has(120, 1020, 5000) {
		t.Error("other replicas are in it than were begun")
	}
	if err := b.add(200, 2000, func(g, _ uint64) bool { return g < 110 }); err != nil {
		t.Fatal(err)
	}
	if b = open(); b.has(105, 1005, 5000) || !b.has(110, 1010, 5000) || !b.has(200, 2000, 5000) {
		t.Error("other replicas are in it than are not over")
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := [][]byte{append(bytes.Clone(whole), make([]byte, 16)...)}
	for n := range whole {
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1
		spoiled = append(spoiled, flipped, whole[:n])
	}
	for _, text := range spoiled {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		b := open()
		if !b.has(110, 1010, 5000) || !b.has(110, 5000, 5000) || b.has(110, 5001, 6000) {
			t.Fatalf("%x is taken for another list", text)
		}
		for _, name := range []string{path, path + ".damaged"} { // a crash now finds it damaged again, and not missing
			if kept, err := os.ReadFile(name); err != nil || !bytes.Equal(kept, text) {
				t.Fatalf("it is not kept: %x, %v", kept, err)
			}
		}
		if err := b.add(300, 7000, never); err != nil {
			t.Fatal(err)
		}
		if b := open(); !b.has(110, 5000, 9000) || b.has(110, 5001, 9000) || !b.has(300, 7000, 9000) {
			t.Fatal("the next start does not know what may have been in it")
		}
	}
}

// A replica whose making failed is tried again under its id, in the same life; one that was opened is not.
func TestBegunFails(t *testing.T) {
	dir := t.TempDir()
	files := faultfs.New(fsync.OS())
	b, err := readBegun(files, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	never := func(uint64, uint64) bool { return false }
	files.SetFull(true)
	if err := b.add(1, 10, never); !errors.Is(err, fsync.ErrDiskFull) {
		t.Fatal(err)
	}
	files.SetFull(false)
	if b.has(1, 10, 20) {
		t.Error("what could not be named counts as begun")
	}
	if err := b.add(1, 10, never); err != nil || b.has(1, 10, 20) {
		t.Errorf("what was named and not made counts as made, %v", err)
	}
	if b.opened(1, 10); !b.has(1, 10, 20) {
		t.Error("what was opened does not count as made")
	}
}
