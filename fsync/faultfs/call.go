package faultfs

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Op names a kind of call.
type Op string

// The kinds of calls. Close, of files, directories and locks, is one of them.
const (
	OpCreate     Op = "create"
	OpOpen       Op = "open"
	OpOpenDir    Op = "opendir"
	OpMkdir      Op = "mkdir"
	OpRename     Op = "rename"
	OpRemove     Op = "remove"
	OpList       Op = "list"
	OpLock       Op = "lock"
	OpRead       Op = "read"
	OpWrite      Op = "write"
	OpSize       Op = "stat"
	OpAllocate   Op = "fallocate"
	OpStartWrite Op = "sync_file_range"
	OpDropCache  Op = "fadvise"
	OpSync       Op = "fdatasync" // of a file
	OpSyncDir    Op = "fsync"     // of a directory
	OpSyncFS     Op = "syncfs"
	OpClose      Op = "close"
)

// Changes are the calls that change what is on the disk or will be after a crash. A crash before any
// other call finds the same disk as one before the next of these.
var Changes = []Op{
	OpCreate, OpMkdir, OpRename, OpRemove, OpLock, OpWrite, OpAllocate, OpStartWrite, OpDropCache,
	OpSync, OpSyncDir, OpSyncFS,
}

// Match chooses calls. The zero value chooses all.
type Match struct {
	Op Op // "" is any
	// Path is a pattern of filepath.Match; without a separator it is compared with the last part of
	// the path, with one with the whole. "" is any. A rename matches by its old or its new name.
	Path string
}

func (m Match) matches(c Call) bool {
	return (m.Op == "" || m.Op == c.Op) && (pathMatches(m.Path, c.Path) || c.To != "" && pathMatches(m.Path, c.To))
}

func pathMatches(pattern, path string) bool {
	if pattern == "" {
		return true
	}
	if !strings.ContainsRune(pattern, filepath.Separator) {
		path = filepath.Base(path)
	}
	ok, err := filepath.Match(pattern, path)
	if err != nil {
		panic(fmt.Sprintf("bug: faultfs: pattern %q: %v", pattern, err))
	}
	return ok
}

// Call is one call that was made.
type Call struct {
	N    int // its number, from 1; 0 if its kind is not counted
	Op   Op
	Path string
	To   string // rename: the new name
	Off  int64
	Len  int64
}

func (c Call) String() string {
	s := fmt.Sprintf("%d %s %s", c.N, c.Op, c.Path)
	if c.To != "" {
		s += " to " + c.To
	}
	if c.Len != 0 {
		s += fmt.Sprintf(" [%d, %d)", c.Off, c.Off+c.Len)
	}
	return s
}
