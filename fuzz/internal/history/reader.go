package history

import (
	"bufio"
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
)

// Source is where a line stands: the number of its file in Files, from 1, and its line, from 1. 0 is nowhere.
type Source struct{ File, Line int }

// Files lists the files of a history: those of all clients in dir and below it, by name. None is an error.
func Files(dir string) (list []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == suffix {
			list = append(list, path)
		}
		return err
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("there is no file *%s", suffix)
	}
	if err != nil {
		return nil, fmt.Errorf("history: read %s: %w", dir, err)
	}
	slices.Sort(list)
	return list, nil
}

// Read yields the lines of all files in the order of time; of equal times, a file's own order stands, and then that of
// the files. The first error ends it: a line that is damaged, or out of its file's order, makes the history useless.
func Read(files []string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		var m merge
		defer m.close()
		for i, name := range files {
			if err := m.open(i+1, name); err != nil {
				yield(Line{}, err)
				return
			}
		}
		heap.Init(&m)
		for len(m) > 0 {
			s := m[0]
			l := s.next
			if !yield(l, nil) {
				return
			}
			if err := s.advance(); err != nil {
				yield(Line{}, err)
				return
			}
			if s.ended {
				heap.Pop(&m)
				_ = s.f.Close() // it was only read
			} else {
				heap.Fix(&m, 0)
			}
		}
	}
}

// stream is one file that is being read.
type stream struct {
	f     *os.File
	r     *bufio.Reader
	next  Line
	ended bool
}

// advance reads the next line.
func (s *stream) advance() error {
	b, err := s.r.ReadBytes('\n')
	at := s.next.Source
	at.Line++
	switch {
	case errors.Is(err, io.EOF) && len(b) == 0:
		s.ended = true
		return nil
	case errors.Is(err, io.EOF):
		err = errors.New("the last line is not whole")
	}
	before := s.next.T
	if err == nil {
		s.next, err = decodeLine(bytes.TrimSuffix(b, []byte("\n")))
	}
	if err == nil && s.next.T < before {
		err = errors.New("it is older than the line before")
	}
	if err != nil {
		return fmt.Errorf("history: %s line %d: %w", s.f.Name(), at.Line, err)
	}
	s.next.Source = at
	return nil
}

// merge is the files by the time of their next lines.
type merge []*stream

func (m *merge) open(n int, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	s := &stream{f: f, r: bufio.NewReaderSize(f, 1<<16)}
	s.next.Source.File = n
	if err := s.advance(); err != nil || s.ended {
		return errors.Join(err, f.Close())
	}
	*m = append(*m, s)
	return nil
}

func (m *merge) close() {
	for _, s := range *m {
		_ = s.f.Close() // it was only read
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (m merge) Len() int { return len(m) }

func (m merge) Less(i, j int) bool {
	a, b := &m[i].next, &m[j].next
	return a.T < b.T || a.T == b.T && a.Source.File < b.Source.File
}

func (m merge) Swap(i, j int) { m[i], m[j] = m[j], m[i] }

// Push is not used: files are opened before.
func (m *merge) Push(x any) { *m = append(*m, x.(*stream)) }

// Pop takes the last one off.
func (m *merge) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// Quote reads lines again, for people: each as "file:line: text".
func Quote(files []string, places []Source) (quoted []string, err error) {
	wanted := make(map[int][]int)
	for _, p := range places {
		if p.File > 0 {
			wanted[p.File] = append(wanted[p.File], p.Line)
		}
	}
	text := make(map[Source]string)
	for file, lines := range wanted {
		if err := quoteFile(files[file-1], file, lines, text); err != nil {
			return nil, err
		}
	}
	for _, p := range places {
		if s, ok := text[p]; ok {
			quoted = append(quoted, s)
		}
	}
	return quoted, nil
}

func quoteFile(name string, file int, lines []int, text map[Source]string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	slices.Sort(lines)
	r := bufio.NewReaderSize(f, 1<<16)
	for n := 1; len(lines) > 0; n++ {
		b, err := r.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("history: %s line %d: %w", name, n, err)
		}
		for len(lines) > 0 && lines[0] == n {
			text[Source{file, n}] = fmt.Sprintf("%s:%d: %.600s", filepath.Base(name), n, bytes.TrimSpace(b))
			lines = lines[1:]
		}
	}
	return nil
}
