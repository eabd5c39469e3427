package fsync

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Who looks whether a lock is held makes no file, takes nothing, and is right.
func TestHeld(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	if held, err := Held(name); held || err != nil {
		t.Fatalf("absent: %v, %v", held, err)
	}
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the look made the file: %v", err)
	}
	lock, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := Held(name); !held || err != nil {
		t.Errorf("held: %v, %v", held, err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if held, err := Held(name); held || err != nil {
		t.Errorf("given back: %v, %v", held, err)
	}
	lock, err = OS().Lock(name)
	if err != nil {
		t.Errorf("the look kept the lock: %v", err)
	} else if err := lock.Close(); err != nil {
		t.Error(err)
	}
}
