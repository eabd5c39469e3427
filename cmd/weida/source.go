package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"weida/broker/client"
	"weida/broker/wire"
)

// source gives messages one after another.
type source struct {
	total int64 // bytes, 0 if unknown
	next  func() (client.Message, error)
	close func()
}

const lineMax = wire.InlineMax

func openSource(text []string, f pubFlags) (*source, error) {
	given := len(text)
	for _, s := range []string{f.file, f.lines} {
		if s != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, errors.New("say what to publish in exactly one way: TEXT, -, --file FILE or --lines FILE; " +
			"nothing was sent")
	case f.count != 1 && (len(text) == 0 || text[0] == "-"):
		return nil, errors.New("--count repeats a TEXT; a file is published once; nothing was sent")
	case f.count < 1 || f.rate < 0:
		return nil, errors.New("--count is 1 or more, and --rate 0 or more; nothing was sent")
	}
	switch {
	case f.file != "":
		return fileSource(f.file)
	case f.lines == "-":
		return lineSource(os.Stdin, 0, func() {}), nil
	case f.lines != "":
		file, size, err := openFile(f.lines)
		if err != nil {
			return nil, err
		}
		return lineSource(file, size, func() { _ = file.Close() }), nil // read only
	case text[0] == "-":
		return inputSource(os.Stdin)
	}
	left := f.count
	return &source{close: func() {}, next: func() (client.Message, error) {
		if left--; left < 0 {
			return client.Message{}, io.EOF
		}
		return client.Message{Body: strings.NewReader(text[0]), Length: int64(len(text[0]))}, nil
	}}, nil
}

// inputMax is how much of an input of unknown length is kept in memory to learn it, in bytes.
const inputMax = 16 << 20

// inputSource publishes what is left of a file, or all that a pipe gives.
func inputSource(in *os.File) (*source, error) {
	if info, err := in.Stat(); err == nil && info.Mode().IsRegular() {
		pos, err := in.Seek(0, io.SeekCurrent)
		return once(client.Message{Body: in, Length: max(info.Size()-pos, 0)}), err
	}
	b, err := io.ReadAll(io.LimitReader(in, inputMax+1))
	if err == nil && len(b) > inputMax {
		err = fmt.Errorf("a pipe gives at most %d bytes for one message; nothing was sent; use --file", inputMax)
	}
	return once(client.Message{Body: bytes.NewReader(b), Length: int64(len(b))}), err
}

func once(m client.Message) *source {
	done := false
	return &source{total: max(m.Length, 0), close: func() {}, next: func() (client.Message, error) {
		if done {
			return client.Message{}, io.EOF
		}
		done = true
		return m, nil
	}}
}

func openFile(path string) (*os.File, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("%w; nothing was sent", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	if !info.Mode().IsRegular() {
		return file, 0, nil // its length is not known
	}
	return file, info.Size(), nil
}

func fileSource(path string) (*source, error) {
	file, _, err := openFile(path)
	if err != nil {
		return nil, err
	}
	s, err := inputSource(file)
	s.close = func() { _ = file.Close() } // read only
	return s, err
}

func lineSource(r io.Reader, size int64, closer func()) *source {
	in := bufio.NewReaderSize(r, lineMax+1)
	number := 0
	return &source{total: size, close: closer, next: func() (client.Message, error) {
		line, err := in.ReadSlice('\n')
		number++
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return client.Message{}, fmt.Errorf("line %d has more than %d bytes; it and those behind it were not sent; "+
				"send such bodies with --file", number, lineMax)
		case errors.Is(err, io.EOF) && len(line) > 0:
		case err != nil:
			return client.Message{}, err
		}
		line = bytes.TrimSuffix(line, []byte{'\n'})
		return client.Message{Body: bytes.NewReader(line), Length: int64(len(line))}, nil
	}}
}
