package raftstore

import (
	"weida/segment"
	"weida/wal"
)

// planBytesKept is how large the scratch buffers may be that a shard keeps from round to round.
const planBytesKept = 1 << 20

// plan is a shard's scratch space: what a round is about to write, and the data of the entries it wrote
// until they are applied.
type plan struct {
	app     wal.Append
	commits []segment.Commit
	command []byte
	arena   []byte // data of the round's entries
	items   []Item // of the entry being applied
}

// build plans the next entry of o: as many of its pending proposals as one batch holds, at least one,
// at the given index. The answer is how many proposals it covers and what they cost.
func (p *plan) build(o *seat, refs *refs, index Index) (proposals, size int) {
	items := 0
	for _, q := range o.pending[o.next:] {
		if proposals > 0 && (size+q.size > MaxBatchBytes || q.batch.Alone) {
			break
		}
		proposals++
		size += q.size
		items += len(q.batch.Items)
		if q.batch.Alone {
			break
		}
	}
	p.clear()
	p.command = appendCommandsHead(p.command[:0], items)
	for _, q := range o.pending[o.next : o.next+proposals] {
		for i := range q.batch.Items {
			p.add(refs, &q.batch.Items[i])
		}
	}
	start := len(p.arena)
	p.arena = segment.AppendData(p.arena, p.commits, p.command)
	p.app.Entries = append(p.app.Entries, segment.Entry{
		Index: index,
		Term:  refs.term,
		Type:  segment.EntryNormal,
		Data:  p.arena[start:len(p.arena):len(p.arena)],
	})
	p.app.Commit = o.marks.Committed
	return proposals, size
}

// add plans one item. Inline refs are given out here, on the shard, so that they rise in the log.
func (p *plan) add(refs *refs, it *Item) {
	p.command = appendCommand(p.command, it)
	if !it.HasBody {
		return
	}
	if it.Large == nil {
		it.Body.Ref = refs.give()
		p.app.Bodies = append(p.app.Bodies, wal.Body{Ref: it.Body.Ref, Payload: it.Inline})
	} else {
		f := it.Large.(*bodyWriter).file
		it.Body = segment.Commit{Ref: f.Ref(), Length: f.Length(), Digest: f.Digest(), Large: true}
		p.app.Large = append(p.app.Large, f)
	}
	p.commits = append(p.commits, it.Body)
}

// discard forgets the entry that build planned last: it was not written.
func (p *plan) discard() { p.arena = p.arena[:len(p.arena)-len(p.app.Entries[0].Data)] }

// clear empties what belongs to one entry, so that no buffer of a proposer is kept.
func (p *plan) clear() {
	clear(p.app.Bodies)
	clear(p.app.Large)
	clear(p.app.Entries)
	p.app = wal.Append{Bodies: p.app.Bodies[:0], Large: p.app.Large[:0], Entries: p.app.Entries[:0]}
	p.commits = p.commits[:0]
}

// reset ends the round.
func (p *plan) reset() {
	p.clear()
	p.arena = p.arena[:0]
	clear(p.items)
	p.items = p.items[:0]
	if cap(p.arena)+cap(p.command)+cap(p.commits)*commitRecord > planBytesKept {
		p.arena, p.command, p.commits = nil, nil, nil
	}
	if cap(p.items) > 4096 {
		p.items = nil
	}
}
