package memfs

// directory is the entries of one directory, now and on the disk, and what happened in between.
type directory struct {
	cur, dur map[string]*inode
	ops      []dirOp
	// failed: a flush failed, so what was unflushed then may never become durable.
	failed bool
}

// dirOp is one volatile change: name now leads to ino (link), or no longer does (unlink), or ino has
// moved here from another name of the same directory (rename).
type dirOp struct {
	kind opKind
	name string
	from string // rename only
	ino  *inode
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

// flush makes the entries durable, unless an earlier flush failed.
func (d *directory) flush() {
	if d.failed {
		return
	}
	for _, op := range d.ops {
		op.apply(d.dur)
	}
	d.ops = nil
}
