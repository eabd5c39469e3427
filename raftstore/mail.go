package raftstore

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// letter is one thing that came for a replica from a peer, decoded.
type letter struct {
	from NodeID
	// epoch is that of the sender's node when the letter came: what an earlier incarnation said is no evidence.
	epoch uint64
	m     *raftpb.Message // nil: one of the others
	quiet quiet
	size  int // bytes of entries
	// refused says that the node does not serve this group.
	refused RefusalKind
}

// mailbox is where letters wait for the shard. It is bounded by itself and by what waits for bodies: what does not fit
// is dropped as if the network had lost it (T-40).
type mailbox struct {
	mu sync.Mutex
	// guarded by mu
	closed  bool
	arrived []letter
	bytes   int
	dropped uint64
}

const (
	// mailLettersMax and mailBytesMax bound what waits for one replica; entries count with their bytes.
	mailLettersMax = 4096
	mailBytesMax   = 4 << 20
)

// put takes a letter; false if it was dropped.
func (b *mailbox) put(l letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := len(b.arrived) >= mailLettersMax || l.size > 0 && b.bytes > 0 && b.bytes+l.size > mailBytesMax
	if b.closed || full {
		b.dropped++
		return false
	}
	b.arrived = append(b.arrived, l)
	b.bytes += l.size
	return true
}

// take empties the box; list is given back for the letters to come.
func (b *mailbox) take(list []letter) []letter {
	clear(list)
	b.mu.Lock()
	defer b.mu.Unlock()
	list, b.arrived = b.arrived, list[:0]
	b.bytes = 0
	return list
}

func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.arrived, b.bytes = true, nil, 0
}
