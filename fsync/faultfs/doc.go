// Package faultfs wraps a file system and makes it fail on order.
//
// What it is for: tests that ask what happens when the n-th call fails, is cut short, takes its time
// or is the last before the process dies, for every n. Loops over n are exhaustive because every
// call is counted in one order.
//
// What it promises: without a rule it changes nothing. A failed Sync fails the way the kernel's does
// where the wrapped file can (memfs: the bytes are lost and look written). After the death nothing
// has any effect and everything answers ErrDied.
//
// Who may call: any goroutine. Lifecycle: New, rules at any time, and one FS for each life: after a
// death wrap the same disk anew.
//
// On failure: every injected error is an *fsync.Error, like the real ones.
package faultfs
