package powercut

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The file's number, and its name below the FUSE mount.
const (
	fileIno  = 2
	fileName = "disk"
)

// requestMax bounds a request of the loop device, in bytes. FUSE takes twice as much in one.
const requestMax = 128 << 10

// requestsMax is how many requests may be under way at a time: as many as the loop device sends.
const requestsMax = 128

// fuseFile shows a device to the kernel as a file system that has one file. Whoever opens the file gets the present
// life of the device: a loop device of an earlier life, which some mount of another namespace may still hold, is dead.
type fuseFile struct {
	fuse.RawFileSystem // refuses what is not here
	v                  *device
	server             *fuse.Server
	opened             atomic.Int64 // handles that the kernel has not released
}

// serve mounts the file system at dir. The source is what mountinfo says of the mount.
func serve(dir, source string, v *device) (*fuseFile, error) {
	// A process that we start and that waits for the disk must not keep the server's end of it alive: it would wait for
	// ever for a server that is gone.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("powercut: open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0", fd, fuse.S_IFDIR)
	if err := unix.Mount(source, dir, "fuse.powercut", unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		return nil, errors.Join(fmt.Errorf("powercut: FUSE mount at %s: %w", dir, err), unix.Close(fd))
	}
	f := &fuseFile{RawFileSystem: fuse.NewDefaultRawFileSystem(), v: v}
	f.server, err = fuse.NewServer(f, fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{
		FsName: source, Name: "powercut", DisableXAttrs: true, MaxWrite: 2 * requestMax,
		// A request that a fault holds must not keep the loop device from sending the next.
		ExtraCapabilities: fuse.CAP_ASYNC_DIO, MaxBackground: requestsMax,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("powercut: serve %s: %w", dir, err), unmount(dir), unix.Close(fd))
	}
	go f.server.Serve()
	return f, nil
}

func (f *fuseFile) attributes(ino uint64, a *fuse.Attr) {
	a.Ino, a.Nlink, a.Mode = ino, 1, fuse.S_IFDIR|0o700
	if ino == fileIno {
		a.Mode, a.Size, a.Blocks = fuse.S_IFREG|0o600, uint64(f.v.size), uint64(f.v.size)/512
	}
	a.Uid = uint32(os.Getuid())
}

// Lookup finds the one file.
func (f *fuseFile) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if h.NodeId != fuse.FUSE_ROOT_ID || name != fileName {
		return fuse.ENOENT
	}
	out.NodeId = fileIno
	f.attributes(fileIno, &out.Attr)
	return fuse.OK
}

// GetAttr tells kind and size.
func (f *fuseFile) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.attributes(in.NodeId, &out.Attr)
	return fuse.OK
}

// Open begins a handle of the present life.
func (f *fuseFile) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.NodeId != fileIno {
		return fuse.EISDIR
	}
	f.opened.Add(1)
	// Nothing of the file is cached above us: every request of the loop device arrives as it is.
	out.Fh, out.OpenFlags = f.v.now(), fuse.FOPEN_DIRECT_IO
	return fuse.OK
}

// Release ends a handle.
func (f *fuseFile) Release(_ <-chan struct{}, _ *fuse.ReleaseIn) { f.opened.Add(-1) }

// Read reads sectors.
func (f *fuseFile) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	buf = buf[:min(int64(len(buf)), max(0, f.v.size-int64(in.Offset)))]
	if err := f.v.read(in.Fh, buf, int64(in.Offset)); err != nil {
		return nil, fuse.EIO
	}
	return fuse.ReadResultData(buf), fuse.OK
}

// Write writes sectors into the cache.
func (f *fuseFile) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if err := f.v.write(in.Fh, data, int64(in.Offset)); err != nil {
		return 0, fuse.EIO
	}
	return uint32(len(data)), fuse.OK
}

// Fsync is the device's flush.
func (f *fuseFile) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if err := f.v.flush(in.Fh); err != nil {
		return fuse.EIO
	}
	return fuse.OK
}
