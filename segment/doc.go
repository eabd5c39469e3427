// Package segment is the byte layout of everything weida writes to disk: one record format, one
// checksum rule, and the answer to the question what the end of a log is worth after a crash.
//
// It promises that a record it returns was written by AppendRecord for this very file and place: a
// damaged, misplaced or stale record is never returned, and never makes it panic or allocate by a
// number it read. Recover tells torn (an unfinished end, cut in silence) from corrupt (never cut)
// and from a format version this build does not know; the three are never mixed up.
//
// The package is pure: it opens no file, starts no goroutine, reads no clock. All functions may be
// called from any goroutine; a Builder, a Hasher and the values handed to a visitor belong to one
// goroutine at a time.
//
// Lifecycle: a Builder is reset for every batch and keeps its buffer; everything else is a function.
//
// On failure of a read the error of the reader is returned wrapped and nothing is concluded from
// it. Broken promises of a caller (a batch above BatchMax, a promise beyond the batch itself) are
// panics that begin with "bug: segment".
//
// STORE.md specifies the format byte by byte and the recovery step by step; the step numbers in
// recover.go are its step numbers, and tests compare its tables with this code.
package segment
