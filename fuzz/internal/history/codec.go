package history

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// A line is one JSON object: t, client, event, then the event's own fields.

// made makes an empty event by its name.
var made = func() map[string]func() Event {
	m := make(map[string]func() Event)
	for _, f := range []func() Event{
		func() Event { return new(Publish) }, func() Event { return new(Answer) },
		func() Event { return new(Deliver) }, func() Event { return new(Settle) },
		func() Event { return new(Settled) }, func() Event { return new(Purge) },
		func() Event { return new(Purged) }, func() Event { return new(Change) },
		func() Event { return new(Changed) }, func() Event { return new(Fault) },
		func() Event { return new(FaultDone) }, func() Event { return new(Boot) },
		func() Event { return new(Lost) }, func() Event { return new(Audit) },
		func() Event { return new(Dump) }, func() Event { return new(Entry) },
		func() Event { return new(DumpEnd) }, func() Event { return new(Healed) },
		func() Event { return new(Health) },
	} {
		m[f().name()] = f
	}
	return m
}()

// head is what every line begins with. The client's name is first, because a Publish has fields of all kinds.
type head struct {
	T      Time   `json:"t"`
	Client string `json:"client"`
	Event  string `json:"event"`
}

// appendLine encodes a line, with its newline.
func appendLine(dst []byte, l *Line) ([]byte, error) {
	first, err := json.Marshal(head{l.T, l.Client, l.Event.name()})
	if err != nil {
		return dst, err
	}
	rest, err := json.Marshal(l.Event)
	if err != nil {
		return dst, err
	}
	dst = append(dst, first[:len(first)-1]...)
	if len(rest) > len("{}") {
		dst = append(append(dst, ','), rest[1:]...)
	} else {
		dst = append(dst, '}')
	}
	return append(dst, '\n'), nil
}

// decodeLine is the inverse.
func decodeLine(b []byte) (l Line, err error) {
	var h head
	if err := json.Unmarshal(b, &h); err != nil {
		return l, err
	}
	f := made[h.Event]
	if f == nil {
		return l, fmt.Errorf("an event of unknown kind %q", h.Event)
	}
	l = Line{T: h.T, Client: h.Client, Event: f()}
	return l, json.Unmarshal(b, l.Event)
}

// String is the line as it stands in the file.
func (l *Line) String() string {
	b, err := appendLine(nil, l)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSuffix(b, []byte("\n")))
}
