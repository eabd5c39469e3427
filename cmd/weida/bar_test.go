package main

import (
	"io"
	"strings"
	"testing"
)

// A file can be sent again through the bar, which counts it once; a pipe cannot.
func TestBarCountsAgain(t *testing.T) {
	b := newBar("", 5)
	defer b.done()
	r := b.count(strings.NewReader("skip12345"))
	s, ok := r.(io.Seeker)
	if !ok {
		t.Fatal("it cannot be read again")
	}
	if at, err := s.Seek(4, io.SeekStart); at != 4 || err != nil {
		t.Fatal(at, err)
	}
	for range 2 {
		if _, err := s.Seek(4, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); string(got) != "12345" || err != nil {
			t.Fatal(got, err)
		}
		if n := b.bytes.Load(); n != 5 {
			t.Errorf("%d bytes are counted", n)
		}
	}
	if _, ok := b.count(io.MultiReader(strings.NewReader("x"))).(io.Seeker); ok {
		t.Error("a pipe can be read again")
	}
}
