// Package memfs is a file system in memory that can lose power. It is the disk of every crash test.
//
// What it promises: it behaves as package fsync's FS contract says and no better. The bytes of a
// file are volatile per 512-byte sector until its Sync, and a sector that was written several times
// since then may come back from a power cut in any of its versions. The size is volatile until Sync.
// Every creation, rename and removal is volatile until the Sync of the directory it happened in, one
// by one. SyncFS makes all of it durable. Failed write-backs follow what Linux does on ext4, xfs and
// btrfs: the pages are marked clean, the error is reported once per open descriptor, reads show the
// new bytes until the cache is dropped, and then the old ones.
//
// Who may call: any goroutine; one mutex guards the whole file system.
//
// Lifecycle: New, then use. Kill ends the life of all handles and locks, as kill -9 does, and keeps
// every byte. PowerCut also decides, for everything volatile, what survived. Clone makes a second
// disk in the same state, sharing memory with the first until one of them writes.
//
// On failure: a handle of an earlier life answers ErrGone. Nothing blocks and nothing sleeps.
package memfs
