package raftstore

import (
	"io"
)

// far is what a host has for what is long and goes to other nodes or comes from them.
type far struct {
	// pool runs the jobs that may wait for a peer, apart from those that wait for a disk: a peer that takes nothing
	// must not keep a log from its next segment.
	pool    pool
	courier *courier
	pushes  pushes
	dock    dock
	rooms   roomBudget
}

const (
	// farWorkers bounds the streams that are written at a time.
	farWorkers = 64
	// defaultTransfers and defaultTransferBytes are those of HostOptions.
	defaultTransfers     = 2
	defaultTransferBytes = 64 << 20
	defaultRoomBytes     = 64 << 20
	ticksPerSecond       = 10
)

func (f *far) init(o *HostOptions) {
	f.pool.limit = farWorkers
	perTick := max(o.TransferBytes/ticksPerSecond, pieceBytes)
	f.courier = newCourier(o.Transport, f.pool.submit, o.Transfers, perTick)
	f.pushes.transport, f.pushes.pool = o.Transport, &f.pool
	f.dock.bodiesMax, f.dock.snapshotsMax = dockBodies, dockSnapshots
	f.rooms.limit = o.RoomBytes
}

func (f *far) tick() {
	f.courier.tick()
	f.pushes.tick()
}

// leave gives up what goes to a node that is gone.
func (f *far) leave(n NodeID) {
	f.courier.giveUp(func(k transferKey) bool { return k.to == n })
	f.pushes.leave(n)
}

// end gives up what goes out for a group that stops.
func (f *far) end(g GroupID) {
	f.courier.giveUp(func(k transferKey) bool { return k.group == g })
	f.pushes.stop(g)
}

// close gives everything up, so that no job waits for a peer any more.
func (f *far) close() {
	f.courier.close()
	f.pushes.close()
}

// ReceiveStream implements Receiver.
func (h *Host) ReceiveStream(from NodeID, head []byte, r io.Reader) error {
	d, err := parseStreamHead(head)
	if err != nil {
		h.badFrame(from, 0, err)
		return err
	}
	g, _ := h.served(d.group)
	if g == nil {
		return errNotHere
	}
	return g.supply.landing.receive(from, &d, r)
}

// ReceivePayload implements Receiver. The digest of a body is checked on the caller's goroutine.
func (h *Host) ReceivePayload(from NodeID, frames []Frame) {
	for _, f := range frames {
		r, _ := h.served(f.Group)
		if r == nil {
			continue
		}
		p, err := decodePayload(f.Data)
		if err != nil {
			h.badFrame(from, f.Group, err)
			continue
		}
		r.supply.deliver(parcel{kind: parcelFrame, from: from, payload: p})
	}
}
