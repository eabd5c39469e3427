// Package wal keeps what a node stores on its disk: one directory per group, in it the group's
// segmented log with its two stores, a manifest, a hard state, snapshots and large bodies; and around
// them the files that say which disk this is and how the last process ended.
//
// # What it is for
//
// A Log is the ordered log of one group. Append writes a batch with one write: bodies, then the
// entries whose commit records name them. Entries are read by index, bodies by ref. Everything that
// makes a log long-lived is here too: segments are rolled, sealed and trimmed, a raft conflict is a
// truncation record, and opening a log after a crash is its recovery.
//
// # What it promises
//
//   - When Append returns nil, the batch is written: it survives the death of the process. When Flushed
//     names an entry, it and its bodies, large ones included, survive a power cut. No other mark moves
//     Flushed, and it never names an entry that was truncated.
//   - An entry is never there without its bodies: Append refuses one whose body is not here.
//   - What comes back after a crash is the log as it was at one moment between the last confirmed
//     flush (after a kill: the last Append that returned) and the crash. Nothing is invented, nothing is
//     changed, nothing in the middle is missing.
//   - An unfinished end is cut in silence; damage is never cut and never passed over: it is a
//     *segment.CorruptError that names file, place and what to do. Every body is verified before a byte
//     of it is returned.
//   - Nothing is deleted on doubt: only what the manifest says is dropped. Unknown files are moved to
//     quarantine/ and reported.
//   - Memory does not grow with the number of messages: an unsealed segment has a mark every 16 KiB, a
//     sealed one is searched through its footer on the disk.
//
// # Who may call
//
// A Log has one owner (a shard), and its methods belong to the owner's goroutine but for these, which
// any goroutine may call: OpenBody, OpenRef, BodyInfo, NewBody, NewSnapshot, OpenSnapshot, NewScrub, Stats, and
// the readers and writers they return. A Job runs on any goroutine, one per log at a time, and so does the
// Commit of a SnapshotWriter, while no job runs. What may run beside these is a HardStateJob. The package
// starts no goroutine, reads no clock and logs nothing; events go to one function.
//
// # Lifecycle
//
// OpenStore locks the directory, OpenLog recovers a group. Then the owner goes round:
//
//	Reserve                     what a replica takes from its peers it can keep
//	Append ... RequestFlush     never blocks; ErrNotReady while the next segment is being made
//	Job -> Run, elsewhere       make the next segment, seal the last one, trim, compact
//	(woken) Advance             take up confirmed flushes, the finished job, a committed snapshot
//	Retain, Release, Trim       what is live, and when a snapshot lets the rest go; a few bodies that
//	                            stay are copied forward, so that what they stood in goes too
//	Park                        when idle: promise, flush, close the descriptors
//
// A replica is brought up by its leader in this order, and then nothing of it is lost in between:
//
//	Append bodies and large files, Retain each, wait until FlushedEnd has reached their End
//	NewSnapshot far ahead, Commit, Advance: the log goes on behind it
//	ReleaseAll, restore the state, Retain what it holds, Trim
//
// Close of a log flushes and promises everything; Close of the store leaves the mark of a clean stop,
// after which nothing may be torn.
//
// # On failure
//
// A full disk at a write is fsync.ErrDiskFull: that call was not carried out, all others go on. After a
// failed flush, or a write that failed in any other way, the log is poisoned: it takes no more appends,
// its marks stand still, reads go on, and only opening it again, which believes nothing but the disk,
// says what is left. One group's damage or poison is its own.
//
// # The files
//
//	store.go, identity.go, firststart.go, groups.go, quarantine.go    the data directory
//	manifest.go, hardstate.go, slots.go, files.go                     what is written twice
//	framed.go, bodyfile.go, snapshot.go                               long content in frames
//	log.go, append.go, note.go, reserve.go, read.go, readbody.go,
//	holds.go, index.go, refset.go, segments.go, live.go               the log
//	job.go, roll.go, trim.go, compact.go, park.go, logsnapshot.go,
//	loghard.go                                                        its slow work
//	scrub.go, scrubsegment.go, scrubspan.go, rewrite.go, salvage.go   what rots is found, and mended
//	recover.go, recoverfiles.go, recovervisit.go,
//	recovertail.go, recoverend.go                                     opening it
//	inspect.go                                                        reading it offline
//	rules.go                                                          rules that tests switch off
//
// STORE.md specifies every byte and the recovery algorithm. The crash suite (crash_*_test.go) forks a
// disk before every call that changes it and checks all of the above.
package wal
