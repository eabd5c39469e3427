package memfs

import "slices"

// directory is the entries of one directory, now and on the disk, and what happened in between.
type directory struct {
	cur, dur map[string]*inode
	ops      []dirOp // unflushed or lost, oldest first
}

// dirOp is one volatile change: name now leads to ino (link), or no longer does (unlink), or ino has
// moved here from another name of the same directory (rename).
type dirOp struct {
	kind opKind
	name string
	from string // rename only
	ino  *inode
	lost bool // a flush of it failed; no later one makes it durable
}

type opKind uint8

const (
	opLink opKind = iota
	opUnlink
	opRename
)

func newDirectory() *inode {
	return &inode{dir: &directory{cur: map[string]*inode{}, dur: map[string]*inode{}}}
}

// do applies op to the current entries and remembers it as volatile.
func (d *directory) do(op dirOp) {
	op.apply(d.cur)
	d.ops = append(d.ops, op)
}

// apply changes entries as op says. It makes sense on a map where earlier operations are missing: a
// name is only taken away from the inode that the operation was about.
func (op dirOp) apply(entries map[string]*inode) {
	switch op.kind {
	case opLink:
		entries[op.name] = op.ino
	case opUnlink:
		if entries[op.name] == op.ino {
			delete(entries, op.name)
		}
	case opRename:
		if entries[op.from] == op.ino {
			delete(entries, op.from)
		}
		entries[op.name] = op.ino
	}
}

// flush makes the entries durable, except for lost changes.
func (d *directory) flush() {
	kept := d.ops[:0]
	for _, op := range d.ops {
		if op.lost {
			kept = append(kept, op)
		} else {
			op.apply(d.dur)
		}
	}
	clear(d.ops[len(kept):])
	d.ops = kept
}

// lose marks everything unflushed as lost.
func (d *directory) lose() {
	for i := range d.ops {
		d.ops[i].lost = true
	}
}

// pending reports whether a flush would change what is on the disk.
func (d *directory) pending() bool {
	return slices.ContainsFunc(d.ops, func(op dirOp) bool { return !op.lost })
}
