package segment

import (
	"errors"
	"fmt"
	"io"
)

const rowsPerRead = 128 // of a search's last read

// FindEntry looks for the row of a live entry in a sealed segment's footer. Each row it reads is
// verified, so damage is an error and never "not there"; what the row places must still be read with
// ReadRecord. r is the segment's file.
func FindEntry(r io.ReaderAt, t Footer, i Index) (Row, bool, error) {
	if t.Entries == 0 || i < t.First {
		return Row{}, false, nil
	}
	// Indexes are dense but where compaction left gaps: the first guess is nearly always right.
	if guess := i - t.First; guess < Index(t.Entries) {
		row, err := readRow(r, t, int(guess))
		if err != nil || row.Index == i {
			return row, err == nil, err
		}
	}
	return search(r, t, entryRows, func(row Row) int {
		if row.Index == i {
			return 0
		}
		return less(row.Index < i)
	})
}

// FindBody looks for the row of a body in a sealed segment's footer, as FindEntry does.
func FindBody(r io.ReaderAt, t Footer, ref BodyRef) (Row, bool, error) {
	return search(r, t, bodyRows, func(row Row) int { return compareRef(row.Ref, ref) })
}

func less(is bool) int {
	if is {
		return -1
	}
	return 1
}

// EachRow calls fn for every row of the footer, in the order of the file, reading a few at a time.
func EachRow(r io.ReaderAt, t Footer, fn func(Row) error) error {
	return eachRow(r, t, 0, t.Entries+t.Bodies+t.Others, fn)
}

// EachOther calls fn for the rows of truncations and voids alone, in log order.
func EachOther(r io.ReaderAt, t Footer, fn func(Row) error) error {
	first, n := t.rows(otherRows)
	return eachRow(r, t, first, n, fn)
}

func eachRow(r io.ReaderAt, t Footer, first, n int, fn func(Row) error) error {
	var buf [rowsPerRead * rowSize]byte
	for n > 0 {
		k := min(n, rowsPerRead)
		rows, err := readRows(r, t, first, k, buf[:])
		if err != nil {
			return err
		}
		seed := t.File.seed()
		for i := range k {
			row, ok := parseRow(rows[i*rowSize:][:rowSize], seed, t.rowPos(first+i))
			if !ok || !t.rowFits(first+i, row) {
				return t.corrupt(t.rowPos(first+i), "a row of the footer is damaged")
			}
			if err := fn(row); err != nil {
				return err
			}
		}
		first, n = first+k, n-k
	}
	return nil
}

// search looks for the row for which order answers 0; it answers below 0 for rows before that one.
func search(r io.ReaderAt, t Footer, section int, order func(Row) int) (found Row, ok bool, err error) {
	first, n := t.rows(section)
	lo, hi := first, first+n // the row is in [lo, hi) if anywhere
	for hi-lo > rowsPerRead {
		mid := lo + (hi-lo)/2
		row, err := readRow(r, t, mid)
		if err != nil {
			return Row{}, false, err
		}
		switch c := order(row); {
		case c == 0:
			return row, true, nil
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	err = eachRow(r, t, lo, hi-lo, func(row Row) error {
		if order(row) == 0 {
			found, ok = row, true
		}
		return nil
	})
	if err != nil {
		return Row{}, false, err
	}
	return found, ok, nil
}

func readRow(r io.ReaderAt, t Footer, i int) (row Row, err error) {
	err = eachRow(r, t, i, 1, func(got Row) error {
		row = got
		return nil
	})
	return row, err
}

func readRows(r io.ReaderAt, t Footer, first, n int, buf []byte) ([]byte, error) {
	b := buf[:n*rowSize]
	got, err := r.ReadAt(b, t.rowPos(first))
	if got == len(b) {
		return b, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, t.corrupt(t.rowPos(first), "the file ends inside its footer")
	}
	return nil, fmt.Errorf("segment: read footer rows at byte %d: %w", t.rowPos(first), err)
}

// ReadRecord reads and verifies the record that a row of file f places, and checks that it is the
// one the row names. It reads into buf and grows it if needed, at most to BatchMax; the record
// aliases the buffer returned. Whoever found a row may use what it names only after this.
func ReadRecord(r io.ReaderAt, f File, row Row, buf []byte) (Record, []byte, error) {
	at := Position{f.Segment, row.Pos}
	corrupt := func(cause string) (Record, []byte, error) {
		return Record{}, buf, &CorruptError{Group: f.Group, At: at, Index: row.Index, Cause: cause}
	}
	if row.Size < HeaderSize || row.Size > BatchMax || row.Pos < FirstBatch || row.Pos%align != 0 {
		return corrupt("the record cannot have the size or place that its index row names")
	}
	if int64(cap(buf)) < row.Size {
		buf = make([]byte, row.Size)
	}
	buf = buf[:row.Size]
	if n, err := r.ReadAt(buf, row.Pos); n < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			return corrupt("the file ends inside a record that its index names")
		}
		return Record{}, buf, fmt.Errorf("segment: read the record at %v: %w", at, err)
	}
	rec, _, err := ParseRecord(buf, f, row.Pos)
	var damage *CorruptError
	switch {
	case errors.As(err, &damage):
		damage.Index = row.Index
		return Record{}, buf, err
	case errors.Is(err, ErrShort):
		return corrupt("the record is longer than its index row says")
	case err != nil:
		return Record{}, buf, err
	}
	got, cause := rowOf(rec)
	if cause != "" {
		return corrupt(cause)
	}
	if got != row {
		return corrupt("another record stands where the index row points")
	}
	return rec, buf, nil
}
