package admin

import (
	"fmt"

	"weida/raftstore"
)

// Disk is how the disk of a node is.
type Disk struct {
	State        string `json:"state"`      // ok, slow, full, or full and slow
	FreeBytes    int64  `json:"freeBytes"`  // as of a moment ago
	TotalBytes   int64  `json:"totalBytes"` // of the file system; 0 is not known, and then nothing is of the rest
	ReserveBytes int64  `json:"reserveBytes"`
}

// DiskOf is a disk's status as it is told.
func DiskOf(s raftstore.DiskStatus) Disk {
	return Disk{
		State: s.State.String(), FreeBytes: s.Space.Free, TotalBytes: s.Space.Total, ReserveBytes: s.Reserve,
	}
}

// ails says what is wrong with the disk, and what to do; "" if nothing is.
func (d *Disk) ails() (what, remedy string) {
	slow, full := raftstore.DiskSlow, raftstore.DiskNoRoom
	switch {
	case d == nil, d.State == raftstore.DiskState(0).String():
		return "", ""
	case d.State == slow.String():
		return "its disk is slow, and others lead while there are better ones", "look at what keeps the disk busy, or at " +
			"the disk"
	case d.State == full.String(), d.State == (slow | full).String():
		return fmt.Sprintf("its disk is %s: %d of %d bytes are free, %d are kept from messages", d.State, d.FreeBytes,
			d.TotalBytes, d.ReserveBytes), "free some space; it goes on by itself"
	}
	return "its disk is " + d.State, "look at that node"
}

// Trouble says what is wrong with the disk of a node that answers, and what to do; "" if nothing is, as far as is
// known.
func (m *Member) Trouble() (what, remedy string) {
	if m.Live == nil || !m.Live.Reached {
		return "", ""
	}
	return m.Live.Disk.ails()
}
