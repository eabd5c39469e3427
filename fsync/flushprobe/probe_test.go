package flushprobe_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weida/fsync"
	"weida/fsync/flushprobe"
)

// TestRun: every write is counted and flushed, and nothing is left behind.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	var told []int
	r, err := flushprobe.Run(fsync.OS(), filepath.Join(dir, "probe"), flushprobe.Options{
		Writes: 7, Each: func(done int) error { told = append(told, done); return nil },
	})
	if err != nil || len(r.Took) != 7 || !slices.IsSorted(r.Took) || r.Took[0] <= 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
	var sum time.Duration
	for _, d := range r.Took {
		sum += d
	}
	if r.Total != sum {
		t.Errorf("all took %v, together %v", r.Total, sum)
	}
	empty(t, dir)
}

// TestStopped: who stops it gets what was measured until then, and the file is gone.
func TestStopped(t *testing.T) {
	dir, stop := t.TempDir(), errors.New("stop")
	r, err := flushprobe.Run(fsync.OS(), filepath.Join(dir, "probe"), flushprobe.Options{
		Writes: 5, Each: func(done int) error {
			if done == 2 {
				return stop
			}
			return nil
		},
	})
	if !errors.Is(err, stop) || len(r.Took) != 2 {
		t.Errorf("%d measured, %v", len(r.Took), err)
	}
	empty(t, dir)
}

// TestOneFlushAWrite counts the flushes: a probe that left them out would measure the cache.
func TestOneFlushAWrite(t *testing.T) {
	flushes := 0
	fs := counting{FS: fsync.OS(), flushes: &flushes}
	if _, err := flushprobe.Run(fs, filepath.Join(t.TempDir(), "probe"), flushprobe.Options{Writes: 9}); err != nil {
		t.Fatal(err)
	}
	if flushes != 10 { // one more for the space that was allocated
		t.Errorf("%d flushes for 9 writes", flushes)
	}
}

// TestNameTaken: a file that is there is not written to and not removed.
func TestNameTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probe")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := flushprobe.Run(fsync.OS(), path, flushprobe.Options{Writes: 1}); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}

func TestQuantile(t *testing.T) {
	r := flushprobe.Result{Took: []time.Duration{1, 2, 3, 4}}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 2, 0.99: 4, 1: 4} {
		if got := r.Quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := (&flushprobe.Result{}).Quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 0 {
		t.Errorf("%v is left, %v", list, err)
	}
}

// counting counts flushes of files.
type counting struct {
	fsync.FS
	flushes *int
}

func (c counting) Create(name string) (fsync.File, error) {
	f, err := c.FS.Create(name)
	return countingFile{f, c.flushes}, err
}

type countingFile struct {
	fsync.File
	flushes *int
}

func (c countingFile) Sync() error { *c.flushes++; return c.File.Sync() }
