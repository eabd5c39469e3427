package cluster

import (
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"weida/fsync"
	"weida/segment"
	"weida/wal"
)

// kept is what one stopped node's disk says of one group: the commit records whose bodies are there too, by digest
// and by the term of their entry.
type kept map[keptKey]bool

type keptKey struct {
	digest string
	term   uint64
}

type bodyKey struct{ term, seq uint64 }

// holdings reads a group's files. A node that has nothing of the group holds nothing, and what a kill tore off is not
// there either.
func holdings(dir string, group uint64) (kept, error) {
	in, err := wal.InspectStore(fsync.OS(), dir)
	if err != nil {
		return nil, err
	}
	k := make(kept)
	if !slices.Contains(in.Groups, segment.GroupID(group)) {
		return k, nil
	}
	bodies := make(map[bodyKey]bool)
	named := make(map[keptKey]bodyKey)
	term := uint64(0)
	err = wal.DumpGroup(fsync.OS(), dir, segment.GroupID(group), func(l wal.DumpLine) error {
		f := make(map[string]any, len(l.Fields))
		for _, x := range l.Fields {
			f[x.Name] = x.Value
		}
		number := func(name string) uint64 { n, _ := f[name].(uint64); return n }
		switch l.Kind {
		case "body":
			bodies[bodyKey{number("ref term"), number("ref seq")}] = true
		case "filehead":
			bodies[bodyKey{number("term"), number("seq or index")}] = true
		case "entry":
			term = number("term")
		case "commit record":
			digest, _ := f["digest"].(string)
			named[keptKey{digest, term}] = bodyKey{number("ref term"), number("ref seq")}
		}
		return nil
	})
	for key, ref := range named {
		if bodies[ref] {
			k[key] = true
		}
	}
	return k, err
}

// disks counts on the disks of stopped nodes what the evidence of every confirmed message says.
func (r *rig) disks(l *ledger, group uint64) {
	r.t.Helper()
	for _, why := range r.short(l, group) {
		r.t.Error(why)
	}
	r.t.Logf("queue %s: %d messages counted on %d disks", l.queue, len(l.confirmed()), len(r.nodes))
}

// short says of which messages, that no consumer took, fewer disks than their evidence says hold body and commit
// record.
func (r *rig) short(l *ledger, group uint64) (list []string) {
	r.t.Helper()
	var all []kept
	for _, x := range r.nodes {
		if x.Alive() {
			r.t.Fatalf("bug: cluster: %s still runs", x.Name)
		}
		k, err := holdings(x.Dir, group)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, k)
	}
	for _, m := range l.confirmed() {
		if m.asked {
			continue
		}
		sum := xxh3.Hash128(l.body(m)).Bytes()
		key, n := keptKey{fmt.Sprintf("%x", sum[:]), m.term}, uint32(0)
		for _, k := range all {
			if k[key] {
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
