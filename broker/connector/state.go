package connector

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"weida/fsync"
)

// state is what a connector's state file holds, as JSON. It is replaced as a whole and flushed.
//
// Of a source, Lines lines lie before End, all of them confirmed: it may be older than what the queue knows, and is
// only where the search begins. Base lines before BaseEnd were there when it began at the file's end: they are never
// sent.
//
// Of a sink, everything before End is whole records and was flushed. No message is accepted
// before End covers it, so what lies behind belongs to messages that come again, and may be cut.
type state struct {
	Version int    `json:"version"`
	Base    uint64 `json:"base,omitempty"`
	BaseEnd int64  `json:"baseEnd,omitempty"`
	Lines   uint64 `json:"lines,omitempty"`
	End     int64  `json:"end"`
	// Anchor is the digest of the bytes before End, at most anchorMax, in hexadecimal digits: a file that has others
	// there is another file.
	Anchor string `json:"anchor"`
}

const (
	stateVersion = 1
	stateMax     = 4 << 10
	anchorMax    = 4 << 10
)

// load reads the state file; nil if there is none.
func (c *file) load(at place) (*state, error) {
	path := filepath.Join(at.dir, at.state)
	b, err := fsync.ReadFile(c.o.Files, path, stateMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st := new(state)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	switch err := d.Decode(st); {
	case err != nil:
		return nil, &StateError{path, err}
	case st.Version != stateVersion:
		return nil, &StateError{path, fmt.Errorf("version %d is not known to this build, which has %d", st.Version,
			stateVersion)}
	case st.End < 0 || st.BaseEnd < 0 || st.BaseEnd > st.End || st.Base > st.Lines:
		return nil, &StateError{path, errors.New("its numbers contradict each other")}
	}
	return st, nil
}

// save replaces the state file. f is the connector's file.
func (c *file) save(at place, f fsync.File, st *state) error {
	sum, err := anchor(f, st.End)
	if err != nil {
		return err
	}
	st.Version, st.Anchor = stateVersion, sum
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return fsync.WriteFileAtomic(c.o.Files, at.dir, at.state, append(b, '\n'))
}

func (c *file) removeState(at place) error {
	err := c.o.Files.Remove(filepath.Join(at.dir, at.state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// anchor is the digest of the bytes before end.
func anchor(f fsync.File, end int64) (string, error) {
	n := min(end, anchorMax)
	b := make([]byte, n)
	if got, err := f.ReadAt(b, end-n); got < len(b) {
		return "", err
	}
	sum := xxh3.Hash128(b).Bytes()
	return hex.EncodeToString(sum[:]), nil
}

// holds refuses a file that is not the one of the state.
func (st *state) holds(path string, f fsync.File) error {
	size, err := f.Size()
	if err != nil || st.End == 0 {
		return err
	}
	if size < st.End {
		return &ChangedError{path, fmt.Sprintf("has %d bytes, and %d were read or written before", size, st.End)}
	}
	sum, err := anchor(f, st.End)
	if errors.Is(err, io.EOF) {
		return &ChangedError{path, "became shorter while it was looked at"}
	}
	if err == nil && sum != st.Anchor {
		err = &ChangedError{path, fmt.Sprintf("has other bytes before position %d than were read or written there", st.End)}
	}
	return err
}
