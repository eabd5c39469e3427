package segment

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// disk is a lab whose files have a page cache: what is written is in the files, what is flushed is
// in the images.
type disk struct {
	*lab
	rt      *rapid.T
	image   [][]byte // as it stands on the medium, per part
	flushed int      // batches certainly on the medium
	last    struct { // the last write
		part int
		pos  int64
		n    int64
	}
	batches int // whole batches before the last write if that was a batch, else all
}

const sectorSize = 512

func (d *disk) flush() {
	d.image = d.image[:0]
	for _, p := range d.parts {
		d.image = append(d.image, bytes.Clone(p.data))
	}
	d.flushed = len(d.wrote)
	d.lab.flushed()
	d.last.n = 0
	if rapid.Bool().Draw(d.rt, "manifest") {
		d.known.Promise = d.end
	}
}

func (d *disk) append() {
	lens := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 100, 500, 3000, 9000}), 0, 3).Draw(d.rt, "bodies")
	d.batches = len(d.wrote)
	if rapid.IntRange(0, 7).Draw(d.rt, "truncate") == 0 && d.index > 1 {
		p := d.cur()
		d.b.Reset(p.file, p.pos, d.chain, Stamp{Promise: d.promise, Commit: d.index, Boot: d.boot})
		d.b.Truncate(d.index)
		d.index--
		d.write()
	} else {
		d.batch(lens...)
	}
	w := d.wrote[len(d.wrote)-1]
	d.last.part, d.last.pos, d.last.n = w.part, w.pos, int64(len(w.bytes))
}

// roll starts a segment: its header is flushed, with its directory entry, before it is used.
func (d *disk) roll() {
	p := d.lab.roll()
	for len(d.image) < len(d.parts) {
		d.image = append(d.image, nil)
	}
	d.image[len(d.parts)-1] = bytes.Clone(p.data)
}

// seal writes the footer of a part that is not the current one, flushes it, and names it sealed.
func (d *disk) seal() {
	if d.sealed+1 >= len(d.parts) || d.parts[d.sealed].limit != 0 {
		return
	}
	p := d.parts[d.sealed]
	footer := EncodeFooter(p.file, p.pos, p.rows, p.chain, d.index)
	p.grow(p.pos + int64(len(footer)))
	copy(p.data[p.pos:], footer)
	d.last.part, d.last.pos, d.last.n = d.sealed, p.pos, int64(len(footer))
	d.batches = len(d.wrote)
	if !rapid.Bool().Draw(d.rt, "seal ends") {
		return
	}
	d.flush()
	d.known.Chain = p.chain
	d.sealed++
}

// kill ends the process inside its last write.
func (d *disk) kill() (least int) {
	least = len(d.wrote)
	if d.last.n == 0 || !rapid.Bool().Draw(d.rt, "inside a write") {
		return least
	}
	first, end := d.last.pos/pageSize+1, (d.last.pos+d.last.n-1)/pageSize
	if first > end {
		return least
	}
	cut := rapid.Int64Range(first, end).Draw(d.rt, "page") * pageSize
	clear(d.parts[d.last.part].data[cut : d.last.pos+d.last.n])
	return d.batches
}

// power cuts the power: of everything not flushed, each sector is on the medium or is not.
func (d *disk) power() (least int) {
	keep := rapid.SampledFrom([]string{"none", "all", "some"}).Draw(d.rt, "keep")
	for i, p := range d.parts {
		image := make([]byte, len(p.data))
		copy(image, d.image[i])
		for at := 0; at < len(p.data); at += sectorSize {
			now, old := p.data[at:at+sectorSize], image[at:at+sectorSize]
			if keep != "none" && !bytes.Equal(now, old) && (keep == "all" || rapid.Bool().Draw(d.rt, "sector")) {
				copy(old, now)
			}
		}
		p.data = image
	}
	d.boot[0]++
	d.known.Boot = d.boot
	return d.flushed
}

// reopen recovers and goes on the way a log does.
func (d *disk) reopen(least int) {
	end, n := d.recover()
	if end.Verdict != Valid && end.Verdict != Torn {
		d.rt.Fatalf("after a crash: %v: %v", end.Verdict, end.Err)
	}
	if n < least {
		d.rt.Fatalf("%d batches came back, %d are certain", n, least)
	}
	again, _ := d.recover()
	if again.Verdict != end.Verdict || again.At != end.At || again.Chain != end.Chain {
		d.rt.Fatalf("a second recovery says %+v, the first %+v", again, end)
	}
	d.wrote, d.chain, d.index = d.wrote[:n], end.Chain, 0
	for i, p := range d.parts[d.sealed:] {
		p.pos, p.chain = end.Parts[i].End, end.Parts[i].Chain
		for len(p.rows) > 0 && p.rows[len(p.rows)-1].Pos >= p.pos {
			p.rows = p.rows[:len(p.rows)-1]
		}
		d.index = max(d.index, end.Parts[i].Last)
	}
	d.index += 1000 // gaps do no harm here
	d.end = Position{}
	if n > 0 {
		w := d.wrote[n-1]
		d.end = Position{d.parts[w.part].file.Segment, w.pos + int64(len(w.bytes))}
	}
	if end.Verdict == Torn {
		for _, p := range d.parts[d.sealed:] {
			if p.file.Segment >= end.At.Segment {
				p.limit = p.pos
			}
		}
	}
	d.flush()
	if end.Verdict == Torn || !end.Reusable {
		d.roll()
	} else if end.At.Segment != d.cur().file.Segment {
		d.rt.Fatalf("the log goes on at %v, but the newest segment is %d", end.At, d.cur().file.Segment)
	}
}

// TestCrashes: through any number of kills, power cuts and clean stops, nothing that was flushed or
// survived a kill is lost, nothing is invented, and what a crash leaves is never called corrupt.
func TestCrashes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := &disk{lab: newLab(rt), rt: rt}
		d.image = [][]byte{bytes.Clone(d.cur().data)}
		d.promise = Position{}
		for range rapid.IntRange(1, 4).Draw(rt, "lives") {
			for range rapid.IntRange(0, 12).Draw(rt, "steps") {
				switch rapid.IntRange(0, 9).Draw(rt, "step") {
				case 0, 1:
					d.flush()
				case 2:
					d.roll()
				case 3:
					d.seal()
				default:
					d.append()
				}
			}
			d.known.CleanStop = false
			var least int
			switch rapid.SampledFrom([]string{"kill", "power", "both", "stop"}).Draw(rt, "end") {
			case "kill":
				least = d.kill()
			case "power":
				least = d.power()
			case "both":
				d.kill()
				least = d.power()
			case "stop":
				d.flush()
				d.known.CleanStop, least = true, len(d.wrote)
			}
			d.reopen(least)
		}
	})
}

// TestRot: a changed byte in the flushed part of a log is found whatever else happened, is never
// called torn, and nothing that was not written is read.
func TestRot(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := &disk{lab: newLab(rt), rt: rt}
		d.image = [][]byte{bytes.Clone(d.cur().data)}
		d.promise = Position{}
		for range rapid.IntRange(1, 10).Draw(rt, "batches") {
			d.append()
			if rapid.IntRange(0, 3).Draw(rt, "roll") == 0 {
				d.roll()
			}
		}
		d.flush()
		d.append() // it carries the promise, if the manifest does not
		w := d.wrote[rapid.IntRange(0, len(d.wrote)-2).Draw(rt, "batch")]
		at := w.pos + rapid.Int64Range(0, int64(len(w.bytes))-1).Draw(rt, "byte")
		d.parts[w.part].data[at] ^= byte(rapid.IntRange(1, 255).Draw(rt, "bits"))
		if rapid.Bool().Draw(rt, "other boot") {
			d.known.Boot = Boot{77}
		}
		end, _ := d.recover()
		if end.Verdict != Corrupt {
			rt.Fatalf("%v at %v: %v", end.Verdict, end.At, end.Err)
		}
		var corrupt *CorruptError
		if !errors.As(end.Err, &corrupt) || (Position{d.parts[w.part].file.Segment, at}).Less(corrupt.At) {
			rt.Fatalf("the error does not name the place: %v", end.Err)
		}
	})
}

// TestScanAnything: whatever stands in a file, every record that comes back was written there.
func TestScanAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab(rt)
		for range rapid.IntRange(0, 6).Draw(rt, "batches") {
			l.batch(rapid.IntRange(0, 2000).Draw(rt, "body"))
		}
		p := l.cur()
		for range rapid.IntRange(0, 6).Draw(rt, "changes") {
			from := rapid.IntRange(0, int(p.pos)-1).Draw(rt, "from")
			n := rapid.IntRange(1, 600).Draw(rt, "n")
			to := rapid.IntRange(0, int(p.pos)-1).Draw(rt, "to")
			switch rapid.IntRange(0, 2).Draw(rt, "change") {
			case 0:
				clear(p.data[from : from+n])
			case 1:
				copy(p.data[to:to+n], p.data[from:])
			default:
				p.data[from] ^= byte(n)
			}
		}
		p.data = p.data[:rapid.IntRange(0, len(p.data)).Draw(rt, "size")]
		l.known.CleanStop = rapid.Bool().Draw(rt, "clean stop")
		if rapid.Bool().Draw(rt, "other boot") {
			l.known.Boot = Boot{77}
		}
		l.recover()
	})
}

// TestRoundTrip: what a builder takes in comes out of ParseBatch.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := File{
			Group:   GroupID(rapid.Uint64().Draw(rt, "group")),
			Segment: Number(rapid.Uint64Min(1).Draw(rt, "segment")),
			Salt:    Salt(rapid.Uint64().Draw(rt, "salt")),
		}
		pos := FirstBatch + 8*rapid.Int64Range(0, 1<<28).Draw(rt, "pos")
		var b Builder
		stamp := Stamp{Commit: Index(rapid.Uint64().Draw(rt, "commit")), Boot: Boot{byte(pos)}}
		b.Reset(f, pos, Chain(rapid.Uint64().Draw(rt, "chain")), stamp)
		type item struct {
			kind Kind
			ref  BodyRef
			i    Index
			data []byte
		}
		var items []item
		for range rapid.IntRange(0, 6).Draw(rt, "records") {
			it := item{
				kind: rapid.SampledFrom([]Kind{KindBody, KindEntry, KindTruncate, KindVoid}).Draw(rt, "kind"),
				ref:  BodyRef{Term(rapid.Uint64().Draw(rt, "term")), rapid.Uint64().Draw(rt, "seq")},
				i:    Index(rapid.Uint64Min(1).Draw(rt, "index")),
				data: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "data"),
			}
			switch it.kind {
			case KindBody:
				b.Body(it.ref, it.data[:len(it.data)/2], it.data[len(it.data)/2:])
			case KindEntry:
				b.Entry(Entry{Index: it.i, Term: it.ref.Term, Data: it.data})
			case KindTruncate:
				b.Truncate(it.i)
			default:
				b.Void(it.ref, it.i)
			}
			items = append(items, it)
		}
		raw, next := b.Finish()
		bt, err := ParseBatch(raw, f, pos, nil)
		if err != nil || bt.Next != next || bt.Stamp != stamp || len(bt.Rows) != len(items) {
			rt.Fatalf("%+v %v", bt, err)
		}
		for i, it := range items {
			rec, _, err := ReadRecord(offsetReader{raw, pos}, f, bt.Rows[i], nil)
			if err != nil {
				rt.Fatal(err)
			}
			got := item{kind: rec.Kind, ref: it.ref, i: it.i, data: it.data}
			switch it.kind {
			case KindBody:
				got.ref, got.data, err = ParseBody(rec.Body)
			case KindEntry:
				var e Entry
				e, err = ParseEntry(rec.Body)
				got.i, got.ref.Term, got.data = e.Index, e.Term, e.Data
			case KindTruncate:
				got.i, err = ParseTruncate(rec.Body)
			default:
				got.ref, got.i, err = ParseVoid(rec.Body)
			}
			if err != nil || got.ref != it.ref || got.i != it.i || !bytes.Equal(got.data, it.data) {
				rt.Fatalf("record %d: %+v, want %+v (%v)", i, got, it, err)
			}
		}
	})
}

// offsetReader reads bytes that stand at an offset of a file.
type offsetReader struct {
	b  []byte
	at int64
}

func (r offsetReader) ReadAt(p []byte, pos int64) (int, error) {
	return bytes.NewReader(r.b).ReadAt(p, pos-r.at)
}
