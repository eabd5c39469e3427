// Package doctor looks at a machine before somebody trusts it with messages, and gathers what is needed to help
// somebody whose node is in trouble.
//
// # What it is for
//
// Gather fills Facts by looking; Judge turns Facts into Checks, each with what was found and what to do. Bundle
// writes an
// archive from which every secret is left out. `weida doctor` is a thin shell around them.
//
// # What it promises
//
//   - Judge is a function of its argument: what a bad machine looks like is tested without one.
//   - It writes nothing but one probe file, which it removes, and the archive that it is told to write.
//   - A node that runs is not disturbed: where one holds the lock of the data directory, nothing is written to that
//     file system and no port is tried, and those checks say so.
//   - An archive holds only what is on a list of things known to be harmless. What nobody thought of is left out.
//
// # Who may call what
//
// Any goroutine; nothing is shared. Gather waits for disks and peers, at most a few seconds for each peer.
//
// # On failure
//
// What cannot be looked at is a fact too: its part of Facts says why, and its check is skipped with that reason.
package doctor
