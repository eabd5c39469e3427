package wal

// off names rules of the log that are not applied, so that a test can show that each of them carries
// weight: with a rule off, the crash suite must fail. Only tests write to it.
var off struct {
	createDirFlush   bool // flush the directory before the manifest names a new segment
	createFileFlush  bool // flush a new segment before the manifest names it
	manifestLast     bool // the manifest names a new segment only when it stands
	recoverDirFlush  bool // after an unclean stop the directory is flushed before it counts
	recoverFlush     bool // after an unclean stop the tail is flushed before it counts
	reread           bool // and dropped from the cache and read again
	cutNewSegment    bool // after a crash cut the log goes on in a new segment
	cutManifest      bool // a crash cut is recorded in the manifest
	sealFlush        bool // a segment is flushed before it is sealed
	trimFlushedVoids bool // a trim waits until every truncation is flushed
	trimManifest     bool // the manifest says what is dropped before it is unlinked
	promise          bool // every batch promises what is known to be flushed
	promiseNotOwn    bool // never the batch's own start
	truncateRecord   bool // a truncation is a record in the log
	flushedVoid      bool // a flush of a truncated entry does not count
	advanceEarly     bool // a mark counts only when its flush is confirmed
	zeroAfterShort   bool // what a failed write left is overwritten with zeros
	largeFlush       bool // a large body's file is flushed with the batch that names it
	largeDirFlush    bool // and its directory entry
	largeVerify      bool // after an unclean stop large bodies of the tail are verified whole
	copyFlush        bool // copies of live bodies are flushed before what they were copied from is dropped
	copyVerify       bool // a body is verified before it is copied
	restoreFirst     bool // nothing is dropped between a snapshot from elsewhere and the next Trim
	passOver         bool // a damaged body stands in nobody's way but its own
	termFromLog      bool // the recovered term is at least the last entry's
}
