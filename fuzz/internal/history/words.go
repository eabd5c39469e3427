package history

import (
	"encoding/hex"
	"fmt"

	"weida/broker/wire"
	"weida/segment"
)

// Fate is what somebody who asked for something knows of it.
type Fate string

// The fates.
const (
	Done    Fate = "done"
	Refused Fate = "refused" // certainly not done, and it will not be
	Unknown Fate = "unknown" // perhaps done
)

// Verb is how a delivery is settled.
type Verb string

// The verbs. Accept and Reject take the message out.
const (
	Accept  Verb = "accept"
	Release Verb = "release"
	Reject  Verb = "reject"
)

// Do is what is done to a queue.
type Do string

// What is done to queues.
const (
	Create Do = "create" // refused if it is there
	Apply  Do = "apply"  // makes it or changes it
	Delete Do = "delete"
)

// FaultKind is what is done to nodes. The first group decides what a message's evidence may cost; whatever else has a
// name of its own takes nothing that was confirmed.
type FaultKind string

// The faults that matter to evidence.
const (
	Kill      FaultKind = "kill"       // the process; the kernel keeps what was written
	PowerCut  FaultKind = "power cut"  // what was not flushed may be gone
	DiskLost  FaultKind = "disk lost"  // everything on it is gone, or of an earlier day
	DiskFault FaultKind = "disk fault" // bytes of it are damaged, a file is cut or gone, a flush failed
)

// The faults that cost nothing.
const (
	Pause     FaultKind = "pause"
	Partition FaultKind = "partition"
	DiskFull  FaultKind = "disk full"
	DiskSlow  FaultKind = "disk slow"
	Restart   FaultKind = "restart" // in order
)

// DumpAt is the way in which a disk came to be as it is in a dump.
type DumpAt string

// The ways.
const (
	AtStop     DumpAt = "stop"      // in order
	AtKill     DumpAt = "kill"      // what was written counts
	AtPowerCut DumpAt = "power cut" // only what was flushed counts
)

// DigestOf is the digest of a body.
func DigestOf(b []byte) Digest { return Digest(segment.DigestOf(b)) }

// MarshalText implements encoding.TextMarshaler: 32 hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(d) {
		return fmt.Errorf("a digest of %d bytes", hex.DecodedLen(len(b)))
	}
	_, err := hex.Decode(d[:], b)
	return err
}

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Of makes Evidence of what the client library has.
func Of(e wire.Evidence) Evidence { return Evidence{e} }

// MarshalText implements encoding.TextMarshaler.
func (e Evidence) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Evidence) UnmarshalText(b []byte) (err error) {
	if string(b) == (wire.Evidence{}).String() {
		e.Evidence = wire.Evidence{}
		return nil
	}
	e.Evidence, err = wire.ParseWant(string(b))
	return err
}
