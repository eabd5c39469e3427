package raftstore

import (
	"encoding/binary"
	"errors"

	"weida/segment"
)

// The data of an entry is segment's commit table, then the commands of its items. Commands are
// encoded as
//
//	uvarint   number of items
//	per item: uvarint of 2*len(command) + 1 if the item has a body, then the command
//
// The n-th item with a body owns the n-th commit record. Data of length 0 is an entry without items.

// MaxBatchBytes bounds what one proposal may cost, as Batch.Size reckons it: its items become
// neighbours in one entry, and the entry and its inline bodies are one write of at most
// segment.BatchMax bytes. A batch with one body of segment.InlineMax and a command of any usual length
// fits; so do three.
const MaxBatchBytes = segment.DataMax - commitTableHead - binary.MaxVarintLen64

const (
	commitTableHead = 4  // DataLen(0, 0)
	commitRecord    = 44 // DataLen(1, 0) - DataLen(0, 0)
	// itemOverhead is the longest length prefix of a command: its value stays below 2*BatchMax.
	itemOverhead = 3
)

var (
	_ = [1]struct{}{}[segment.BatchMax>>20]              // itemOverhead holds for commands below 1 MiB
	_ = [1]struct{}{}[MaxBatchBytes/(3*maxInlineCost)-1] // three whole inline bodies fit
)

const maxInlineCost = segment.InlineMax + segment.RecordOverhead + commitRecord + itemOverhead

var errCommands = errors.New("raftstore: an entry's commands are not what this build writes")

// Size is what the batch costs in bytes against MaxBatchBytes and the inbox's bound: commands,
// inline bodies, commit records and framing.
func (b *Batch) Size() int {
	n := 0
	for i := range b.Items {
		n += itemSize(&b.Items[i])
	}
	return n
}

// Size is what the item costs of its batch's size, in bytes.
func (it *Item) Size() int { return itemSize(it) }

func itemSize(it *Item) int {
	n := itemOverhead + len(it.Command)
	if it.HasBody {
		n += commitRecord
		if it.Large == nil {
			n += segment.RecordOverhead + len(it.Inline)
		}
	}
	return n
}

// appendCommands appends the encoded commands of n items, which each yields in order.
func appendCommandsHead(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(n)) }

func appendCommand(dst []byte, it *Item) []byte {
	head := uint64(len(it.Command)) << 1
	if it.HasBody {
		head |= 1
	}
	dst = binary.AppendUvarint(dst, head)
	return append(dst, it.Command...)
}

// decodeItems appends the items of an entry's data to dst. Commands alias data. It allocates no more
// than the data's length justifies, whatever the bytes say.
func decodeItems(dst []Item, data []byte) ([]Item, error) {
	if len(data) == 0 {
		return dst, nil
	}
	commands, err := segment.Commands(data)
	if err != nil {
		return dst, err
	}
	first := len(dst)
	if dst, err = decodeCommands(dst, commands); err != nil {
		return dst, err
	}
	next := first
	err = segment.EachCommit(data, func(c segment.Commit) error {
		for next < len(dst) && !dst[next].HasBody {
			next++
		}
		if next == len(dst) {
			return errCommands
		}
		dst[next].Body = c
		next++
		return nil
	})
	if err != nil {
		return dst, err
	}
	for ; next < len(dst); next++ {
		if dst[next].HasBody {
			return dst, errCommands
		}
	}
	return dst, nil
}

func decodeCommands(dst []Item, b []byte) ([]Item, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)-n) {
		return dst, errCommands
	}
	b = b[n:]
	for range count {
		head, n := binary.Uvarint(b)
		if n <= 0 || head>>1 > uint64(len(b)-n) {
			return dst, errCommands
		}
		b = b[n:]
		dst = append(dst, Item{Command: b[: head>>1 : head>>1], HasBody: head&1 == 1})
		b = b[head>>1:]
	}
	if len(b) != 0 {
		return dst, errCommands
	}
	return dst, nil
}
