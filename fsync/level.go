package fsync

import "fmt"

// Level is how far one node's persistence of a message has come.
type Level uint8

// The levels, in order. There is no "stored" without one of them (D-4).
const (
	// Written: handed to the kernel; survives the death of the process, not of the machine (D-1, D-2).
	Written Level = iota + 1
	// Flushed: on the disk, name included; survives a power cut of this node (D-3).
	Flushed
)

func (l Level) String() string {
	switch l {
	case Written:
		return "written"
	case Flushed:
		return "flushed"
	}
	return fmt.Sprintf("Level(%d)", uint8(l))
}
