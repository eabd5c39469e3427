package memfs_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"weida/fsync/memfs"
)

// Sectors go astray among those that were under way, across files too; what was flushed is never touched (fault 4).
func TestAstray(t *testing.T) {
	const size = 512
	own, other := map[byte]bool{}, 0
	for seed := range uint64(30) {
		d := newDisk(t)
		for _, name := range []string{"/d/a", "/d/b"} {
			f := d.create(name)
			d.write(f, 0, strings.Repeat("0", 2*size))
			d.ok(f.Sync())
			d.flushDir("/d")
			d.write(f, 2*size, strings.Repeat(name[3:], 2*size))
		}
		d.PowerCut(memfs.KeepAstray, rand.New(rand.NewPCG(seed, 1)))
		strange := 0
		for i, name := range []string{"/d/a", "/d/b"} {
			b, err := d.Bytes(name)
			d.ok(err)
			if got := string(b[:2*size]); got != strings.Repeat("0", 2*size) {
				t.Fatalf("seed %d: %s: what was flushed is %q", seed, name, got)
			}
			for k := 2 * size; k < len(b); k += size {
				if b[k] == "ba"[i] {
					strange++
				} else {
					own[b[k]] = true
				}
			}
		}
		if strange > d.Astray() {
			t.Errorf("seed %d: %d sectors stand where others belong, %d are counted", seed, strange, d.Astray())
		}
		other += strange
	}
	if other == 0 || len(own) != 3 {
		t.Errorf("%d sectors of the other file, own content %v", other, own)
	}
}

// A file that was removed, and comes back because its directory was not flushed, has nothing that could go astray.
func TestAstrayRemoved(t *testing.T) {
	for seed := range uint64(20) {
		d := newDisk(t)
		f := d.create("/d/a")
		d.ok(f.Sync())
		d.flushDir("/d")
		d.write(f, 0, strings.Repeat("a", 2048))
		d.ok(d.Remove("/d/a"))
		d.PowerCut(memfs.KeepAstray, rand.New(rand.NewPCG(seed, 1)))
	}
}
