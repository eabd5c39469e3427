package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Persistence is how far a message is on the disk of each counted replica.
type Persistence uint8

// The persistence levels. None belongs to Accepted alone.
const (
	None Persistence = iota
	Written
	Flushed
)

// Evidence is what a producer asks for and what the broker achieved: two axes, persistence and
// replicas. The valid values are those of Accepted, Stored and Replicated; the zero value is none of
// them and means "not asked" in a Want.
type Evidence struct {
	Persistence Persistence
	// Replicas that hold body and commit record at that persistence, the leader included. 0 for
	// Accepted, 1 for Stored, 2 and more for Replicated.
	Replicas uint32
	accepted bool
}

// Want is the evidence a producer asks for.
type Want = Evidence

// ReplicasMax bounds a replica count.
const ReplicasMax = 255

// Accepted says that the broker has the message in memory; it may be lost with the process.
func Accepted() Evidence { return Evidence{accepted: true} }

// Stored says that one node's storage holds the message at p, which is Written or Flushed.
func Stored(p Persistence) Evidence { return Evidence{Persistence: p, Replicas: 1, accepted: true} }

// Replicated says that n replicas hold the message at p, n being 2 or more.
func Replicated(n uint32, p Persistence) Evidence {
	return Evidence{Persistence: p, Replicas: n, accepted: true}
}

// IsZero tells "nothing said" from every level.
func (e Evidence) IsZero() bool { return e == Evidence{} }

// Validate refuses values that no broker may report: stored without a level, replicated of one.
func (e Evidence) Validate() error {
	switch {
	case !e.accepted || e.Persistence > Flushed || e.Replicas > ReplicasMax:
		return errors.New("evidence is undefined")
	case e.Persistence == None && e.Replicas > 0:
		return errors.New("stored and replicated need a level: written or flushed")
	case e.Persistence != None && e.Replicas == 0:
		return errors.New("a persistence level needs at least one replica that holds it")
	}
	return nil
}

// Covers says that e is at least w on both axes. Stored(Flushed) and Replicated(3, written) do not
// cover each other: the order is partial (D-12).
func (e Evidence) Covers(w Want) bool {
	return e.Validate() == nil && e.Persistence >= w.Persistence && e.Replicas >= w.Replicas
}

// Level names the kind: "accepted", "stored" or "replicated".
func (e Evidence) Level() string {
	switch {
	case e.Replicas >= 2:
		return "replicated"
	case e.Replicas == 1:
		return "stored"
	case e.accepted:
		return "accepted"
	}
	return ""
}

// String is the form of ParseWant: accepted, stored:written, stored:flushed, replicated:3,
// replicated:3:flushed.
func (e Evidence) String() string {
	switch e.Level() {
	case "accepted":
		return "accepted"
	case "stored":
		if e.Persistence == Flushed {
			return "stored:flushed"
		}
		return "stored:written"
	case "replicated":
		s := "replicated:" + strconv.FormatUint(uint64(e.Replicas), 10)
		if e.Persistence == Flushed {
			s += ":flushed"
		}
		return s
	}
	return "unspecified"
}

// ParseWant reads the text form of a want.
func ParseWant(s string) (Want, error) {
	switch s {
	case "accepted":
		return Accepted(), nil
	case "stored:written":
		return Stored(Written), nil
	case "stored:flushed":
		return Stored(Flushed), nil
	case "stored":
		return Want{}, errors.New(`"stored" names no level: say stored:written (survives the process) ` +
			`or stored:flushed (survives a power cut)`)
	}
	rest, ok := strings.CutPrefix(s, "replicated:")
	if !ok {
		return Want{}, fmt.Errorf(
			"%q is no evidence: use accepted, stored:written, stored:flushed or replicated:N[:flushed]", s)
	}
	number, flushed := strings.CutSuffix(rest, ":flushed")
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil || n > ReplicasMax || strconv.FormatUint(n, 10) != number {
		return Want{}, fmt.Errorf("%q: the number of replicas is between 2 and %d", s, ReplicasMax)
	}
	if n < 2 {
		return Want{}, fmt.Errorf("%q: one replica is stored, not replicated; use stored:written or stored:flushed", s)
	}
	if flushed {
		return Replicated(uint32(n), Flushed), nil
	}
	return Replicated(uint32(n), Written), nil
}
