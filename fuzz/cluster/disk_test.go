package cluster

import (
	"fmt"

	"github.com/zeebo/xxh3"

	"weida/fuzz/internal/history"
)

// disk is what one stopped node's disk holds of queues' messages, body and commit record, by group.
type disk map[uint64]*kept

// kept is what a disk holds of one queue, by offset.
type kept struct {
	digests map[uint64]history.Digest // of those whose commit record is an entry of the log
	runs    []history.Run             // of those that are in the snapshot
}

// read reads a disk as a start of its node would. A node that has nothing of a group holds nothing, and what a kill or
// a power cut tore off is not there either.
func read(dir string, at history.DumpAt) (disk, error) {
	d := make(disk)
	err := history.DumpDisk(dir, history.DiskOptions{At: at}, func(e history.Event) {
		switch e := e.(type) {
		case *history.Dump:
			d[e.Group] = &kept{digests: make(map[uint64]history.Digest), runs: e.Held}
		case *history.Entry:
			for _, s := range e.Adds {
				d[e.Group].digests[s.Offset] = s.Digest
			}
			for _, offset := range e.Missing {
				delete(d[e.Group].digests, offset)
			}
		}
	})
	return d, err
}

// has says whether a message with this digest is at its place.
func (k *kept) has(m *message, digest history.Digest) bool {
	if k == nil {
		return false
	}
	for _, r := range k.runs {
		if m.offset >= r.Offset && m.offset < r.Offset+r.Count {
			return true
		}
	}
	d, ok := k.digests[m.offset]
	return ok && d == digest
}

// offsets are those of all messages that are there.
func (k *kept) offsets() map[uint64]bool {
	all := make(map[uint64]bool)
	if k == nil {
		return all
	}
	for offset := range k.digests {
		all[offset] = true
	}
	for _, r := range k.runs {
		for i := range r.Count {
			all[r.Offset+i] = true
		}
	}
	return all
}

// disks counts on the disks of stopped nodes what the evidence of every confirmed message says.
func (r *rig) disks(l *ledger, group uint64) {
	r.t.Helper()
	for _, why := range l.short(r.read(history.AtStop), group) {
		r.t.Error(why)
	}
	r.t.Logf("queue %s: %d messages counted on %d disks", l.queue, len(l.confirmed()), len(r.nodes))
}

// read reads the disks of all nodes, of which none runs.
func (r *rig) read(at history.DumpAt) (all []disk) {
	r.t.Helper()
	for _, x := range r.nodes {
		if x.Alive() {
			r.t.Fatalf("bug: cluster: %s still runs", x.Name)
		}
		d, err := read(x.Dir, at)
		if err != nil {
			r.t.Fatalf("%s: %v", x.Name, err)
		}
		all = append(all, d)
	}
	return all
}

// short says of which messages, that no consumer took, fewer disks than their evidence says hold body and commit
// record.
func (l *ledger) short(disks []disk, group uint64) (list []string) {
	for _, m := range l.confirmed() {
		if m.asked {
			continue
		}
		digest, n := history.Digest(xxh3.Hash128(l.body(m)).Bytes()), uint32(0)
		for _, d := range disks {
			if d[group].has(m, digest) {
				n++
			}
		}
		if n < m.result.Evidence.Replicas {
			list = append(list, fmt.Sprintf("queue %s: %v has evidence %v, and %d disks hold body and commit record",
				l.queue, m, m.result.Evidence, n))
		}
	}
	return list
}
