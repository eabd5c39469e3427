package wal

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weida/segment"
)

// numberOf is the number of a segment's file, 0 of another one.
func numberOf(path string) segment.Number {
	n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".seg"), 10, 64)
	if err != nil {
		return 0
	}
	return segment.Number(n)
}

// TestMisplacedSectors: a sector is written where another one belongs, of the same segment or of another one, or of
// another group: what comes back is what was written there, or an error that names the file; never another record (row
// 4 of the fault matrix).
func TestMisplacedSectors(t *testing.T) {
	hurry(t)
	smallSegments(t, 4<<10)
	const sector = 512
	for _, stop := range []string{"in order", "killed", "power cut"} {
		t.Run(stop, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(4, uint64(len(stop))))
			r := newRuin(t, stop)
			var files []string
			for _, path := range r.disk.Files() {
				if strings.HasSuffix(path, ".seg") || strings.HasSuffix(path, ".body") {
					files = append(files, path)
				}
			}
			seen := 0
			for range 400 {
				from, to := files[rng.IntN(len(files))], files[rng.IntN(len(files))]
				source, err := r.disk.Bytes(from)
				must(t, err)
				target, err := r.disk.Bytes(to)
				must(t, err)
				a := rng.IntN(len(source)/sector) * sector
				b := rng.IntN(len(target)/sector) * sector
				if filepath.Dir(to) != testDir || bytes.Equal(source[a:a+sector], target[b:b+sector]) {
					continue
				}
				disk := r.disk.Clone()
				must(t, disk.Corrupt(to, int64(b), sector, func(p []byte) { copy(p, source[a:a+sector]) }))
				opened, bad, err := r.open(disk, filepath.Base(to))
				if err != nil {
					t.Fatalf("sector %d of %s at sector %d of %s: %v", a/sector, from, b/sector, to, err)
				}
				if opened != nil || bad > 0 {
					seen++
				}
				end := segment.Position{Segment: numberOf(to), Pos: int64(b + sector)}
				if opened == nil && bad > 0 && end.Segment > 0 && !isSealed(t, disk, end.Segment) && !r.promise.Less(end) {
					t.Fatalf("%s: sector %d, below the promise %v, was cut off", to, b/sector, r.promise)
				}
			}
			if seen < 50 {
				t.Errorf("%d were noticed: the test shows nothing", seen)
			}
		})
	}
}
