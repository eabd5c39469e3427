package wal

import (
	"errors"
	"fmt"

	"weida/fsync"
	"weida/segment"
)

// A segment is made in this order, and a crash between any two steps leaves either a file that the
// manifest does not name, which holds nothing, or a whole segment:
//
//	create with O_EXCL, preallocate, write the header, flush the file, flush the directory,
//	save the manifest that names it
//
// It is sealed in this order: flush it, with the large bodies that its entries name, as every batch is;
// write the footer behind its log, flush that, save the manifest. A sealed segment is a promise.

// createWork makes the next segment ready, so that an append practically never waits for it.
func (l *Log) createWork() *work {
	facts, promise := l.facts(), l.safe
	base := l.last.Index + 1
	var made *seg
	return &work{
		kind: JobCreate,
		run: func() (err error) {
			made, err = l.createSegment(facts, promise, base, nil)
			return err
		},
		take: func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.segs = append(l.segs, made)
			l.ready = append(l.ready, made)
			l.wanted = false
		},
	}
}

// createSegment makes a segment and saves the manifest that names it; edit may change more in the
// same record.
func (l *Log) createSegment(facts []segFacts, promise segment.Position, base segment.Index,
	edit func(*manifest),
) (*seg, error) {
	salt, err := segment.NewSalt(l.rand)
	if err != nil {
		return nil, l.fault("make a segment", err)
	}
	l.manMu.Lock()
	number, seq := max(l.man.Next, l.numbered+1), l.man.Seq+1
	l.numbered = number // a number that was tried is never tried again: its file may still be there
	l.manMu.Unlock()
	s := &seg{
		file:  segment.File{Group: l.group, Segment: number, Salt: salt},
		base:  base,
		end:   segment.FirstBatch,
		limit: 0,
		size:  max(l.firstBytes, segment.FirstBatch),
	}
	save := func() error {
		return l.change(facts, promise, func(m *manifest) {
			m.Next = number + 1
			m.Segments = append(m.Segments, segInfo{Number: number, Salt: salt, State: segOpen, Base: base})
			if edit != nil {
				edit(m)
			}
		})
	}
	if off.manifestLast {
		if err := save(); err != nil {
			return nil, l.fault("make a segment", err)
		}
		save = func() error { return nil }
	}
	if err := l.writeSegment(s, seq); err != nil {
		return nil, l.fault("make "+segmentName(number), err)
	}
	if err := save(); err != nil {
		return nil, l.fault("make "+segmentName(number), err)
	}
	return s, nil
}

// writeSegment makes the file of s, durably. If the disk is full it leaves no file behind.
func (l *Log) writeSegment(s *seg, seq uint64) error {
	path := l.segPath(s.file.Segment)
	f, err := l.fs.Create(path)
	if err != nil {
		return err
	}
	err = f.Allocate(0, s.size)
	if err == nil {
		_, err = f.WriteAt(segment.EncodeHeader(s.file, segment.Header{Base: s.base, Manifest: seq}), 0)
	}
	if errors.Is(err, fsync.ErrDiskFull) {
		return errors.Join(err, f.Close(), l.fs.Remove(path))
	}
	if err == nil && !off.createFileFlush {
		err = l.fl.Flush(path, f)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if off.createDirFlush {
		return nil
	}
	return flushDir(l.fs, l.fl, l.dir)
}

// fullSegment returns the oldest segment that can be sealed. They are sealed in order, so that the
// sealed ones are always a prefix, and only when everything in them is confirmed flushed.
func (l *Log) fullSegment() *seg {
	for _, s := range l.segs {
		if s.state == segSealed {
			continue
		}
		if s == l.cur || len(l.ready) > 0 && s == l.ready[0] || s.flawed {
			return nil
		}
		end := segment.Position{Segment: s.file.Segment, Pos: s.end}
		if l.safe.Less(end) && s.end > segment.FirstBatch && !off.sealFlush {
			l.RequestFlush()
			return nil
		}
		return s
	}
	return nil
}

// sealWork gives a full segment its footer. Nobody writes to it any more but this job.
func (l *Log) sealWork(s *seg) *work {
	facts, promise := l.facts(), l.safe
	end, chain, last := s.end, s.chain, s.last
	info := s.info()
	records := int(s.bodies) + int(s.hi-s.lo)
	var footer segment.Footer
	var flaw error
	return &work{
		kind: JobSeal,
		run: func() (err error) {
			footer, err = l.seal(s, end, chain, last, records)
			if errors.Is(err, errFlawed) {
				flaw = err
				return nil
			}
			if err != nil {
				return l.fault("seal "+segmentName(s.file.Segment), err)
			}
			info.State, info.Size, info.FooterPos = segSealed, footer.Pos+footer.Size, footer.Pos
			info.Last, info.Chain = last, chain
			err = l.change(facts, promise, func(m *manifest) {
				for i := range m.Segments {
					if m.Segments[i].Number == info.Number {
						info.Named = max(info.Named, m.Segments[i].Named)
						m.Segments[i] = info
					}
				}
			})
			if err != nil {
				return l.fault("seal "+segmentName(s.file.Segment), err)
			}
			return nil
		},
		take: func() {
			if flaw == nil {
				l.sealed(s, footer)
				return
			}
			s.flawed = true
			l.emit(Event{Kind: EventPinned, Path: l.segPath(s.file.Segment), Err: flaw})
		},
	}
}

func (l *Log) sealed(s *seg, footer segment.Footer) {
	l.mu.Lock()
	s.state, s.footer, s.spans = segSealed, footer, nil
	s.size = max(s.size, footer.Pos+footer.Size)
	l.retireLocked(s.h) // it was opened for writing
	s.h = nil
	l.mu.Unlock()
	l.emit(Event{Kind: EventSegmentSealed, Path: l.segPath(s.file.Segment)})
}

// info is what the manifest will say about s, apart from what sealing adds.
func (s *seg) info() segInfo {
	return segInfo{
		Number: s.file.Segment, Salt: s.file.Salt, State: s.state, Base: s.base, Limit: s.limit,
		FirstRef: s.minRef, LastRef: s.maxRef, Bodies: s.bodies,
		Named: s.named, Large: s.large, Payload: s.payload,
	}
}

// seal builds the footer of a segment by reading it again, and writes it, flushed.
func (l *Log) seal(s *seg, end int64, chain segment.Chain, last Mark, records int) (segment.Footer, error) {
	path := l.segPath(s.file.Segment)
	h, err := l.acquire(s)
	if err != nil {
		return segment.Footer{}, err
	}
	defer l.release(h)
	rows := make([]segment.Row, 0, records)
	var next segment.Chain
	at := segment.FirstBatch
	if end > at {
		at, next, err = segment.EachBatch(h.f, end, s.file, at, func(b *segment.Batch) error {
			rows = append(rows, b.Rows...)
			return nil
		})
		if isCorrupt(err) {
			rows, err = l.salvage(s, h.f, end, err)
			at, next = end, chain
		}
		if err != nil {
			return segment.Footer{}, withPath(err, path)
		}
		if at != end || next != chain {
			return segment.Footer{}, &segment.CorruptError{
				Path: path, Group: l.group,
				At:    segment.Position{Segment: s.file.Segment, Pos: at},
				Cause: fmt.Sprintf("the log read back ends here, but it was written up to byte %d", end),
			}
		}
	}
	raw := segment.EncodeFooter(s.file, end, rows, chain, last.Index)
	if n, err := h.f.WriteAt(raw, end); err != nil {
		if errors.Is(err, fsync.ErrDiskFull) && s.limit == 0 {
			err = errors.Join(err, clearBack(h.f, end, int64(n)))
		}
		return segment.Footer{}, err
	}
	if err := l.fl.Flush(path, h.f); err != nil {
		return segment.Footer{}, err
	}
	return segment.OpenFooter(h.f, s.file, end)
}
