package fsync_test

import (
	"path/filepath"
	"testing"

	"weida/fsync"
)

func TestFlusherOnRealFiles(t *testing.T) {
	dir := t.TempDir()
	fs := fsync.OS()
	root, err := fs.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := fsync.NewFlusher(fsync.Options{Root: root})
	f.Start()
	for i := range 5 {
		file, err := fs.Create(filepath.Join(dir, string(rune('a'+i))))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt([]byte("hello"), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Flush("x", file); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", f.Stats())
}
