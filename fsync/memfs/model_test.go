package memfs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
)

// runs is how many random histories a test plays: def, or WEIDA_RUNS.
func runs(t *testing.T, def int) int {
	t.Helper()
	s := os.Getenv("WEIDA_RUNS")
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("WEIDA_RUNS=%q: %v", s, err)
	}
	return n
}

// model is one file told in the slowest and plainest way: every version of every sector.
type model struct {
	now     []byte
	durable []byte           // flushed content, by sector valid up to its length
	sectors map[int][][]byte // unflushed versions
	sizes   []int
}

func (m *model) write(off int, p []byte) {
	if need := off + len(p); need > len(m.now) {
		m.resize(need)
	}
	copy(m.now[off:], p)
	for s := off / 512; s <= (off+len(p)-1)/512; s++ {
		m.sectors[s] = append(m.sectors[s], slices.Clone(padded(m.now, s)))
	}
}

func (m *model) resize(n int) {
	m.now = append(m.now, make([]byte, n-len(m.now))...)
	m.sizes = append(m.sizes, n)
}

func (m *model) flush() {
	m.durable = slices.Clone(m.now)
	m.sectors, m.sizes = map[int][][]byte{}, nil
}

// padded is sector s of p with zeros behind the end.
func padded(p []byte, s int) []byte {
	out := make([]byte, 512)
	if s*512 < len(p) {
		copy(out, p[s*512:])
	}
	return out
}

// check says why got can't be what a power cut left.
func (m *model) check(got []byte, keep memfs.Keep) error {
	sizes := append([]int{len(m.durable)}, m.sizes...)
	newest := sizes[len(sizes)-1]
	switch {
	case keep == memfs.KeepNone && len(got) != sizes[0], keep == memfs.KeepAll && len(got) != newest,
		!slices.Contains(sizes, len(got)):
		return fmt.Errorf("size %d, versions %v", len(got), sizes)
	}
	for s := 0; s*512 < len(got); s++ {
		versions := append([][]byte{padded(m.durable, s)}, m.sectors[s]...)
		switch keep {
		case memfs.KeepNone:
			versions = versions[:1]
		case memfs.KeepAll:
			versions = versions[len(versions)-1:]
		case memfs.KeepRandom:
		}
		end := min(512, len(got)-s*512)
		if !slices.ContainsFunc(versions, func(v []byte) bool { return bytes.Equal(v[:end], got[s*512:s*512+end]) }) {
			return fmt.Errorf("sector %d holds none of its %d versions", s, len(versions))
		}
	}
	return nil
}

// Random histories of one file against the model, with power cuts of clones on the way and of the
// file system itself, after which the history goes on.
func TestAgainstModel(t *testing.T) {
	base := rand.Uint64()
	t.Logf("base seed %d", base)
	for i := range runs(t, 300) {
		seed := base + uint64(i)
		if err := playModel(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func playModel(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	d := newDisk(t)
	f := d.flushed("/d/a", "")
	m := &model{sectors: map[int][][]byte{}}
	for range 60 {
		switch rng.IntN(10) {
		default:
			p := make([]byte, 1+rng.IntN([]int{20, 600, 9000}[rng.IntN(3)]))
			for k := range p {
				p[k] = byte(1 + rng.IntN(255))
			}
			off := rng.IntN(20000)
			if rng.IntN(2) == 0 {
				off = len(m.now)
			}
			if _, err := f.WriteAt(p, int64(off)); err != nil {
				return err
			}
			m.write(off, p)
		case 0:
			if err := f.Sync(); err != nil {
				return err
			}
			m.flush()
		case 1:
			n := 1 + rng.IntN(30000)
			if err := f.Allocate(0, int64(n)); err != nil {
				return err
			}
			if n > len(m.now) {
				m.resize(n)
			}
		case 2:
			c := d.Clone()
			if err := cutAndCheck(c, m, rng); err != nil {
				return fmt.Errorf("clone: %w", err)
			}
		case 3:
			if err := f.DropCache(0, 0); err != nil {
				return err
			}
		case 4:
			if err := cutAndCheck(d.FS, m, rng); err != nil {
				return err
			}
			got, err := d.Bytes("/d/a")
			if err != nil {
				return err
			}
			m.now = got
			m.flush()
			f = d.open("/d/a")
		}
		if got, err := d.Bytes("/d/a"); err != nil || !bytes.Equal(got, m.now) {
			return fmt.Errorf("a reader sees something else (%w)", err)
		}
	}
	return nil
}

func cutAndCheck(fs *memfs.FS, m *model, rng *rand.Rand) error {
	keep := memfs.Keep(rng.IntN(3))
	fs.PowerCut(keep, rng)
	got, err := fs.Bytes("/d/a")
	if err != nil {
		return err
	}
	if err := m.check(got, keep); err != nil {
		return fmt.Errorf("power cut %d: %w", keep, err)
	}
	return nil
}

// One seed is one outcome, over many files and directories.
func TestPowerCutIsDeterministic(t *testing.T) {
	build := func() *memfs.FS {
		d := newDisk(t)
		for i := range 20 {
			dir := fmt.Sprintf("/d/%d", i)
			d.ok(d.Mkdir(dir))
			for k := range 5 {
				f := d.create(fmt.Sprintf("%s/%d", dir, k))
				for v := range 3 {
					d.write(f, int64(v*300), fmt.Sprintf("%0700d", v))
				}
				if k%2 == 0 {
					d.flushDir(dir)
				}
			}
		}
		return d.FS
	}
	for seed := range uint64(20) {
		a, b := build(), build().Clone()
		a.PowerCut(memfs.KeepRandom, rand.New(rand.NewPCG(seed, 7)))
		b.PowerCut(memfs.KeepRandom, rand.New(rand.NewPCG(seed, 7)))
		if x, y := state(t, a), state(t, b); x != y {
			t.Fatalf("seed %d:\n%s\n%s", seed, x, y)
		}
	}
}

// One step of a crash loop on a 1 MiB file: write, flush, write, clone, cut.
func BenchmarkCrashStep(b *testing.B) {
	fs := memfs.New()
	f, err := fs.Create("/a")
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 1<<20)
	if _, err := f.WriteAt(p, 0); err != nil {
		b.Fatal(err)
	}
	root, err := fs.OpenDir("/")
	if err != nil {
		b.Fatal(err)
	}
	if err := root.Sync(); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var off int64
	for b.Loop() {
		off = (off + 4096) % (1 << 20)
		if _, err := f.WriteAt(p[:300], off); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		if _, err := f.WriteAt(p[:8192], min(off, 1<<20-8192)); err != nil {
			b.Fatal(err)
		}
		c := fs.Clone()
		c.PowerCut(memfs.KeepRandom, rng)
		if _, err := c.Open("/a", fsync.ReadOnly); err != nil {
			b.Fatal(err)
		}
	}
}
