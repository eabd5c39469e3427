package fsync

import "io"

// FS is the seam to a file system. Names are full paths with the operating system's separator.
// Every implementation (OS, fsync/memfs, fsync/faultfs) passes the suite in fsync/fstest.
//
// Durability follows the strictest reading of POSIX, not what one file system happens to do: the
// bytes of a file are durable after File.Sync, its name only after Dir.Sync on its directory, and a
// rename or removal only after Dir.Sync on each directory it touched. Dir.SyncFS makes everything
// on the file system durable.
//
// All methods may be called from any goroutine. Every error is an *Error.
type FS interface {
	// Create makes a new file for reading and writing, mode 0600. It never opens an existing name
	// (fs.ErrExist) and never follows a symbolic link.
	Create(name string) (File, error)
	// Open opens an existing regular file. It never creates and never follows a symbolic link.
	Open(name string, access Access) (File, error)
	// OpenDir opens a directory as a flush target.
	OpenDir(name string) (Dir, error)
	// Mkdir makes one directory, mode 0700 (fs.ErrExist if the name is taken).
	Mkdir(name string) error
	// Rename moves a file, replacing newName if it exists. Atomic for readers; durable only after
	// Dir.Sync.
	Rename(oldName, newName string) error
	// Remove unlinks a file or an empty directory. Durable only after Dir.Sync.
	Remove(name string) error
	// List returns the entries of a directory sorted by name.
	List(name string) ([]Entry, error)
	// Lock creates the file if needed and takes an exclusive advisory lock that ends with Close or
	// with the process. A lock held by somebody else is ErrLocked.
	Lock(name string) (io.Closer, error)
	// Space says how much room there is on the file system of a file or directory.
	Space(name string) (Space, error)
}

// Space is the room on a file system, in bytes. Total is 0 where there is no bound, and Free says nothing then.
type Space struct {
	Free  int64 // what this process may still use
	Total int64
}

// Access says what an opened file is for.
type Access uint8

// The two kinds of access.
const (
	ReadOnly Access = iota
	ReadWrite
)

// Entry is one name in a directory.
type Entry struct {
	Name string
	// Size is the length of a regular file in bytes, 0 for anything else.
	Size int64
	// Allocated is the space the file takes on disk in bytes.
	Allocated int64
	// Kind is Regular, Directory or Other (a link, device, socket: never opened, never followed).
	Kind Kind
}

// Kind is what a directory entry names.
type Kind uint8

// The kinds of directory entries.
const (
	Regular Kind = iota
	Directory
	Other
)

// File is one open file. ReadAt and WriteAt follow io.ReaderAt and io.WriterAt and may be called
// concurrently on disjoint ranges. WriteAt beyond the end grows the file; the gap reads as zeros.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync is fdatasync: on nil, every byte written before the call, and the size needed to read
	// them, survive a power cut. After the first error the file's unflushed bytes are lost for good:
	// a later nil proves nothing. Only Flusher and recovery may call it.
	Sync() error
	// Size is the length in bytes, preallocation included.
	Size() (int64, error)
	// Allocate reserves space for [off, off+n) so that writing there needs no new block (ErrDiskFull
	// if there is none), growing the size; new bytes read as zeros. Where the file system cannot
	// preallocate, it grows the file sparsely.
	Allocate(off, n int64) error
	// StartWrite asks the kernel to begin writing back [off, off+n) and does not wait. It promises
	// nothing about durability.
	StartWrite(off, n int64) error
	// DropCache asks the kernel to forget the clean cached pages of [off, off+n), so that the next
	// read there comes from the disk; n = 0 means to the end of the file.
	DropCache(off, n int64) error
}

// Dir is an open directory.
type Dir interface {
	io.Closer
	// Sync makes the directory's entries (creations, renames, removals) durable.
	Sync() error
	// SyncFS makes everything on the directory's file system durable (syncfs) and reports, once for
	// this descriptor, any write-back error since it was opened or last reported.
	SyncFS() error
}

// Syncer is what the two kinds of flush target share.
type Syncer interface{ Sync() error }
