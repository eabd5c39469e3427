package connector

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"weida/fsync"
)

// ownPrefix begins the names of the files that connectors keep for themselves.
const ownPrefix = ".weida-"

// place is where a connector's files lie.
type place struct {
	file  string
	dir   string // of what follows
	state string // name in dir
	lock  string
}

// place finds the file, which must lie in the directory that connectors may use: no part of its path below may be a
// link, which could lead anywhere.
func (c *file) place() (place, error) {
	if c.o.Dir == "" {
		return place{}, &PathError{c.plan.path, "has no directory to lie in: the node file names none for connectors"}
	}
	dir := filepath.Clean(c.o.Dir)
	path := filepath.Clean(c.plan.path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	below, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(below) || below == "." {
		return place{}, &PathError{c.plan.path, "is not in " + dir + ", where the node lets connectors work"}
	}
	parts := strings.Split(below, string(filepath.Separator))
	if strings.HasPrefix(parts[len(parts)-1], ownPrefix) {
		return place{}, &PathError{c.plan.path, "begins with " + ownPrefix + ", as files that connectors keep for themselves"}
	}
	if _, err := fsync.Mode(dir); errors.Is(err, fs.ErrNotExist) {
		return place{}, &PathError{c.plan.path, "has no directory to lie in: " + dir + " (connectors.dir) is not there on " +
			"the node that runs it: make it there (mkdir -m 700), or start that node again, which makes it"}
	}
	at := dir
	for i, part := range parts {
		at = filepath.Join(at, part)
		mode, err := fsync.Mode(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && i == len(parts)-1:
			continue // a sink makes it, and a source says so when it opens it
		case err != nil:
			return place{}, err
		case i < len(parts)-1 && !mode.IsDir():
			return place{}, &PathError{c.plan.path, fmt.Sprintf("goes through %s, which is no directory", at)}
		case i == len(parts)-1 && !mode.IsRegular():
			return place{}, &PathError{c.plan.path, "is not a regular file"}
		}
	}
	own := ownPrefix + c.id()
	return place{file: path, dir: dir, state: own + ".state", lock: filepath.Join(dir, own+".lock")}, nil
}
