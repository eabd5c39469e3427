package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weida/fsync"
	"weida/wal"
)

// onWrite calls a function with what is written.
type onWrite func(string)

func (f onWrite) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}

// A directory that a node of an earlier dev still has is waited for, and the process is named; so it is in the error
// of who does not wait.
func TestLeftNodeIsNamedAndWaitedFor(t *testing.T) {
	data := t.TempDir()
	lock, err := fsync.OS().Lock(filepath.Join(data, "LOCK"))
	if err != nil {
		t.Fatal(err)
	}
	me := fmt.Sprintf("process %d", os.Getpid())
	if err := os.WriteFile(filepath.Join(data, "pid"), fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := heldBy(data, wal.ErrInUse); !strings.Contains(err.Error(), me) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said []string
	note := onWrite(func(s string) { said = append(said, s) })
	if err := awaitLeft(ctx, "n1", data, note); err == nil || !strings.Contains(err.Error(), "no node was started") ||
		!strings.Contains(err.Error(), me) {
		t.Error(err)
	}
	release := onWrite(func(s string) {
		said = append(said, s)
		if err := lock.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := awaitLeft(t.Context(), "n1", data, release); err != nil {
		t.Error(err)
	}
	if len(said) != 2 || !strings.Contains(said[1], me) || !strings.Contains(said[1], "waited for") {
		t.Errorf("%q", said)
	}
	if err := heldBy(filepath.Join(data, "none"), wal.ErrInUse); err != wal.ErrInUse { //nolint:errorlint // as it was
		t.Error(err)
	}
}
