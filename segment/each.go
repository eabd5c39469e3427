package segment

import (
	"errors"
	"fmt"
	"io"
)

const windowMax = 1 << 20 // of the buffer a scan reads through, in bytes

// window reads a file in big pieces and lends out small ones.
type window struct {
	r    io.ReaderAt
	size int64
	buf  []byte
	at   int64 // of buf[0] in the file
	n    int   // valid bytes of buf
}

// bytes returns n bytes from pos, fewer only where the file ends; valid until the next call.
func (w *window) bytes(pos int64, n int) ([]byte, error) {
	n = int(max(0, min(int64(n), w.size-pos)))
	if n == 0 {
		return nil, nil
	}
	if pos >= w.at && pos+int64(n) <= w.at+int64(w.n) {
		return w.buf[pos-w.at:][:n], nil
	}
	want := int(min(int64(len(w.buf)), w.size-pos))
	w.n = 0
	got, err := w.r.ReadAt(w.buf[:want], pos)
	if got < want {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("segment: read %d bytes at byte %d: %w", want, pos, err)
	}
	w.at, w.n = pos, got
	return w.buf[:min(n, got)], nil
}

func newBuffer(size int64) []byte { return make([]byte, min(max(size, 4096), windowMax)) }

// EachBatch calls fn for every whole batch of one segment from the position from on; the batch is
// valid during the call. It ends without error before zeros, before a footer and at the end of the
// file, and returns that position and the chain there. Otherwise it ends with the error of fn or of
// r, or with *CorruptError or *VersionError at the first place where no batch can be read: without
// the group's other segments nothing more can be said about it (see Recover).
//
// The first batch is taken at its word about the chain before it.
func EachBatch(r io.ReaderAt, size int64, f File, from int64, fn func(*Batch) error) (int64, Chain, error) {
	w := &window{r: r, size: size, buf: newBuffer(size)}
	seed, pos, chain, first := f.seed(), from, Chain(0), true
	var rows []Row
	for pos < size {
		b, err := w.bytes(pos, BatchMax)
		if err != nil {
			return pos, chain, err
		}
		bt, bad := parseBatch(b, f, seed, pos, rows)
		if bad.code != sound {
			if atEnd(b, f, seed, pos) {
				return pos, chain, nil
			}
			if bad.code == short {
				bad.code, bad.cause = damaged, "the file ends inside a batch"
			}
			return pos, chain, bad.err(f)
		}
		if bt.Chain != chain && !first {
			return pos, chain, &CorruptError{Group: f.Group, At: Position{f.Segment, pos}, Cause: "the chain is broken"}
		}
		if err := fn(&bt); err != nil {
			return pos, chain, err
		}
		rows, pos, chain, first = bt.Rows, pos+bt.Size, bt.Next, false
	}
	return pos, chain, nil
}

// atEnd reports whether zeros or a footer stand at pos.
func atEnd(b []byte, f File, seed uint64, pos int64) bool {
	if len(b) < HeaderSize {
		return allZero(b)
	}
	h, bad := parseHead(b, f, seed, pos)
	return bad.code == sound && h.kind == KindFooter || allZero(b[:HeaderSize])
}
