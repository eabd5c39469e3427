package history

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Now is the time for events.
func Now() Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("bug: history: the machine has no monotonic clock: " + err.Error())
	}
	return Time(ts.Nano())
}

// suffix is that of the files of a history.
const suffix = ".jsonl"

// Writer writes the file of one client. Its methods may be called from any goroutine.
type Writer struct {
	client string
	tee    func(*Line)

	mu   sync.Mutex
	file *os.File
	w    *bufio.Writer
	line []byte // memory of the one that is written
	last Time
	ref  uint64
	err  error // the first one
}

// NewWriter makes the file of a client in dir, which is made too; a file that is there is refused. tee, unless it is
// nil, is given every event as it is noted, in the order of the file: a Checker that looks on.
func NewWriter(dir, client string, tee func(*Line)) (*Writer, error) {
	err := os.MkdirAll(dir, 0o755)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(filepath.Join(dir, client+suffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("history: begin the file of %s: %w", client, err)
	}
	return &Writer{client: client, tee: tee, file: f, w: bufio.NewWriterSize(f, 1<<16)}, nil
}

// Ref is a new reference for a call of this client: 1, 2, ...
func (w *Writer) Ref() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ref++
	return w.ref
}

// Note writes an event of this moment: what is asked for before it is asked, what was told after it was told.
func (w *Writer) Note(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &Line{T: max(Now(), w.last), Client: w.client, Event: e}
	w.last = l.T
	if w.err != nil {
		return
	}
	if w.line, w.err = appendLine(w.line[:0], l); w.err == nil {
		_, w.err = w.w.Write(w.line)
	}
	if w.tee != nil {
		w.tee(l)
	}
}

// Flush hands what was noted to the operating system, so that a reader sees it and the end of this process does not
// cost it.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.wrapped()
}

// Close ends the file. Its error is the first one of all calls: with one the history is not whole.
func (w *Writer) Close() error {
	err := w.Flush()
	return errors.Join(err, w.file.Close())
}

func (w *Writer) wrapped() error {
	if w.err == nil {
		return nil
	}
	return fmt.Errorf("history: write the file of %s: %w; the history is not whole", w.client, w.err)
}
