// Package flushprobe measures what one durable write costs on a disk: the figure beside which every other one stands.
//
// # What it is for
//
// Benches print it beside theirs, and `weida doctor` judges a machine by it. It does what the store does at its
// smallest: 4 KiB into space that was allocated before, then fdatasync.
//
// # What it promises
//
//   - It writes one new file, whose name the caller gives, and removes it whatever happens but the end of the process.
//   - Every round waits for its flush; nothing is left out of the figures, the first round neither.
//
// # Who may call what
//
// Any goroutine; a call blocks until it is done. A disk that stalls stalls the call.
//
// # On failure
//
// The error is that of the file system, an *fsync.Error; what was measured until then is returned beside it.
package flushprobe
