package wal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"weida/fsync"
	"weida/segment"
)

// A snapshot is a framed file (see framed.go) whose content is one zstd stream. It is written under a
// temporary name, flushed, renamed to <index>.snap, the directory flushed, and only then named by the
// manifest: until then it is no part of the log.

// snapshotWindow bounds the memory that compressing and decompressing take, in bytes.
const snapshotWindow = 1 << 20

// SnapshotWriter writes a snapshot of the state after the entry at its mark: Write, then Commit or
// Abort. One goroutine uses it, and none is started. It takes about 4 MiB of memory.
type SnapshotWriter struct {
	fs   fsync.FS
	fl   *fsync.Flusher
	dir  string
	mark Mark

	w     *framedWriter
	z     *zstd.Encoder
	plain int64
	err   error // of a write; final
	done  bool

	// before is called when the content is flushed and about to get its name; nil for nobody.
	before func() error
	// onCommit names the snapshot in the manifest; it runs inside Commit when the file is durable.
	onCommit func(snapInfo) error
	// onEnd is called once, when the writer no longer uses its file's name; nil for nobody.
	onEnd func()
	// onFault is told why the file could not be made durable; nil for nobody.
	onFault func(error)
}

// newSnapshot begins a snapshot at m. An unfinished one of the same mark is replaced; the caller makes
// sure that the manifest names none of this index.
func newSnapshot(fs fsync.FS, fl *fsync.Flusher, dir string, g segment.GroupID, m Mark, rand io.Reader) (
	*SnapshotWriter, error,
) {
	s := &SnapshotWriter{fs: fs, fl: fl, dir: dir, mark: m}
	salt, err := segment.NewSalt(rand)
	if err != nil {
		return nil, s.wrap("begin", err)
	}
	if err := removeIfThere(fs, s.tmpPath()); err != nil {
		return nil, s.wrap("begin", err)
	}
	head := framedHead{Type: headSnapshot, Word: [3]uint64{uint64(m.Term), uint64(m.Index), 0}}
	if s.w, err = newFramed(fs, fl, s.tmpPath(), segment.File{Group: g, Salt: salt}, head, 0); err != nil {
		return nil, s.wrap("begin", err)
	}
	s.z, err = zstd.NewWriter(s.w,
		zstd.WithEncoderConcurrency(1), // no goroutine
		zstd.WithWindowSize(snapshotWindow),
		zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, s.wrap("begin", errors.Join(err, s.w.abort()))
	}
	return s, nil
}

func (s *SnapshotWriter) path() string    { return filepath.Join(s.dir, snapshotName(s.mark.Index)) }
func (s *SnapshotWriter) tmpPath() string { return s.path() + tmpSuffix }

func (s *SnapshotWriter) wrap(doing string, err error) error {
	return fmt.Errorf("wal: %s snapshot at index %d: %w; the log is complete without it",
		doing, uint64(s.mark.Index), err)
}

// Write adds content. After an error every call returns it; Abort the snapshot then.
func (s *SnapshotWriter) Write(p []byte) (int, error) {
	s.mustBeOpen("Write")
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.z.Write(p)
	s.plain += int64(n)
	if err != nil {
		s.err = s.wrap("write", err)
	}
	return n, s.err
}

// Commit makes the snapshot durable and part of the log. It blocks on flush rounds. After an error
// the snapshot does not count, unless a restart finds it named by the manifest.
func (s *SnapshotWriter) Commit() error {
	s.mustBeOpen("Commit")
	if s.err != nil {
		return errors.Join(s.err, s.Abort())
	}
	t, err := s.finish()
	if err != nil {
		return errors.Join(s.wrap("write", err), s.Abort())
	}
	defer s.end()
	info := snapInfo{Mark: s.mark, Size: s.w.pos, Salt: s.w.file.Salt, Length: t.Plain, Digest: t.Digest}
	if err := s.publish(); err != nil {
		if s.onFault != nil {
			s.onFault(err)
		}
		return s.wrap("flush", err)
	}
	if s.onCommit == nil {
		return nil
	}
	err = s.onCommit(info)
	if harmless(err) || errors.Is(err, ErrSurpassed) { // the manifest does not name it, and nobody will
		err = errors.Join(err, removeIfThere(s.fs, s.path()))
	}
	return err
}

// finish completes the content of the file.
func (s *SnapshotWriter) finish() (framedTail, error) {
	if err := s.z.Close(); err != nil {
		return framedTail{}, err
	}
	return s.w.finish(s.plain)
}

// publish flushes the file, gives it its name and flushes that.
func (s *SnapshotWriter) publish() error {
	err := flush(s.fl, s.tmpPath(), s.w.f)
	s.w.bulk.Done()
	if err = joinClose(err, s.w.f); err != nil {
		return errors.Join(err, removeIfThere(s.fs, s.tmpPath()))
	}
	if s.before != nil {
		if err := s.before(); err != nil {
			return errors.Join(err, removeIfThere(s.fs, s.tmpPath()))
		}
	}
	name := snapshotName(s.mark.Index)
	if err := renameFlushed(s.fs, s.fl, s.dir, name+tmpSuffix, name); err != nil {
		return errors.Join(err, removeIfThere(s.fs, s.tmpPath()))
	}
	return nil
}

// Abort gives the snapshot up and removes its file. After Commit or Abort it does nothing.
func (s *SnapshotWriter) Abort() error {
	if s.done {
		return nil
	}
	defer s.end()
	return s.w.abort()
}

// end ends the use of the writer.
func (s *SnapshotWriter) end() {
	s.done = true
	if s.onEnd != nil {
		s.onEnd()
	}
}

func (s *SnapshotWriter) mustBeOpen(call string) {
	if s.done {
		panic("bug: wal: SnapshotWriter." + call + " after Commit or Abort")
	}
}

// SnapshotReader reads a snapshot's content. One goroutine uses it, and none is started. Every byte
// it returns was verified; only io.EOF says that the content is complete.
type SnapshotReader struct {
	mark  Mark
	plain int64
	got   int64
	r     *framedReader
	z     *zstd.Decoder
}

// openSnapshot opens the snapshot that the manifest describes by info: head, tail, size and digest
// must be those. An absent file is *segment.CorruptError too, because the manifest names it.
func openSnapshot(fs fsync.FS, dir string, g segment.GroupID, info snapInfo) (*SnapshotReader, error) {
	path := filepath.Join(dir, snapshotName(info.Mark.Index))
	r, err := openFramed(fs, path, g, info.Size)
	if isAbsent(err) {
		return nil, corruptAt(path, g, 0, "the manifest names the file and it is not there")
	}
	if err != nil {
		return nil, err
	}
	head := framedHead{Type: headSnapshot, Word: [3]uint64{uint64(info.Mark.Term), uint64(info.Mark.Index), 0}}
	if r.head != head || r.file.Salt != info.Salt || r.tail.Digest != info.Digest || r.tail.Plain != info.Length {
		return nil, joinClose(corruptAt(path, g, 0, "it is not the snapshot that the manifest names"), r)
	}
	s, err := newSnapshotReader(r)
	if err != nil {
		return nil, joinClose(err, r)
	}
	return s, nil
}

func newSnapshotReader(r *framedReader) (*SnapshotReader, error) {
	z, err := zstd.NewReader(r,
		zstd.WithDecoderConcurrency(1), // no goroutine
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(snapshotWindow))
	if err != nil {
		return nil, fmt.Errorf("wal: open snapshot %s: %w", r.path, err)
	}
	mark := Mark{Term: segment.Term(r.head.Word[0]), Index: segment.Index(r.head.Word[1])}
	return &SnapshotReader{mark: mark, plain: r.tail.Plain, r: r, z: z}, nil
}

// Mark is the last entry that the snapshot covers.
func (s *SnapshotReader) Mark() Mark { return s.mark }

// Length is that of the content in bytes.
func (s *SnapshotReader) Length() int64 { return s.plain }

// Read returns verified content.
func (s *SnapshotReader) Read(p []byte) (int, error) {
	n, err := s.z.Read(p)
	s.got += int64(n)
	return n, s.verdict(err)
}

// WriteTo writes the whole content.
func (s *SnapshotReader) WriteTo(w io.Writer) (n int64, err error) {
	buf := make([]byte, segment.FrameMax)
	for {
		k, err := s.Read(buf)
		wrote, werr := w.Write(buf[:k])
		n += int64(wrote)
		switch {
		case werr != nil:
			return n, werr
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// verdict turns what the decompressor says into damage with a place: the frames verified, so a stream
// that it can't read was damaged before it was written, or in memory.
func (s *SnapshotReader) verdict(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		if s.got == s.plain {
			return io.EOF
		}
		return s.r.corrupt(s.r.pos, fmt.Sprintf("the content has %d bytes, the tail says %d", s.got, s.plain))
	case s.r.err != nil && !errors.Is(s.r.err, io.EOF):
		return s.r.err
	case isCorrupt(err):
		return err
	}
	return fmt.Errorf("%w: %w", s.r.corrupt(s.r.pos, "the content can't be decompressed"), err)
}

// Close releases the file.
func (s *SnapshotReader) Close() error {
	s.z.Close()
	return s.r.Close()
}
