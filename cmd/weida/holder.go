package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"weida/fsync"
	"weida/wal"
)

// This file is what is said of, and done about, a data directory that another process holds.

// leftPatience is how long a node of a `dev` that was killed may take to have ended: it stops in order by itself, for
// its standard input has ended.
const leftPatience = 15 * time.Second

// heldBy adds to the error of a directory in use which process has it.
func heldBy(data string, err error) error {
	if pid := holder(data); errors.Is(err, wal.ErrInUse) && pid != 0 {
		return fmt.Errorf("%w; process %d has it%s", err, pid, commandOf(pid))
	}
	return err
}

// holder is the process that says that it runs on a data directory, 0 if none does, or it is gone.
func holder(data string) int {
	b, err := os.ReadFile(filepath.Join(data, "pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 || commandOf(pid) == "" {
		return 0
	}
	return pid
}

// commandOf is how a process was started, in brackets; "" if there is none.
func commandOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return ""
	}
	return " (" + string(bytes.ReplaceAll(bytes.TrimRight(b, "\x00"), []byte{0}, []byte{' '})) + ")"
}

// awaitLeft waits until nobody has the data directory of a node: a `dev` that was killed leaves its nodes, which stop
// in order by themselves. Nothing is ended from here: who does not go may be somebody else's.
func awaitLeft(ctx context.Context, name, data string, talk io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, leftPatience)
	defer cancel()
	told := false
	for {
		lock, err := fsync.OS().Lock(filepath.Join(data, "LOCK"))
		if err == nil {
			return lock.Close()
		}
		if !errors.Is(err, fsync.ErrLocked) {
			return nil //nolint:nilerr // the node says better what is wrong with its directory
		}
		pid := holder(data)
		if !told {
			told = true
			fmt.Fprintf(talk, "%s: process %d%s of an earlier dev still has %s; it stops by itself, and is waited for\n",
				name, pid, commandOf(pid), data)
		}
		select {
		case <-time.After(endPoll):
		case <-ctx.Done():
			return fmt.Errorf("%s: process %d%s has %s and did not stop within %v; no node was started, and nothing was "+
				"changed; see what it is, and end it with `kill %d`", name, pid, commandOf(pid), data, leftPatience, pid)
		}
	}
}

// endPoll is the pause between two looks at a directory that somebody has.
const endPoll = 50 * time.Millisecond
