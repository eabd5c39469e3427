package powercut

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// memory is media in memory.
type memory []byte

// ReadAt implements io.ReaderAt.
func (m memory) ReadAt(b []byte, off int64) (int, error) { return copy(b, m[off:]), nil }

// WriteAt implements io.WriterAt.
func (m memory) WriteAt(b []byte, off int64) (int, error) { return copy(m[off:], b), nil }

const sectors = 64

// sector is what write n puts into one.
func sector(n int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%08d", n), Sector/8) }

// TestCut: a sector is, after a cut, as one of the writes since the last flush made it, or as it was at the flush; with
// Nothing as at the flush, with Everything as the last write. Reads see the last write at any time.
func TestCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, k := range []Keep{Nothing, Some, Everything} {
		var l Loss
		for range 200 {
			disk := make(memory, sectors*Sector)
			v := newDevice(disk, sectors*Sector, 1<<20, rng.Uint64())
			one := playCut(t, v, disk, k, rng)
			l.Unflushed, l.Kept = l.Unflushed+one.Unflushed, l.Kept+one.Kept
		}
		t.Logf("%v: %+v", k, l)
		if l.Unflushed == 0 || k == Nothing && l.Kept > 0 || k == Everything && l.Kept < l.Unflushed ||
			k == Some && (l.Kept == 0 || l.Kept == l.Unflushed) {
			t.Errorf("%v kept %d of %d sectors", k, l.Kept, l.Unflushed)
		}
	}
}

// playCut writes and flushes at random, cuts, and checks every sector.
func playCut(t *testing.T, v *device, disk memory, k Keep, rng *rand.Rand) Loss {
	t.Helper()
	may := make([][]int, sectors) // by sector: the numbers it may have, newest last
	for i := range may {
		may[i] = []int{0}
		copy(disk[i*Sector:], sector(0))
	}
	for n := 1; n < 40; n++ {
		from := rng.IntN(sectors)
		to := from + 1 + rng.IntN(min(8, sectors-from))
		if err := v.write(1, bytes.Repeat(sector(n), to-from), int64(from)*Sector); err != nil {
			t.Fatal(err)
		}
		for i := from; i < to; i++ {
			may[i] = append(may[i], n)
		}
		if rng.IntN(10) == 0 {
			if err := v.flush(1); err != nil {
				t.Fatal(err)
			}
			for i := range may {
				may[i] = may[i][len(may[i])-1:]
			}
		}
	}
	all := make([]byte, sectors*Sector)
	if err := v.read(1, all, 0); err != nil {
		t.Fatal(err)
	}
	for i, list := range may {
		if !bytes.Equal(all[i*Sector:][:Sector], sector(list[len(list)-1])) {
			t.Fatalf("sector %d reads as %.8s, the last write was %d", i, all[i*Sector:], list[len(list)-1])
		}
	}
	l := v.cut(k)
	for i, list := range may {
		switch k {
		case Nothing:
			list = list[:1]
		case Everything:
			list = list[len(list)-1:]
		case Some:
		}
		found := false
		for _, n := range list {
			found = found || bytes.Equal(disk[i*Sector:][:Sector], sector(n))
		}
		if !found {
			t.Fatalf("%v: sector %d holds %.8s after the cut, and may be %v", k, i, disk[i*Sector:], list)
		}
	}
	for what, err := range map[string]error{
		"read": v.read(1, all, 0), "write": v.write(1, all, 0), "flush": v.flush(1),
	} {
		if err == nil {
			t.Errorf("%s of a life that is over", what)
		}
	}
	return l
}

// TestCacheIsBounded: beyond the bound the oldest writes are on the media without a flush, and reads see the newest.
func TestCacheIsBounded(t *testing.T) {
	disk := make(memory, sectors*Sector)
	v := newDevice(disk, sectors*Sector, 4*Sector, 0)
	for n := range 10 {
		if err := v.write(1, sector(n+1), int64(n%7)*Sector); err != nil {
			t.Fatal(err)
		}
	}
	if held := v.cache.held; held != 4*Sector || len(v.cache.newest) != 4 {
		t.Fatalf("%d bytes of %d sectors are in a cache of four sectors", held, len(v.cache.newest))
	}
	b := make([]byte, 7*Sector)
	if err := v.read(1, b, 0); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{8, 9, 10, 4, 5, 6, 7} {
		if !bytes.Equal(b[i*Sector:][:Sector], sector(want)) {
			t.Errorf("sector %d reads as %.8s, want %d", i, b[i*Sector:], want)
		}
	}
	v.cut(Nothing)
	for i, want := range []int{1, 2, 3, 4, 5, 6} {
		if !bytes.Equal(disk[i*Sector:][:Sector], sector(want)) {
			t.Errorf("sector %d holds %.8s after the cut, want %d", i, disk[i*Sector:], want)
		}
	}
}

// TestFaults: writes and flushes fail as ordered, and as often; a lie is a flush that was not carried out; what is
// stalled goes on with Heal, and ends with a cut.
func TestFaults(t *testing.T) {
	disk := make(memory, sectors*Sector)
	v := newDevice(disk, sectors*Sector, 1<<20, 0)
	d := &Disk{v: v}
	d.FailWrites(Fault{Pattern: []byte("00000002"), Count: 2})
	for i, want := range []bool{true, false, true, false, true, true} {
		err := v.write(1, sector([]int{1, 2, 3, 2, 2, 1}[i]), 0)
		if (err == nil) != want {
			t.Errorf("write %d: %v", i, err)
		}
	}
	d.FailFlush(2)
	for i, want := range []bool{false, false, true} {
		if err := v.flush(1); (err == nil) != want {
			t.Errorf("flush %d: %v", i, err)
		}
	}
	d.Lie()
	if err := v.write(1, sector(7), 0); err != nil {
		t.Fatal(err)
	}
	if err := v.flush(1); err != nil || bytes.Equal(disk[:Sector], sector(7)) {
		t.Errorf("a flush that lies: %v", err)
	}
	d.Heal()
	d.FailWrites(Fault{})
	if err := v.write(1, sector(8), 0); err == nil {
		t.Error("every write was to fail")
	}
	d.Heal()
	for _, end := range []func(){d.Heal, func() { v.cut(Nothing) }} {
		d.Stall()
		done := make(chan error, 1)
		go func() { done <- v.flush(v.now()) }()
		select {
		case err := <-done:
			t.Errorf("a stalled device answered %v", err)
		case <-time.After(10 * time.Millisecond): // it may be late; it cannot be early
		}
		end()
		t.Log(<-done)
	}
	if s := d.Stats(); s.Failed != 5 {
		t.Errorf("%+v", s)
	}
}
