package connector

import (
	"bufio"
	"errors"
	"io"
	"math"

	"weida/broker/wire"
	"weida/fsync"
)

// line is one line of a file: its bytes are [start, end), without the newline; the next begins at next.
type line struct {
	start, end, next int64
	text             []byte // valid until the next line is read; nil if it is longer than wire.InlineMax
}

// lines reads a file line by line, in constant memory.
type lines struct {
	at int64
	r  *bufio.Reader
}

func newLines(f fsync.File, at int64) *lines {
	r := io.NewSectionReader(f, at, math.MaxInt64-at)
	return &lines{at: at, r: bufio.NewReaderSize(r, wire.InlineMax+1)}
}

// next returns the next line. With io.EOF there is no newline behind it: it is the unfinished rest, maybe empty, and
// nothing can be read any more.
func (l *lines) next() (line, error) {
	text, err := l.r.ReadSlice('\n')
	n := int64(len(text))
	long := false
	for errors.Is(err, bufio.ErrBufferFull) {
		long = true
		text, err = l.r.ReadSlice('\n')
		n += int64(len(text))
	}
	ln := line{start: l.at, end: l.at + n, next: l.at + n, text: text}
	if err == nil {
		ln.end--
		ln.text = text[:len(text)-1]
	}
	if long {
		ln.text = nil
	}
	l.at = ln.next
	return ln, err
}
