package raftstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// This file is for who reads a log from outside, while no group runs on it.

// ReadItems returns the items of an entry's data, in order, as Machine.Apply gets them. Commands alias data. Data that
// this build does not write is an error.
func ReadItems(data []byte) ([]Item, error) { return decodeItems(nil, data) }

// ReadMachine writes what the machine's Snapshot wrote to w, out of the content r of a group's snapshot, whether it was
// an owner's or a replica's. known is false if the snapshot holds nothing of a machine: the group begins with it.
func ReadMachine(r io.Reader, w io.Writer) (known bool, err error) {
	b := bufio.NewReaderSize(r, 16<<10)
	magic, err := b.Peek(len(snapshotMagic))
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return false, fmt.Errorf("raftstore: read a snapshot: %w", err)
	case !bytes.Equal(magic, []byte(snapshotMagic)): // an owner's is the machine's bytes and nothing else
		_, err := b.WriteTo(w)
		return true, err
	}
	f, err := readSnapshot(b)
	if err != nil {
		return false, fmt.Errorf("raftstore: read a snapshot: %w", err)
	}
	if f.head.Empty {
		return false, nil
	}
	_, err = f.WriteTo(w)
	return true, err
}
