package wal

import (
	"errors"

	"weida/fsync"
	"weida/segment"
)

// A framed file holds one long piece of content: a large body or a snapshot. A head record says what
// it is; frames of FrameMax bytes, the last one shorter, hold the content; a tail record ends it with
// the content's length and digest. All of them are one chain, and all are seeded with a salt drawn
// for the file, so every frame is verified before a byte of it is handed out.

// headType is the first word of every head record. Numbers are never reused.
type headType uint64

const (
	headBody     headType = 1 // term and sequence of the ref, announced length
	headSnapshot headType = 2 // term and index of the last entry covered, 0
)

const (
	framedHeadLen = 32 // type and three words
	framedTailLen = 32 // length of the content, digest, plain length

	framedHeadSize int64 = segment.HeaderSize + framedHeadLen
	framedTailSize int64 = segment.HeaderSize + framedTailLen
	frameStride    int64 = segment.HeaderSize + segment.FrameMax

	// allocateBytes is how far ahead of the content space is reserved: a full disk is then met before
	// anything is written, not when the kernel writes back.
	allocateBytes = 1 << 20
)

// framedHead is what the head record says.
type framedHead struct {
	Type headType
	Word [3]uint64
}

// framedTail is what the tail record says.
type framedTail struct {
	Length int64 // of the content as framed
	Digest segment.Digest
	Plain  int64 // of the content before compression
}

// framedSize is the size of the file with n bytes of content.
func framedSize(n int64) int64 {
	size := framedHeadSize + n/segment.FrameMax*frameStride + framedTailSize
	if rest := n % segment.FrameMax; rest > 0 {
		size += segment.SizeOf(int(rest))
	}
	return size
}

// framedWriter writes a framed file that nobody reads yet. One goroutine uses it. It holds one frame
// of content and one record in memory.
type framedWriter struct {
	fs   fsync.FS
	path string
	f    fsync.File
	bulk *fsync.Bulk
	file segment.File

	pos       int64 // where the next record goes
	allocated int64
	took      func(n int64) // told of every step of it before it is taken; may be nil
	sizeMax   int64         // of the file if it is known, else 0
	chain     segment.Chain
	content   []byte // of the frame being filled
	record    []byte
	digest    segment.Hasher
	length    int64
}

// newFramed creates the file. sizeMax is its size if that is known, else 0.
func newFramed(fs fsync.FS, fl *fsync.Flusher, path string, f segment.File, h framedHead, sizeMax int64) (
	w *framedWriter, err error,
) {
	w = &framedWriter{fs: fs, path: path, file: f, sizeMax: sizeMax}
	if w.f, err = fs.Create(path); err != nil {
		return nil, err
	}
	w.bulk = fl.NewBulk()
	words := words{b: make([]byte, 0, framedHeadLen)}
	words.u64(uint64(h.Type), h.Word[0], h.Word[1], h.Word[2])
	if err := w.put(segment.KindFileHead, words.b); err != nil {
		return nil, errors.Join(err, w.abort())
	}
	return w, nil
}

// put writes one record at the end.
func (w *framedWriter) put(k segment.Kind, body []byte) error {
	n := segment.SizeOf(len(body))
	if err := w.reserve(w.pos + n); err != nil {
		return err
	}
	w.record, w.chain = segment.AppendRecord(w.record[:0], w.file, w.pos, k, w.chain, body)
	if _, err := w.f.WriteAt(w.record, w.pos); err != nil {
		return err
	}
	if err := w.bulk.Wrote(w.f, w.pos, n); err != nil {
		return err
	}
	w.pos += n
	return nil
}

// reserve allocates space up to limit and some more, never beyond the size the file will have.
func (w *framedWriter) reserve(limit int64) error {
	if w.sizeMax == 0 || limit <= w.allocated {
		return nil
	}
	limit = min(max(limit, w.allocated+allocateBytes), w.sizeMax)
	if w.took != nil {
		w.took(limit - w.allocated)
	}
	if err := w.f.Allocate(w.allocated, limit-w.allocated); err != nil {
		return err
	}
	w.allocated = limit
	return nil
}

// Write adds content. After an error the file must be given up.
func (w *framedWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		took := min(len(p), segment.FrameMax-len(w.content))
		if took == segment.FrameMax {
			err = w.frame(p[:took]) // a whole frame needs no copy
		} else if w.content = append(w.content, p[:took]...); len(w.content) == segment.FrameMax {
			err = w.frame(w.content)
			w.content = w.content[:0]
		}
		if err != nil {
			return n, err
		}
		p = p[took:]
		n += took
	}
	return n, nil
}

func (w *framedWriter) frame(content []byte) error {
	if _, err := w.digest.Write(content); err != nil {
		return err
	}
	w.length += int64(len(content))
	return w.put(segment.KindFrame, content)
}

// drain writes the last frame, so that length and digest are those of the whole content.
func (w *framedWriter) drain() error {
	if len(w.content) == 0 {
		return nil
	}
	last := w.content
	w.content = nil
	return w.frame(last)
}

// finish writes the tail. The file is then whole and written, not flushed. plain is the length of the
// content before compression.
func (w *framedWriter) finish(plain int64) (framedTail, error) {
	if err := w.drain(); err != nil {
		return framedTail{}, err
	}
	t := framedTail{Length: w.length, Digest: w.digest.Sum(), Plain: plain}
	b := words{b: make([]byte, 0, framedTailLen)}
	b.u64(uint64(t.Length))
	b.b = append(b.b, t.Digest[:]...)
	b.u64(uint64(t.Plain))
	err := w.put(segment.KindFileTail, b.b)
	w.content, w.record = nil, nil
	return t, err
}

// abort gives the file up and removes it. The removal is not flushed: a file that comes back after a
// power cut is named by nothing.
func (w *framedWriter) abort() error {
	w.bulk.Done()
	return errors.Join(w.fs.Remove(w.path), w.f.Close())
}
