package connector

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

// PathError is a path that a connector may not use. Nothing was opened.
type PathError struct{ Path, Why string }

func (e *PathError) Error() string {
	return fmt.Sprintf("connector: %q %s; it was not opened, nothing was moved", e.Path, e.Why)
}

// ChangedError is a file that is not the one the connector was at work on. Nothing was published, written or cut.
type ChangedError struct {
	Path string
	Why  string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("connector: %s %s; nothing more was moved, and the file was not touched; bring back the file that "+
		"it was, or delete the connector and make it again: it begins anew", e.Path, e.Why)
}

// ForgottenError is a queue that does not know a source's producer any more.
type ForgottenError struct {
	Queue string
	Lines uint64 // that it had confirmed
}

func (e *ForgottenError) Error() string {
	return fmt.Sprintf("connector: queue %q knows nothing of the %d lines that it had confirmed: it was made anew, or "+
		"the producer was retired; nothing more was published, because every line would come again; if that is wanted, "+
		"delete the connector and make it again", e.Queue, e.Lines)
}

// LineError is a line that did not get its place in the queue. The source stays at it.
type LineError struct {
	Line uint64
	Err  error
}

func (e *LineError) Error() string {
	return fmt.Sprintf("connector: publish line %d: %v", e.Line, e.Err)
}

// Unwrap returns the broker's answer.
func (e *LineError) Unwrap() error { return e.Err }

// UnframedError is a message that is no single line. It is in the queue still.
type UnframedError struct{ Offset uint64 }

func (e *UnframedError) Error() string {
	return fmt.Sprintf("connector: message %d has a newline inside and would be two lines; it was not written and stays "+
		"in the queue; set policy framing to length, or state the loss %q to have such messages rejected",
		e.Offset, LossUnframed)
}

// StateError is a state file that cannot be understood.
type StateError struct {
	Path string
	Err  error
}

func (e *StateError) Error() string {
	return fmt.Sprintf("connector: %s: %v; nothing was moved and it was not changed; bring back a copy, or move it away: "+
		"a source goes on from what the queue has, a sink at the end of its file", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *StateError) Unwrap() error { return e.Err }

// noQueue says that the queue is not there, or goes.
func noQueue(err error) bool {
	var refused *wire.Error
	return errors.As(err, &refused) && (refused.Code == wire.UnknownQueue || refused.Code == wire.QueueDeleted)
}

// judge is the phase and the reason that users see of an error.
func judge(err error) (control.Phase, string) {
	var (
		spec        *SpecError
		path        *PathError
		changed     *ChangedError
		forgotten   *ForgottenError
		unframed    *UnframedError
		state       *StateError
		refused     *wire.Error
		lost        *client.LostError
		unreachable *endpoint.UnreachableError
	)
	switch {
	case errors.As(err, &spec):
		return control.Pending, "SpecRefused"
	case errors.As(err, &path):
		return control.Pending, "PathRefused"
	case errors.As(err, &changed):
		return control.Degraded, "FileChanged"
	case errors.As(err, &forgotten):
		return control.Degraded, "PositionForgotten"
	case errors.As(err, &unframed):
		return control.Degraded, "NotOneLine"
	case errors.As(err, &state):
		return control.Degraded, "StateDamaged"
	case noQueue(err):
		return control.Pending, "QueueNotFound"
	case errors.Is(err, fsync.ErrLocked):
		return control.Pending, "Locked"
	case errors.Is(err, fsync.ErrDiskFull):
		return control.Degraded, "DiskFull"
	case errors.Is(err, fs.ErrNotExist):
		return control.Pending, "FileNotFound"
	case errors.As(err, &refused):
		if refused.Code == wire.ConnectionLost {
			return control.Degraded, "Unreachable"
		}
		return control.Degraded, word(refused.Code.String())
	case errors.As(err, &lost), errors.As(err, &unreachable):
		return control.Degraded, "Unreachable"
	}
	return control.Degraded, "Error"
}

// word is a code's name as the one word of a reason: not_offered is NotOffered.
func word(name string) string {
	var b strings.Builder
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '_' || r == ' ' }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}
