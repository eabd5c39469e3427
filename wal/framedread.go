package wal

import (
	"errors"
	"io"

	"weida/fsync"
	"weida/segment"
)

// saltOffset is where a record header carries the salt of its file. A framed file's salt is learned
// from its head; a wrong one verifies nothing.
const saltOffset = 24

// framedReader reads a framed file from its beginning to its end. One goroutine uses it; any number
// of readers may read one file. Every frame is verified, in its place in the chain, before a byte of
// it is returned, and the last one only once tail and digest are verified too.
type framedReader struct {
	path string
	f    fsync.File
	file segment.File
	head framedHead
	tail framedTail

	pos    int64 // of the next record
	chain  segment.Chain
	left   int64 // content not yet loaded
	ended  bool  // the tail was verified in its place in the chain
	record []byte
	rest   []byte // of the loaded frame, not yet returned
	digest segment.Hasher
	err    error
}

// anySize stands for a size that is not known before.
const anySize = -1

// openFramed opens the file of exactly size bytes and verifies its head and its tail. An absent file
// is fs.ErrNotExist, a damaged one *segment.CorruptError with the place.
func openFramed(fs fsync.FS, path string, g segment.GroupID, size int64) (*framedReader, error) {
	f, err := fs.Open(path, fsync.ReadOnly)
	if err != nil {
		return nil, err
	}
	r := &framedReader{path: path, f: f, file: segment.File{Group: g}}
	if err := r.begin(size); err != nil {
		return nil, joinClose(withPath(err, path), f)
	}
	return r, nil
}

func (r *framedReader) begin(want int64) error {
	size, err := r.f.Size()
	if err != nil {
		return err
	}
	if want == anySize {
		want = size
	}
	if size != want || want < framedHeadSize+framedTailSize {
		return r.corrupt(min(size, want), "the file is shorter or longer than what it must hold")
	}
	r.record = make([]byte, framedHeadSize)
	if err := r.load(0, framedHeadSize); err != nil {
		return err
	}
	r.file.Salt = segment.Salt(le.Uint64(r.record[saltOffset:]))
	head, chain, err := r.parse(0, segment.KindFileHead, framedHeadLen)
	if err != nil {
		return err
	}
	b := words{b: head.Body}
	r.head = framedHead{Type: headType(b.next()), Word: [3]uint64{b.next(), b.next(), b.next()}}
	r.pos, r.chain = framedHeadSize, chain
	return r.readTail(size)
}

func (r *framedReader) readTail(size int64) error {
	pos := size - framedTailSize
	if err := r.load(pos, framedTailSize); err != nil {
		return err
	}
	tail, _, err := r.parse(pos, segment.KindFileTail, framedTailLen)
	if err != nil {
		return err
	}
	b := words{b: tail.Body}
	r.tail.Length = int64(b.next())
	copy(r.tail.Digest[:], b.b)
	b.b = b.b[len(r.tail.Digest):]
	r.tail.Plain = int64(b.next())
	if r.tail.Length < 0 || r.tail.Length > size || framedSize(r.tail.Length) != size {
		return r.corrupt(pos, "the tail names a length that the file does not have")
	}
	r.left = r.tail.Length
	return nil
}

// load reads n bytes at pos into record.
func (r *framedReader) load(pos, n int64) error {
	if int64(cap(r.record)) < n {
		r.record = make([]byte, n)
	}
	r.record = r.record[:n]
	got, err := r.f.ReadAt(r.record, pos)
	if int64(got) == n {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return r.corrupt(pos, "the file ends inside the record")
	}
	return err
}

// parse verifies the record that was loaded from pos.
func (r *framedReader) parse(pos int64, k segment.Kind, length int) (segment.Record, segment.Chain, error) {
	rec, chain, err := segment.ParseRecord(r.record, r.file, pos)
	switch {
	case errors.Is(err, segment.ErrShort):
		return rec, 0, r.corrupt(pos, "the record is longer than its place")
	case err != nil:
		return rec, 0, err
	case rec.Kind != k:
		return rec, 0, r.corrupt(pos, "the record is of kind "+rec.Kind.String()+", not "+k.String())
	case len(rec.Body) != length:
		return rec, 0, r.corrupt(pos, "the record has another length than its place")
	}
	return rec, chain, nil
}

func (r *framedReader) corrupt(pos int64, cause string) error {
	return corruptAt(r.path, r.file.Group, pos, cause)
}

// Read returns verified content. It ends with io.EOF only if the whole content was returned.
func (r *framedReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := r.fill(); err != nil {
		return 0, err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// WriteTo writes the content, frame by frame.
func (r *framedReader) WriteTo(w io.Writer) (n int64, err error) {
	for {
		if err := r.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return n, nil
			}
			return n, err
		}
		wrote, err := w.Write(r.rest)
		n += int64(wrote)
		r.rest = r.rest[wrote:]
		if err != nil {
			return n, err
		}
	}
}

// fill makes rest non-empty, or returns why there is no more. An error stays.
func (r *framedReader) fill() error {
	if len(r.rest) > 0 {
		return nil
	}
	if r.err == nil {
		r.err = withPath(r.next(), r.path)
	}
	return r.err
}

// next loads the next frame, or returns io.EOF behind the last.
func (r *framedReader) next() error {
	if r.left == 0 {
		if !r.ended { // no content at all
			if err := r.end(); err != nil {
				return err
			}
		}
		return io.EOF
	}
	n := int(min(r.left, segment.FrameMax))
	if r.left == int64(n) { // the last one: the tail is loaded together with it
		return r.last(n)
	}
	return r.frame(n)
}

// frame loads the frame of n bytes at pos.
func (r *framedReader) frame(n int) error {
	size := segment.SizeOf(n)
	if err := r.load(r.pos, size); err != nil {
		return err
	}
	rec, chain, err := r.parse(r.pos, segment.KindFrame, n)
	if err != nil {
		return err
	}
	if rec.Chain != r.chain {
		return r.corrupt(r.pos, "the frame does not continue the one before it")
	}
	if _, err := r.digest.Write(rec.Body); err != nil {
		return err
	}
	r.pos, r.chain, r.left, r.rest = r.pos+size, chain, r.left-int64(n), rec.Body
	return nil
}

// last loads the last frame and gives it out only if the whole content is what the tail says.
func (r *framedReader) last(n int) error {
	if err := r.frame(n); err != nil {
		return err
	}
	held := r.rest
	r.rest, r.record = nil, nil // end loads into a buffer of its own
	if err := r.end(); err != nil {
		return err
	}
	r.rest = held
	return nil
}

// end verifies that the tail continues the chain and that the digest is the content's.
func (r *framedReader) end() error {
	if err := r.load(r.pos, framedTailSize); err != nil {
		return err
	}
	rec, _, err := r.parse(r.pos, segment.KindFileTail, framedTailLen)
	if err != nil {
		return err
	}
	if rec.Chain != r.chain {
		return r.corrupt(r.pos, "the tail does not continue the last frame")
	}
	if r.digest.Sum() != r.tail.Digest {
		return r.corrupt(r.pos, "the content does not have the digest of the tail")
	}
	r.ended = true
	return nil
}

// Close releases the file.
func (r *framedReader) Close() error {
	r.rest = nil
	if r.err == nil {
		r.err = fsync.ErrClosed
	}
	return r.f.Close()
}
