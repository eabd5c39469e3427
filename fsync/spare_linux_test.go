package fsync

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Matrix 36: a process that has no descriptors left opens, makes and lists the files of its store, as many at a time as
// it kept descriptors for, and keeps them again when there are some. Without any it cannot. It runs in a process of its
// own, whose limit is its own.
func TestDescriptorsAreKept(t *testing.T) {
	if os.Getenv("WEIDA_SPARE") != "" {
		exhausted(t)
		return
	}
	for _, keeps := range []string{"3", "none"} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestDescriptorsAreKept$", "-test.v")
		cmd.Env = append(os.Environ(), "WEIDA_SPARE="+keeps, "WEIDA_SPARE_DIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestDescriptorsAreKept") {
			t.Errorf("keeping %s: %v\n%s", keeps, err, out)
		}
	}
}

func exhausted(t *testing.T) {
	dir, n := os.Getenv("WEIDA_SPARE_DIR"), 0
	if os.Getenv("WEIDA_SPARE") == "3" {
		n = 3
	}
	if err := KeepDescriptors(n); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 40, Max: 40}); err != nil {
		t.Fatal(err)
	}
	var hog []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		hog = append(hog, f)
	}
	name := filepath.Join(dir, "a")
	var open []interface{ Close() error }
	for i, do := range []func() (interface{ Close() error }, error){
		func() (interface{ Close() error }, error) { return OS().Create(name) },
		func() (interface{ Close() error }, error) { return OS().Open(name, ReadWrite) },
		func() (interface{ Close() error }, error) { return OS().OpenDir(dir) },
		func() (interface{ Close() error }, error) { return OS().OpenDir(dir) },
	} {
		x, err := do()
		if has := err == nil; has != (i < n) {
			t.Fatalf("with %d kept, open %d: %v", n, i, err)
		}
		if err == nil {
			open = append(open, x)
		} else if !errors.Is(err, unix.EMFILE) {
			t.Fatal(err)
		}
	}
	for _, f := range append(open, hog[0], hog[1]) {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := OS().List(dir); err != nil || len(list) != min(n, 1) {
		t.Fatalf("%v, %v", list, err)
	}
	if len(spare.held) != n {
		t.Errorf("%d are kept, of %d", len(spare.held), n)
	}
	if err := KeepDescriptors(0); err != nil || len(spare.held) != 0 {
		t.Errorf("%d are kept, of none: %v", len(spare.held), err)
	}
}
