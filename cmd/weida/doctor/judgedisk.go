package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// What file systems are to a store whose promises end at fdatasync.
var (
	// goodTypes are tested with power cuts on real block devices.
	goodTypes = []string{"ext4", "xfs"}
	// volatileTypes forget everything with the power, or pass flushes on to something that nobody named.
	volatileTypes = []string{"tmpfs", "ramfs", "devtmpfs", "overlay", "aufs", "squashfs", "rootfs"}
	// remoteTypes have their bytes, their locks, or both in somebody else's hands.
	remoteTypes = []string{
		"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "virtiofs", "glusterfs", "lustre", "afs", "vboxsf", "gfs2",
		"ocfs2", "beegfs", "fuse", "fuseblk",
	}
)

const ownDisk = "put the data directory on ext4 or xfs on a disk of this machine"

func fileSystem(m *Mount) Check {
	kind, _, _ := strings.Cut(m.Type, ".")
	where := fmt.Sprintf("%s at %s (%s)", m.Type, m.Point, m.Source)
	switch {
	case m.Why != "":
		return skipped(m.Why)
	case slices.Contains(goodTypes, m.Type):
		return ok("%s", where)
	case m.Type == "overlay" || m.Type == "aufs":
		return fail("mount a volume for the data directory: "+ownDisk,
			"%s: a layer of a container's image, gone with the container, and flushed as its runtime pleases", where)
	case slices.Contains(volatileTypes, m.Type):
		return fail(ownDisk, "%s: it is in memory, so every message is gone when the machine is off", where)
	case slices.Contains(remoteTypes, kind):
		return fail(ownDisk+"; replication is the broker's own work",
			"%s: whether a flush reached a disk, and whether a lock holds, is decided on another machine or by another program",
			where)
	case m.Type == "btrfs":
		return warn("prefer ext4 or xfs; the power-cut tests run there",
			"%s: it reports lost writes as it should, and copies on every write, so preallocated room is not kept", where)
	}
	return warn("prefer ext4 or xfs; elsewhere nobody has cut the power under load", "%s: not tested with this "+
		"store", where)
}

// badOptions are mount options that take the meaning from a flush.
var badOptions = map[string]string{
	"nobarrier": "flushes are not passed on to the disk",
	"barrier=0": "flushes are not passed on to the disk",
	"volatile":  "flushes are dropped on purpose",
}

func mountOptions(m *Mount) Check {
	if m.Why != "" {
		return skipped(m.Why)
	}
	for _, o := range m.Options {
		if why := badOptions[o]; why != "" {
			return fail("mount it without "+o, "%s is mounted with %s: %s, so a confirmed message is lost with the power",
				m.Point, o, why)
		}
	}
	switch {
	case slices.Contains(m.Options, "ro"):
		return fail("look into the kernel's log for why, mend the disk, then mount it for writing",
			"%s is read-only; a file system often turns so by itself after an error", m.Point)
	case slices.Contains(m.Options, "sync"):
		return warn("mount it without sync; the store flushes what it promises",
			"%s is mounted with sync: every write waits for the disk, also those that nobody waits for", m.Point)
	}
	return ok("%s", commas(m.Options))
}

func ownFileSystem(m *Mount) Check {
	const do = "give the data directory a file system of its own, so that a flush writes nobody else's bytes and nobody " +
		"else fills its disk"
	switch {
	case m.Why != "":
		return skipped(m.Why)
	case m.Point == "/":
		return warn(do, "the data directory shares / with the system")
	case m.Root != "/":
		return warn(do, "%s is a part of a file system, which has others (%s of %s)", m.Point, m.Root, m.Source)
	case m.Others > 0:
		return warn(do, "%d other names lie at %s beside the data directory", m.Others, m.Point)
	}
	return ok("%s holds nothing else", m.Point)
}

func writeCache(d *Devices) Check {
	if d.Why != "" {
		return skipped(d.Why)
	}
	var words []string
	for _, v := range d.List {
		switch {
		case v.Memory:
			return fail(ownDisk, "%s is memory, not a disk: everything is gone with the power", v.Name)
		case v.Cache == "write through" && strings.HasPrefix(v.DriveCache, "write back"):
			return fail(fmt.Sprintf("echo 'write back' > /sys/block/%s/queue/write_cache, and find out who changed it", v.Name),
				"the drive %s has a volatile write cache, and the kernel was told that it has none: flushes never reach it",
				v.Name)
		case v.Cache == "write back":
			words = append(words, v.Name+" has a volatile write cache, which the kernel flushes")
		case v.Cache == "write through":
			words = append(words, v.Name+" claims to have no volatile write cache")
		default:
			words = append(words, v.Name+" does not say")
		}
	}
	return ok("%s", strings.Join(words, "; "))
}

// plausible is the least that an honest write with its flush takes on a device, in microseconds, and why.
func plausible(d Device) (floor float64, why string) {
	switch {
	case d.Persistent:
		return 0, "persistent memory"
	case d.Virtual:
		return 30, "storage of a host or a file, which has to be asked"
	case d.Rotational:
		return 1000, "a disk that turns, which passes a place once in 4 ms at best"
	case d.Cache == "write back":
		return 100, "flash with a volatile cache, which takes longer to program"
	}
	return floorAny, "flash or a controller with a protected cache"
}

// floorAny is what no device goes below, in microseconds: the way through the kernel alone takes longer.
const floorAny = 5

func flushHonesty(f *Flush, d *Devices) Check {
	const lie = "the flush may be a lie"
	const do = "find out what answers it: a host's cache (`cache=unsafe` and the like), a controller's without a " +
		"battery, a " +
		"library such as eatmydata; until then count on losing confirmed messages with the power"
	if f.Why != "" {
		return skipped(f.Why)
	}
	floor, why := float64(floorAny), "any device"
	for i, v := range d.List {
		if one, because := plausible(v); i == 0 || one < floor {
			floor, why = one, because
		}
	}
	switch {
	case f.P50 < floorAny && floor > 0:
		return fail(do, "%s: half of all flushes took less than %s, and no device answers within %s", lie,
			micros(f.P50), micros(floorAny))
	case f.P50 < floor:
		return warn(do, "%s: half of all flushes took less than %s, and for %s at least %s is plausible", lie, micros(f.P50),
			why, micros(floor))
	}
	return ok("p50 of %s is plausible for %s", micros(f.P50), why)
}

// Where flushes begin to be what people wait for, in microseconds.
const (
	slowP50  = 30e3
	slowP99  = 100e3
	slowMax  = 1e6  // the store reports such a flush
	stallMax = 25e6 // the store gives the disk up
)

func flushSpeed(f *Flush) Check {
	if f.Why != "" {
		return skipped(f.Why)
	}
	found := fmt.Sprintf("%d writes of 4 KiB, each with its flush: p50 %s, p99 %s, max %s", f.Writes, micros(f.P50),
		micros(f.P99), micros(f.Max))
	switch {
	case f.Max >= stallMax || f.P50 >= slowMax:
		return fail("replace the disk: a node on it gives leadership up, or ends",
			"%s; a flush of more than %s counts as failed", found, micros(stallMax))
	case f.P50 >= slowP50 || f.P99 >= slowP99 || f.Max >= slowMax:
		return warn("see what else writes there (`iostat -x 1`), or take a faster disk: every confirmed message waits for "+
			"a flush",
			"%s; that is slow", found)
	}
	return ok("%s", found)
}

func preallocation(a *Allocate) Check {
	switch {
	case a.Why != "":
		return skipped(a.Why)
	case !a.Kept:
		return warn("prefer ext4 or xfs: without it a disk that is full is noticed later, and flushes have more to write",
			"the file system keeps no room that is asked for (fallocate)")
	}
	return ok("room that is asked for is kept (fallocate)")
}

const (
	spaceLeast   = 256 << 20
	segmentBytes = 16 << 20
	messageBytes = 1 << 30 // unless the node file says otherwise
)

func space(s *Space) Check {
	if s.Why != "" {
		return skipped(s.Why)
	}
	message := s.MessageMax
	if message == 0 {
		message = messageBytes
	}
	need := message + uint64(s.GroupsThere+1)*segmentBytes
	found := fmt.Sprintf("%s of %s free", size(s.FreeBytes), size(s.Bytes))
	switch {
	case s.FreeBytes < spaceLeast:
		return fail("free space, or take a larger disk: when it is full, messages are refused",
			"%s; %s is the least to begin with", found, size(spaceLeast))
	case s.FreeBytes < need:
		return warn("free space, or set a smaller messageMax in the node file",
			"%s; one message of %s and a segment for each queue need %s", found, size(message), size(need))
	case s.FreeBytes < s.Bytes/10:
		return warn("free space, or take a larger disk", "%s; that is less than a tenth", found)
	}
	return ok("%s", found)
}

// inodesQueue is about how many files and directories one queue takes.
const inodesQueue = 8

func inodes(s *Space) Check {
	switch n := s.FreeInodes / inodesQueue; {
	case s.Why != "":
		return skipped(s.Why)
	case s.Inodes == 0:
		return ok("made as they are needed")
	case n < 100:
		return fail("remove small files, or make the file system anew with more inodes (`mkfs.ext4 -N`)",
			"%d of %d free: room for %d queues", s.FreeInodes, s.Inodes, n)
	case n < 2000:
		return warn("make the file system with more inodes (`mkfs.ext4 -N`) if there are to be thousands of queues",
			"%d of %d free: room for about %d queues", s.FreeInodes, s.Inodes, n)
	}
	return ok("%d of %d free", s.FreeInodes, s.Inodes)
}
