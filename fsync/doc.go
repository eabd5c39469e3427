// Package fsync is the only package that touches files, and the place where the words written and
// flushed get their meaning.
//
// What it is for: FS, File and Dir are the seam to a file system, with the real one (OS), one in
// memory that can lose power (fsync/memfs) and one that fails on order (fsync/faultfs); the suite in
// fsync/fstest holds them to one contract. Flusher makes the files of many groups durable together,
// because one call for a thousand files costs a small part of a thousand calls.
//
// What it promises: a mark that Target.Flushed returns was requested before a flush began that
// covered every file and directory then dirty, and that flush succeeded on each of them. What is
// written while a flush runs belongs to the next. After the first failed flush of a target's file no
// mark of that target advances again, whatever later calls return: Linux marks the lost pages clean
// and answers the second call with success. When SyncFS, which does not name files, reports an
// error, every target of the round must prove itself by its own files; if no file accounts for the
// report, the node has failed.
//
// Rounds have no timer: requests gather while a round runs, and when it ends the next begins with all
// that wait. A target whose flush is late leaves the round and is flushed alone, so that the others
// do not wait for it; while it is being flushed, rounds go file by file, because SyncFS would wait
// for its file too. A SyncFS that takes unusually long gets company: the files of its round are
// flushed one by one beside it, and whichever proof comes first counts.
//
// Who may call: FS and its files from any goroutine. Dirty, Request and Close of a target from its
// owner, Flushed, Err and Busy from anywhere, Step from one goroutine at a time, Flush from any.
// Wakers and the Event function are called from the Flusher's goroutines and must not block.
//
// Lifecycle: CheckKernel, open the data directory, NewFlusher with it as Root before the first
// write, recovery with Flush, Start, and at the end Close. Without Start nothing runs by itself; the
// simulator calls Step.
//
// On failure: a target's Err wraps ErrPoisoned, the node's is Flusher.Err, both final. A full disk at
// Allocate or WriteAt is ErrDiskFull and poisons nothing. Nothing is logged; events go to one
// function.
//
// The package needs Linux 5.8. Rounds are explained in round.go and watch.go, what is done about lost
// writes in attribute.go; what Linux does after a failed flush is a test of package memfs
// (TestFailedWriteBack).
package fsync
