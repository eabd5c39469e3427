package peer

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"weida/raftstore"
)

// FuzzHello: what is read as a hello is written the same way, and nothing else is one.
func FuzzHello(f *testing.F) {
	h := saying(nil)
	f.Add(h.encode())
	f.Add(make([]byte, helloLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("%+v is written as %x, not %x", h, h.encode(), b)
		}
	})
}

// FuzzExchange: an exchange is refused or holds exactly its bytes, no frame reaches into another's, and memory grows
// with what came, not with what was announced.
func FuzzExchange(f *testing.F) {
	b := newBatch()
	b.add(frame(1, "one"))
	b.add(frame(2, ""))
	for i, at := range b.frames {
		be.PutUint64(b.buf[at+8:], uint64(i+1))
	}
	be.PutUint32(b.buf, 2)
	be.PutUint32(b.buf[4:], uint32(b.size()))
	f.Add(b.buf)
	f.Add([]byte{0, 0, 0, 1, 255, 255, 255, 255})
	f.Add([]byte{0, 0, 0, 1, 0, 64, 0, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		frames, size, err := readHead(r)
		if err != nil {
			return
		}
		buf, err := grow(r, nil, size)
		if cap(buf) > 2*len(in)+chunkMax {
			t.Fatalf("%d bytes of memory for %d bytes", cap(buf), len(in))
		}
		if err != nil {
			return
		}
		list, err := parseFrames(buf, frames)
		if err != nil {
			return
		}
		var out batch
		out.buf = be.AppendUint32(be.AppendUint32(nil, uint32(len(list))), uint32(size))
		for _, f := range list {
			out.add(f.Frame)
			be.PutUint64(out.buf[out.frames[len(out.frames)-1]+8:], f.number)
			if cap(f.Data) > len(f.Data) {
				t.Error("a frame reaches into the next")
			}
		}
		if !bytes.Equal(out.buf, in[:len(in)-r.Len()]) {
			t.Errorf("%x is written as %x", in, out.buf)
		}
	})
}

// FuzzRefusals: an answer is read as it was written.
func FuzzRefusals(f *testing.F) {
	f.Add(encodeRefusals([]raftstore.Refusal{
		{Group: 1, Why: raftstore.UnknownGroup}, {Group: 2, Why: raftstore.RetiredGroup},
	}))
	f.Fuzz(func(t *testing.T, in []byte) {
		list, err := readRefusals(bytes.NewReader(in))
		if err == nil && !bytes.Equal(encodeRefusals(list), in) {
			t.Errorf("%x is read as %v", in, list)
		}
	})
}

// FuzzPayload: a payload stream is read as the frames that were written, however the bytes come.
func FuzzPayload(f *testing.F) {
	write := func(list []raftstore.Frame) (b []byte) {
		for _, f := range list {
			b = be.AppendUint32(be.AppendUint64(b, uint64(f.Group)), uint32(len(f.Data)))
			b = append(b, f.Data...)
		}
		return b
	}
	f.Add(write([]raftstore.Frame{frame(1, "one"), frame(2, ""), frame(3, "three")}), 7)
	f.Add(write(slices.Repeat([]raftstore.Frame{frame(1, "x")}, 3*payloadFrames)), 1000)
	f.Fuzz(func(t *testing.T, in []byte, piece int) {
		var out []byte
		r := bufio.NewReaderSize(&pieces{in, max(1, piece)}, chunkMax)
		for {
			list, err := readPayload(r)
			if len(list) > payloadFrames || err == nil && len(list) == 0 {
				t.Fatalf("%d frames at a time", len(list))
			}
			out = append(out, write(list)...)
			if errors.Is(err, io.EOF) && !bytes.Equal(out, in) {
				t.Errorf("%x is read as %x", in, out)
			}
			if err != nil {
				return
			}
		}
	})
}

// pieces gives bytes out in pieces.
type pieces struct {
	b []byte
	n int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.n)], p.b)
	p.b = p.b[n:]
	return n, nil
}
