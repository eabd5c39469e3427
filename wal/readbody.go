package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"

	"weida/segment"
)

// BodyReader reads one body. Every byte it returns was verified; the whole body against its digest.
// One goroutine uses it.
type BodyReader struct {
	bytes.Reader // of an inline body
	file         *bodyFileReader
	commit       segment.Commit
}

// Commit is what a commit record says about the body: what was asked for, or after OpenRef what is here.
func (r *BodyReader) Commit() segment.Commit { return r.commit }

// Length is the body's length in bytes.
func (r *BodyReader) Length() int64 {
	if r.file != nil {
		return r.file.tail.Length
	}
	return r.Reader.Size()
}

// Read implements io.Reader.
func (r *BodyReader) Read(p []byte) (int, error) {
	if r.file != nil {
		return r.file.Read(p)
	}
	return r.Reader.Read(p)
}

// WriteTo implements io.WriterTo.
func (r *BodyReader) WriteTo(w io.Writer) (int64, error) {
	if r.file != nil {
		return r.file.WriteTo(w)
	}
	return r.Reader.WriteTo(w)
}

// Close gives back what the reader holds.
func (r *BodyReader) Close() error {
	if r.file != nil {
		return r.file.Close()
	}
	return nil
}

// OpenBody returns the body that a commit record names. Any goroutine. ErrAbsent if it is not here:
// settled and trimmed, a tombstone, or never arrived. A body that is here and is not what the commit
// record says is a *segment.CorruptError. An inline body may be asked for by its ref alone, with a
// Length below 0: then its own record, which the ref, the place and a checksum identify, is the proof.
func (l *Log) OpenBody(c segment.Commit) (*BodyReader, error) {
	if c.Large {
		return l.openLarge(c)
	}
	for range 2 {
		body, err := l.readBody(c.Ref)
		switch {
		case errors.Is(err, iofs.ErrNotExist): // trimmed between the lookup and the opening
			continue
		case err != nil:
			return nil, err
		case body == nil:
			return nil, l.absentBody(c.Ref)
		case c.Length >= 0 && (int64(len(body)) != c.Length || segment.DigestOf(body) != c.Digest):
			return nil, fmt.Errorf("wal: group %d: %w", uint64(l.group), &segment.CorruptError{
				Path: l.dir, Group: l.group,
				Cause: fmt.Sprintf("body %v is whole, but its length or digest is not that of its commit record", c.Ref),
			})
		}
		r := &BodyReader{commit: c}
		r.Reset(body)
		return r, nil
	}
	return nil, l.absentBody(c.Ref)
}

// OpenRef returns the body of a ref, inline or in a file of its own; the reader's Commit says what it
// is. An inline one is proved by its record, which the ref, the place and a checksum identify, a large
// one by the head and the tail of its file and then frame by frame. ErrAbsent and damage as in OpenBody;
// a large body that no Append has taken yet is absent. Any goroutine.
func (l *Log) OpenRef(ref segment.BodyRef) (*BodyReader, error) {
	r, err := l.OpenBody(segment.Commit{Ref: ref, Length: -1})
	if errors.Is(err, ErrAbsent) {
		return l.openLarge(segment.Commit{Ref: ref, Length: -1, Large: true})
	}
	if err != nil {
		return nil, err
	}
	var whole [segment.InlineMax]byte
	n, err := r.ReadAt(whole[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	r.commit.Length, r.commit.Digest = int64(n), segment.DigestOf(whole[:n])
	return r, nil
}

// BodyInfo says of a body that is here what a commit record says: length, digest, and whether it has a
// file of its own. Errors as OpenRef. Any goroutine.
func (l *Log) BodyInfo(ref segment.BodyRef) (segment.Commit, error) {
	r, err := l.OpenRef(ref)
	if err != nil {
		return segment.Commit{}, err
	}
	return r.commit, r.Close()
}

func (l *Log) absentBody(ref segment.BodyRef) error {
	return fmt.Errorf("wal: group %d: body %v: %w", uint64(l.group), ref, ErrAbsent)
}

func (l *Log) openLarge(c segment.Commit) (*BodyReader, error) {
	l.mu.Lock()
	b := l.large[c.Ref]
	// What a crash left unfinished is no damage: nothing says that it is a body, or a tombstone stands in its place.
	unproved, settled := b != nil && b.unproved(), l.voids.has(c.Ref)
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	if b == nil {
		return nil, l.absentBody(c.Ref)
	}
	open := openBodyFile
	if c.Length < 0 {
		open = openBodyRef
	}
	f, err := open(l.fs, l.dir, l.group, c)
	if errors.Is(err, iofs.ErrNotExist) || isCorrupt(err) && (settled || unproved && c.Length < 0) {
		return nil, l.absentBody(c.Ref)
	}
	if err != nil {
		return nil, err
	}
	c.Length, c.Digest = f.tail.Length, f.tail.Digest
	return &BodyReader{file: f, commit: c}, nil
}

// where is a place in a segment to look for a body, with the segment's file held open.
type where struct {
	s      *seg
	h      *handle
	hint   readHint       // where the body stands if bodies are read in order
	end    int64          // of the log in the segment
	spans  []extent       // of an unsealed segment
	footer segment.Footer // of a sealed one
	sealed bool
}

// readHint is the place behind the body that was read last: a queue is mostly read in order, and then
// the next body stands there, or behind the records that end one batch and begin another.
type readHint struct {
	s    *seg
	pos  int64
	size int64 // of the last body's record
}

// readBody returns the payload of an inline body, nil if it is not here.
func (l *Log) readBody(ref segment.BodyRef) ([]byte, error) {
	w, err := l.locate(ref)
	if err != nil || w.s == nil {
		return nil, err
	}
	defer l.release(w.h)
	body := w.readAhead(ref)
	if body == nil {
		l.look(&w, ref)
		if body, err = w.read(ref); err != nil {
			return nil, l.readError(w.s, err)
		}
	}
	if body != nil {
		l.mu.Lock()
		l.hint = w.hint
		l.mu.Unlock()
	}
	return body, nil
}

// locate finds the segment that holds the body and opens it.
func (l *Log) locate(ref segment.BodyRef) (where, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return where{}, errClosed
	}
	s, err := l.holderLocked(ref)
	if err != nil || s == nil {
		return where{}, err
	}
	h, err := l.acquireLocked(s)
	if err != nil {
		return where{}, l.readError(s, err)
	}
	return where{s: s, h: h, end: s.end, hint: l.hint}, nil
}

// look says how to find the body in its segment, which may be sealed since it was located.
func (l *Log) look(w *where, ref segment.BodyRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.footer, w.sealed = w.s.footer, w.s.state == segSealed
	if !w.sealed {
		w.spans = w.s.bodySpans(ref, w.s.end)
	}
}

// readAhead looks for the body at the hint, with one small read, and proves its record as read does. nil
// is "not there", whatever the reason: read finds it, or the damage.
func (w *where) readAhead(ref segment.BodyRef) []byte {
	from := w.hint.pos
	if w.hint.s != w.s || from >= w.end {
		return nil
	}
	body, err := w.find(ref, extent{from, min(from+2*w.hint.size+segment.HeaderSize, w.end)})
	if err != nil {
		return nil
	}
	return body
}

func (w *where) read(ref segment.BodyRef) (body []byte, err error) {
	if w.sealed {
		row, ok, err := segment.FindBody(w.h.f, w.footer, ref)
		if err != nil || !ok {
			return nil, err
		}
		rec, _, err := segment.ReadRecord(w.h.f, w.s.file, row, nil)
		if err != nil {
			return nil, err
		}
		_, payload, err := segment.ParseBody(rec.Body)
		w.hint = readHint{w.s, row.Pos + row.Size, row.Size}
		return payload, err
	}
	var damage error
	for _, x := range w.spans {
		body, err := w.find(ref, x)
		if body != nil || err != nil && !isCorrupt(err) {
			return body, err
		}
		damage = first(damage, err)
	}
	if damage != nil {
		return nil, damage
	}
	return nil, &segment.CorruptError{
		Group: w.s.file.Group,
		At:    segment.Position{Segment: w.s.file.Segment, Pos: segment.FirstBatch},
		Cause: fmt.Sprintf("body %v was written here and is not found", ref),
	}
}

// find walks records until the body's, nil if it is not among them. A ref has one body, so the first
// copy is as good as any. What is damaged may be the body: it is an error if the body is not found elsewhere.
func (w *where) find(ref segment.BodyRef, x extent) (body []byte, err error) {
	var damage error
	pass := func(_ segment.Kind, err error) bool {
		damage = first(damage, err)
		return !off.passOver
	}
	err = walkOver(w.h.f, w.s.file, x, pass, func(r segment.Record) (bool, error) {
		if r.Kind != segment.KindBody {
			return true, nil
		}
		got, payload, err := segment.ParseBody(r.Body)
		if err != nil || got != ref {
			return true, err
		}
		body = append([]byte{}, payload...)
		w.hint = readHint{w.s, r.Pos + r.Size, r.Size}
		return false, nil
	})
	if body == nil && err == nil {
		err = damage
	}
	return body, err
}

// NewBody begins a large body of n bytes. Any goroutine. Write it, Finish it, and give it to the
// Append that names it, or Abort it. A file of the same ref that a crash left unfinished makes way; one
// that an entry names, or that is being written, is fs.ErrExist, unless it is marked as damaged: the new one is for
// Replace then.
func (l *Log) NewBody(ref segment.BodyRef, n int64) (*BodyFile, error) {
	if err := l.failure(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, errClosed
	}
	if b := l.large[ref]; b != nil && b.unproved() {
		delete(l.large, ref)
		if err := removeIfThere(l.fs, filepath.Join(l.dir, bodyName(ref))); err != nil {
			l.mu.Unlock()
			return nil, fmt.Errorf("wal: create body %v: %w", ref, err)
		}
	}
	mends := l.large[ref] != nil && l.large[ref].damaged
	l.mu.Unlock()
	if !mends {
		return createBody(l.fs, l.fl, l.dir, l.group, ref, n, l.rand)
	}
	f, err := createBodyAs(l.fs, l.fl, filepath.Join(l.dir, bodyName(ref)+tmpSuffix), l.group, ref, n, l.rand)
	if err == nil {
		f.mends = l.fl
	}
	return f, err
}

// takeLarge takes a finished body into the log with the batch that names it: its file and the
// directory are flushed with the batch. Log.mu is held.
func (l *Log) takeLarge(f *BodyFile) {
	b := &largeBody{size: f.Length()}
	if old := l.large[f.Ref()]; old != nil && f.mends != nil {
		b.index, b.live = old.index, old.live
	}
	l.large[f.Ref()] = b
	file := f.flushTarget()
	if !off.largeFlush {
		l.dirty(file)
	}
	if !off.largeDirFlush {
		l.dirty(l.dirFile)
	}
	f.handOver()
	f.state = bodyGone
	l.retireLocked(&handle{f: file})
}

// openDir opens the directory as a flush target, once.
func (l *Log) openDir() error {
	if l.dirFile != nil {
		return nil
	}
	d, err := l.fs.OpenDir(l.dir)
	l.dirFile = d
	return err
}
