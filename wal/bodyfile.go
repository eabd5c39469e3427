package wal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"weida/fsync"
	"weida/segment"
)

// A body above segment.InlineMax lies in a file of its own, <term>-<seq>.body, a framed file (see
// framed.go) whose size follows from the announced length. The file counts only once an entry names
// it; then it is flushed with that entry: first the file and its directory, then the log.

// bodyBytesMax bounds a body, so that no size overflows. The broker's own limit is far below.
const bodyBytesMax = 1 << 50

// BodyMismatchError says that a body is not what was announced. Its file is removed; nothing of it
// was stored.
type BodyMismatchError struct {
	Ref       segment.BodyRef
	Announced int64 // bytes
	Got       int64 // bytes; more than Announced as soon as one byte too many came
	Want      segment.Digest
	Have      segment.Digest // of the bytes that came; zero if the length is wrong
}

func (e *BodyMismatchError) Error() string {
	if e.Got != e.Announced {
		return fmt.Sprintf("wal: body %v: %d bytes came, %d were announced; nothing of it is stored; send it again",
			e.Ref, e.Got, e.Announced)
	}
	return fmt.Sprintf("wal: body %v: digest %x came, %x was announced; nothing of it is stored; send it again",
		e.Ref, e.Have, e.Want)
}

// BodyFile is a large body on its way to the disk: Write until the announced length is reached, then
// Finish, then hand it to Log.Append; or Abort at any moment before that. One goroutine uses it at a
// time. It holds at most one frame and its record in memory. After an error its file is removed, and every call
// but Abort returns that error.
type BodyFile struct {
	ref    segment.BodyRef
	length int64
	got    int64
	w      *framedWriter
	digest segment.Digest
	state  bodyState
	err    error
	// mends is set if a damaged file has the name that this one is to get.
	mends *fsync.Flusher
}

type bodyState uint8

const (
	bodyWriting bodyState = iota
	bodyFinished
	bodyGone
)

// createBody creates the file of a body of n bytes. A file that exists already is fs.ErrExist and is
// left alone. On fsync.ErrDiskFull nothing stays.
func createBody(fs fsync.FS, fl *fsync.Flusher, dir string, g segment.GroupID, ref segment.BodyRef, n int64,
	rand io.Reader,
) (*BodyFile, error) {
	return createBodyAs(fs, fl, filepath.Join(dir, bodyName(ref)), g, ref, n, rand)
}

func createBodyAs(fs fsync.FS, fl *fsync.Flusher, path string, g segment.GroupID, ref segment.BodyRef, n int64,
	rand io.Reader,
) (*BodyFile, error) {
	if n < 0 {
		panic("bug: wal: body of negative length")
	}
	if n > bodyBytesMax {
		return nil, fmt.Errorf("wal: create body %v of %d bytes: %w", ref, n, fsync.ErrTooLarge)
	}
	salt, err := segment.NewSalt(rand)
	if err != nil {
		return nil, fmt.Errorf("wal: create body %v: %w", ref, err)
	}
	f := segment.File{Group: g, Salt: salt}
	h := framedHead{Type: headBody, Word: [3]uint64{uint64(ref.Term), ref.Seq, uint64(n)}}
	w, err := newFramed(fs, fl, path, f, h, framedSize(n))
	if err != nil {
		return nil, fmt.Errorf("wal: create body %v: %w", ref, err)
	}
	return &BodyFile{ref: ref, length: n, w: w}, nil
}

// Ref names the body.
func (b *BodyFile) Ref() segment.BodyRef { return b.ref }

// Length is the announced length in bytes.
func (b *BodyFile) Length() int64 { return b.length }

// Digest is that of the whole body; zero before Finish has returned nil.
func (b *BodyFile) Digest() segment.Digest { return b.digest }

// Account has took called with how many bytes of the disk the body takes, on the caller's goroutine: at once with
// those that it has already, then before each step. They run ahead of the bytes that came. What a body that is given
// up gives back is not told.
func (b *BodyFile) Account(took func(n int64)) {
	took(b.w.allocated)
	b.w.took = took
}

// Write adds bytes of the body. One byte more than announced is a *BodyMismatchError; a full disk is
// fsync.ErrDiskFull.
func (b *BodyFile) Write(p []byte) (int, error) {
	b.mustBe(bodyWriting, "Write")
	if b.err != nil {
		return 0, b.err
	}
	b.got += int64(len(p))
	if b.got > b.length {
		return 0, b.fail(&BodyMismatchError{Ref: b.ref, Announced: b.length, Got: b.got})
	}
	n, err := b.w.Write(p)
	if err != nil {
		return n, b.fail(fmt.Errorf("wal: write body %v: %w; nothing of it is stored", b.ref, err))
	}
	return n, nil
}

// Finish ends the body. It is an error, and the file is removed, if the bytes that came are fewer
// than announced or do not have the digest. On nil the body is written, not flushed.
func (b *BodyFile) Finish(digest segment.Digest) error {
	b.mustBe(bodyWriting, "Finish")
	if b.err != nil {
		return b.err
	}
	if b.got != b.length {
		return b.fail(&BodyMismatchError{Ref: b.ref, Announced: b.length, Got: b.got})
	}
	if err := b.w.drain(); err != nil {
		return b.fail(fmt.Errorf("wal: write body %v: %w; nothing of it is stored", b.ref, err))
	}
	if have := b.w.digest.Sum(); have != digest {
		return b.fail(&BodyMismatchError{Ref: b.ref, Announced: b.length, Got: b.got, Want: digest, Have: have})
	}
	if _, err := b.w.finish(b.length); err != nil {
		return b.fail(fmt.Errorf("wal: write body %v: %w; nothing of it is stored", b.ref, err))
	}
	if b.mends != nil {
		if err := flush(b.mends, b.w.path, b.w.f); err != nil {
			return b.fail(fmt.Errorf("wal: flush body %v: %w; nothing of it is stored", b.ref, err))
		}
	}
	b.digest, b.state = digest, bodyFinished
	return nil
}

// Abort gives the body up and removes its file. It may be called again, and after an error.
func (b *BodyFile) Abort() error {
	if b.state == bodyGone {
		return nil
	}
	b.state = bodyGone
	if b.err != nil {
		return nil // fail has removed it
	}
	b.err = fsync.ErrClosed
	return b.w.abort()
}

// fail removes the file and keeps the error.
func (b *BodyFile) fail(err error) error {
	b.err = errors.Join(err, b.w.abort())
	return b.err
}

func (b *BodyFile) mustBe(s bodyState, call string) {
	if b.state != s {
		panic("bug: wal: BodyFile." + call + " after Finish or Abort")
	}
}

// flushTarget is the open file that must be flushed, together with its directory, before an entry
// that names the body counts as flushed.
func (b *BodyFile) flushTarget() fsync.File {
	b.mustBe(bodyFinished, "flushTarget")
	return b.w.f
}

// handOver ends the account of unstarted write-back. Call it once the file is dirty at a target, which
// from then on answers for lost writes.
func (b *BodyFile) handOver() { b.w.bulk.Done() }

// closeFile closes the file of a body whose flush is confirmed, or whose log is poisoned.
func (b *BodyFile) closeFile() error {
	b.state = bodyGone
	b.err = fsync.ErrClosed
	return b.w.f.Close()
}

// bodyFileReader reads the body in a file of its own.
type bodyFileReader struct{ *framedReader }

// openBodyFile opens the body that a commit record names: head and tail are verified against it here,
// the frames as they are read. An absent file is fs.ErrNotExist; any difference *segment.CorruptError.
func openBodyFile(fs fsync.FS, dir string, g segment.GroupID, c segment.Commit) (*bodyFileReader, error) {
	if c.Length < 0 {
		panic("bug: wal: commit record of negative length")
	}
	path := filepath.Join(dir, bodyName(c.Ref))
	r, err := openFramed(fs, path, g, framedSize(c.Length))
	if err != nil {
		return nil, err
	}
	want := framedHead{Type: headBody, Word: [3]uint64{uint64(c.Ref.Term), c.Ref.Seq, uint64(c.Length)}}
	cause := ""
	switch {
	case r.head != want:
		cause = "the head is not that of body " + c.Ref.String()
	case r.tail.Digest != c.Digest:
		cause = "the digest is not that of the commit record"
	}
	if cause != "" {
		return nil, joinClose(corruptAt(path, g, 0, cause), r)
	}
	return &bodyFileReader{r}, nil
}

// openBodyRef opens the body of c.Ref without knowing what it must be: head and tail say that, and are
// verified.
func openBodyRef(fs fsync.FS, dir string, g segment.GroupID, c segment.Commit) (*bodyFileReader, error) {
	path := filepath.Join(dir, bodyName(c.Ref))
	r, err := openFramed(fs, path, g, anySize)
	if err != nil {
		return nil, err
	}
	want := framedHead{Type: headBody, Word: [3]uint64{uint64(c.Ref.Term), c.Ref.Seq, uint64(r.tail.Length)}}
	if r.head != want {
		return nil, joinClose(corruptAt(path, g, 0, "the head is not that of body "+c.Ref.String()), r)
	}
	return &bodyFileReader{r}, nil
}

// checkBodyFile verifies head and tail of the file of the body that c names. It reads two records,
// however long the body is.
func checkBodyFile(fs fsync.FS, dir string, g segment.GroupID, c segment.Commit) error {
	r, err := openBodyFile(fs, dir, g, c)
	if err != nil {
		return err
	}
	return r.Close()
}
