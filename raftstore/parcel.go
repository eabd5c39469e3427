package raftstore

import (
	"sync"

	"weida/wal"
)

// parcelKind says what came for the payload side of a replica.
type parcelKind uint8

const (
	parcelFrame    parcelKind = iota // a frame of the payload connection
	parcelFile                       // a large body, finished
	parcelSnapshot                   // a snapshot, its content here
	parcelFetched                    // a job has read what somebody asked for
	parcelSent                       // a snapshot for a member was sent, or not
	parcelLost                       // a stream with a large body came to nothing
	parcelNotSent                    // one that somebody asked for was not sent
	parcelKnown                      // a snapshot that is older than one that is here; it has no content
)

// parcel is one thing that came for the payload side of a replica, from a peer or from a worker.
type parcel struct {
	kind     parcelKind
	from     NodeID
	payload  payload
	file     *wal.BodyFile
	snapshot *arrivedSnapshot
	fetched  *fetched
	to       ReplicaID // of a snapshot that was sent
	ref      BodyRef   // of a body that was lost or not sent
	err      error
}

// parcels is where they wait for the shard. What peers send is bounded, and dropped as if the network had lost it;
// what workers say is not: there is at most one of a kind.
type parcels struct {
	budget *roomBudget // the node's part of the bound; nil for none

	mu sync.Mutex
	// guarded by mu
	closed  bool
	arrived []parcel
	frames  int
	bytes   int64
	dropped uint64
	waits   bool // somebody waits for a body
}

const (
	parcelFramesMax = 4096
	parcelBytesMax  = 4 << 20
	// parcelsQuietly is how many frames may come before the shard is woken although nobody waits for a body.
	parcelsQuietly = 64
)

// put takes a parcel, and says whether the shard is to be woken; not taken means that it was dropped: what it holds is
// the caller's then.
func (b *parcels) put(p parcel) (taken, wake bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, false
	}
	if p.kind == parcelFrame || p.kind == parcelLost || p.kind == parcelKnown {
		n := int64(len(p.payload.bytes)) + int64(len(p.payload.wants)*wantSize+len(p.payload.refs)*refSize)
		full := b.frames >= parcelFramesMax || b.bytes > 0 && b.bytes+n > parcelBytesMax
		if full || !b.budget.fits(b.bytes, n) {
			b.dropped++
			return false, false
		}
		b.budget.take(n)
		b.frames++
		b.bytes += n
	}
	b.arrived = append(b.arrived, p)
	body := p.kind == parcelFrame && p.payload.kind == bodyFrame
	return true, !body || b.waits || b.frames >= parcelsQuietly
}

// expect says whether somebody waits for a body, and returns whether something is here that may be one.
func (b *parcels) expect(waits bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = waits
	return waits && len(b.arrived) > 0
}

// take empties the box; list is given back for what is to come.
func (b *parcels) take(list []parcel) []parcel {
	clear(list)
	b.mu.Lock()
	defer b.mu.Unlock()
	list, b.arrived = b.arrived, list[:0]
	b.budget.give(b.bytes)
	b.frames, b.bytes = 0, 0
	return list
}

// close takes nothing any more and returns what was not seen.
func (b *parcels) close() []parcel {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.arrived
	b.budget.give(b.bytes)
	b.closed, b.arrived, b.frames, b.bytes = true, nil, 0, 0
	return list
}
