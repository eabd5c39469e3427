package connector

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/fsync"
)

// pieceMax is how many bytes of a large message are written at once.
const pieceMax = 256 << 10

// errNewline is a body that holds a newline where none may be.
var errNewline = errors.New("a newline inside")

// writer appends records to a file. A record that is not whole is written over by the next.
type writer struct {
	f       fsync.File
	framing framing
	buf     []byte
}

// append writes a message behind end and returns where its record ends. On an error the file may have bytes behind end.
// Errors: errNewline; the body's, as of client.Delivery; *fsync.Error.
func (w *writer) append(d *client.Delivery, end int64) (int64, error) {
	w.buf = w.buf[:0]
	if w.framing == framedByLength {
		w.buf = fmt.Appendf(w.buf, "%d\n", d.Length)
	}
	if d.Length > wire.InlineMax {
		return w.large(d, end)
	}
	at := len(w.buf)
	b := bytes.NewBuffer(w.buf)
	if _, err := b.ReadFrom(d.Body()); err != nil {
		return end, err
	}
	w.buf = b.Bytes()
	if w.newlineIn(w.buf[at:]) {
		return end, errNewline
	}
	w.buf = append(w.buf, '\n')
	return w.flush(end)
}

func (w *writer) newlineIn(p []byte) bool {
	return w.framing == framedByNewline && bytes.IndexByte(p, '\n') >= 0
}

// flush writes the buffer at pos and returns the position behind it.
func (w *writer) flush(pos int64) (int64, error) {
	if _, err := w.f.WriteAt(w.buf, pos); err != nil {
		return pos, err
	}
	pos += int64(len(w.buf))
	w.buf = w.buf[:0]
	return pos, nil
}

// large writes a message in pieces.
func (w *writer) large(d *client.Delivery, pos int64) (int64, error) {
	piece := make([]byte, pieceMax)
	for body := d.Body(); ; {
		n, err := io.ReadFull(body, piece)
		if w.newlineIn(piece[:n]) {
			return pos, errNewline
		}
		w.buf = append(w.buf, piece[:n]...)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return pos, err
		}
		if last {
			w.buf = append(w.buf, '\n')
		}
		if pos, err = w.flush(pos); err != nil || last {
			return pos, err
		}
	}
}
