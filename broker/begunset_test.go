package broker

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"weida/fsync"
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
		if kept, err := os.ReadFile(path + ".damaged"); err != nil || !bytes.Equal(kept, text) {
			t.Fatalf("it is not kept: %x, %v", kept, err)
		}
	}
}
