// Package powercut is a disk whose power can be taken away: a real file system on a block device of our own, for the
// suites that run real nodes or a real store on it.
//
//	image, a sparse file <- volatile cache, in this process <- FUSE file <- loop device <- ext4 or xfs <- node
//
// The kernel's file system writes to the device and flushes it as it does any disk. What it wrote is in the cache
// until it flushes; then it is in the image. A cut takes the power: of what no flush has reached nothing is left, or
// all, or a seeded subset of 512-byte sectors, in which an older write of a sector may win over a newer one; and
// nothing that comes later counts. Remount gives the power back: the file system recovers from the image, as after a
// real cut.
//
//	d, err := powercut.New(dir, powercut.Options{FS: "ext4", Seed: seed})
//	defer d.Close()
//	… run a node on a directory below d.Mount()
//	d.Stall(); kill -9 the node and do not wait; lost := d.Cut(powercut.Some); wait for the node's end
//	err = d.Remount()
//	… start the node on what is left
//
// It promises: what was flushed before the cut is in the image; nothing that came after it is; while no fault is
// ordered, the device does what it is told. The cache has a bound; beyond it the oldest writes go to the image without
// a flush, as a disk's do. Faults on order: writes that fail, all or by what they contain; writes that do not end, by
// what they contain; flushes that fail or are not carried out; a slow or a stalled device; a file system that is full.
// Heal ends all of them.
//
// New, Remount and Close belong to one goroutine; everything else may be called from any. A Disk lives until Close,
// which leaves no mount and no device behind, whatever still holds them; what a killed process left is taken away by
// the next New. Needs root, /dev/fuse and loop devices: Available says what is missing. The ends of kernel calls on a
// disk that is cut, stalled or failing are errors of the caller's, or wait: whoever stalls a disk must let it go on.
//
// A device that reports a flush that it did not carry out is what Lie makes: then losses are the device's, and a suite
// has to see them. The faults themselves are those of docs/explanation/fault-model.md.
package powercut
