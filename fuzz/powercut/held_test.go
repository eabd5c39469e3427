package powercut

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHeldFileHoldsNoOther: one file's blocks do not reach the device, and the flush of another file of the same file
// system ends all the same, if both have their room; that of the whole file system does not.
func TestHeldFileHoldsNoOther(t *testing.T) {
	each(t, Options{}, func(t *testing.T, d *Disk) {
		room := func(name string) *os.File {
			f, err := os.Create(filepath.Join(d.Mount(), name))
			must(t, err)
			t.Cleanup(func() { must(t, f.Close()) })
			must(t, unix.Fallocate(int(f.Fd()), 0, 0, 64*block))
			must(t, f.Sync())
			return f
		}
		held, free := room("held"), room("free")
		d.HoldWrites(newBytes[:64])
		_, err := held.WriteAt(newBytes, 0)
		must(t, err)
		one, whole := make(chan error, 1), make(chan error, 1)
		go func() { one <- unix.Fdatasync(int(held.Fd())) }()
		go func() { whole <- unix.Syncfs(int(held.Fd())) }()
		for i := range int64(32) {
			_, err := free.WriteAt(bytes.Repeat([]byte{byte(i)}, block), i*block)
			must(t, err)
			must(t, unix.Fdatasync(int(free.Fd())))
		}
		select {
		case err := <-one:
			t.Errorf("the flush of what is held ended: %v", err)
		case err := <-whole:
			t.Errorf("the flush of everything ended: %v", err)
		default:
		}
		d.Heal()
		must(t, <-one)
		must(t, <-whole)
	})
}
