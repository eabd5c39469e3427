package raftstore

import (
	"errors"
	"fmt"
	"testing"

	"weida/segment"
	"weida/wal"
)

// TestSupplyHistory is TestReplicaHistory with bodies of all sizes, logs that are trimmed soon, and streams that
// are cut: members are brought up by snapshots, entries wait for bodies that come late, wrong or not at all.
// Besides, no snapshot is on a disk without the live bodies that it names, or their tombstones.
func TestSupplyHistory(t *testing.T) { histories(t, 10, runLong) }

func runLong(t *testing.T, seed uint64) {
	defer func() {
		if t.Failed() {
			t.Logf("replay with WEIDA_SEED=%d go test ./raftstore -run TestSupplyHistory", seed)
		}
	}()
	o := HostOptions{Shards: 1, ParkTicks: 2, SnapshotBytes: 150_000, TransferBytes: 2 << 20, RoomBytes: 1 << 20}
	lies := seed%4 == 0
	if lies {
		o.SnapshotBytes = 0
		off.givesRoom = true // it would have snapshots taken where a disk is full
		defer func() { off.givesRoom = false }()
	}
	h := &history{
		cluster: newClusterWith(t, 3, seed, o),
		g:       1, n: 3, long: true,
		entries:   map[Index]string{},
		confirmed: map[Index][]string{},
		faulty:    map[*node]bool{},
		watched:   map[*kv]map[uint64]bool{},
	}
	fate := map[*nodeStream]int{}
	h.cutStream = func(s *nodeStream) int {
		if _, ok := fate[s]; !ok {
			fate[s] = -1
			if h.rng.IntN(3) == 0 {
				fate[s] = h.rng.IntN(150_000)
			}
		}
		return fate[s]
	}
	h.drop = func(p *packet) bool { return h.spoil(p, lies) }
	for _, nd := range h.nodes {
		h.serve(nd)
	}
	installed := 0
	for range 500 + h.rng.IntN(500) {
		h.act()
		if t.Failed() {
			return
		}
	}
	h.drop, h.cutStream = nil, nil
	h.heal()
	for _, nd := range h.nodes {
		installed += nd.told(SnapshotInstalled)
	}
	t.Logf("%d entries, %d proofs, %d installed in the last lives, %d streams, term %d", len(h.entries), h.proofs,
		installed, h.streams, h.leads(1).kvs[1].term)
}

// spoil loses some payload frames. Members lie only where no snapshot is needed: with the bodies of a snapshot,
// which no commit record proves, they are trusted as with the snapshot.
func (h *history) spoil(p *packet, lies bool) bool {
	if p.kind != "payload" {
		return false
	}
	switch h.rng.IntN(8) {
	case 0:
		return true
	case 1:
		for i, one := range payloads(h.t, p) {
			if lies && one.kind == bodyFrame && len(one.bytes) > 0 {
				wrong := append([]byte(nil), one.bytes...)
				wrong[len(wrong)/2] ^= 1
				p.frames[i].Data = appendBodyFrame(nil, one.body.Ref, segment.DigestOf(wrong), wrong)
			}
		}
	}
	return false
}

// proposeLong proposes bodies of any size.
func (h *history) proposeLong(m *kv) {
	var items []Item
	size := 0
	for range 1 + h.rng.IntN(3) {
		h.unique++
		key := fmt.Sprint("k", h.rng.IntN(4), ":", h.unique)
		switch h.rng.IntN(6) {
		case 0:
			items = append(items, del(key))
		case 1:
			it := put(key, "")
			if w := h.writeLarge(m, bodyOf(string(it.Command), 0)); w != nil {
				it.Inline, it.Large = nil, w
				items = append(items, it)
			}
		default:
			it := put(key, "")
			it.Inline = bodyOf(string(it.Command), segment.InlineMax)
			if size += len(it.Inline); size < 2*segment.InlineMax {
				items = append(items, it)
			}
		}
	}
	if len(items) == 0 {
		return
	}
	if _, err := m.propose(items...); err != nil {
		for _, it := range items {
			if it.Large != nil {
				it.Large.Abort()
			}
		}
	}
}

// writeLarge streams a body, nil if that fails; with some of them the leader falls silent in between.
func (h *history) writeLarge(m *kv, body []byte) BodyWriter {
	w, err := m.group.NewBody(int64(len(body)))
	if err != nil {
		return nil
	}
	for at := 0; at < len(body) && err == nil; at += 40_000 {
		_, err = w.Write(body[at:min(at+40_000, len(body))])
		if h.rng.IntN(4) == 0 {
			h.bit()
		}
	}
	if err == nil {
		err = w.Finish(segment.DigestOf(body))
	}
	if err != nil {
		w.Abort()
		return nil
	}
	return w
}

// snapshotHolds reports whether the live bodies of the newest snapshot of a log are there, or tombstones for them.
func (c *cluster) snapshotHolds(nd *node, log *wal.Log) bool {
	s, err := log.OpenSnapshot()
	if errors.Is(err, wal.ErrAbsent) {
		return true
	}
	if err != nil {
		c.t.Errorf("node %d: %v", nd.id, err)
		return false
	}
	defer s.Close()
	f, err := readSnapshot(s)
	for err == nil {
		var run bodyRun
		var ok bool
		if run, ok, err = f.nextRun(); err != nil || !ok {
			break
		}
		for i := range run.n {
			b := segment.Commit{Ref: BodyRef{Term: run.first.Term, Seq: run.first.Seq + i}, Length: -1}
			if run.large.Large {
				b = run.large
			}
			log.Retain(b.Ref) // a file that only the snapshot names
			if err = onDisk(log, b); err != nil {
				err = fmt.Errorf("body %v of the snapshot at %d: %w", b.Ref, s.Mark().Index, err)
				break
			}
		}
	}
	if err != nil {
		c.t.Errorf("node %d after a power cut: %v", nd.id, err)
	}
	return err == nil
}
