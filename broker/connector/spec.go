package connector

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weida/broker/control"
	"weida/broker/wire"
)

// Protocol is the protocol of this package.
const Protocol = "file"

// The losses that a file connector knows. A spec names those that it takes into account, separated by commas, or none;
// one that leaves out what the connector cannot rule out is refused.
const (
	LossNone = "none"
	// LossDuplicates: a message may be there twice. Every sink has it: a crash between flush and settle.
	LossDuplicates = "duplicates"
	// LossPowerCut: of a source whose evidence is not flushed: what the queue confirmed may go with the power.
	LossPowerCut = "power-cut"
	// LossUnframed: a sink rejects messages that are no single line; without it, it stops at one.
	LossUnframed = "unframed"
)

// SpecError is a spec that this build cannot make true. Nothing was read, written or published.
type SpecError struct{ Field, Why string }

func (e *SpecError) Error() string {
	return "connector: " + e.Field + " " + e.Why + "; nothing was moved; correct the spec and apply it again"
}

// framing is how a sink tells messages apart.
type framing uint8

const (
	framedByNewline framing = iota
	framedByLength
)

// plan is a spec that was understood.
type plan struct {
	source bool
	queue  string
	path   string    // as in the spec
	want   wire.Want // of a source
	follow bool      // of a source
	atEnd  bool      // of a source
	// Of a sink.
	framing  framing
	unframed bool // rejects what is no line
}

// Check refuses a spec that this build cannot make true with a *SpecError. It says nothing of the file itself.
func Check(s control.ConnectorSpec) error {
	_, err := parse(s)
	return err
}

func parse(s control.ConnectorSpec) (plan, error) {
	p := plan{source: s.Direction == "source", queue: s.Queue, path: s.Address, follow: true}
	switch {
	case s.Protocol != Protocol:
		return p, &SpecError{"spec.protocol", fmt.Sprintf("%.40q is not known: this build has %q", s.Protocol, Protocol)}
	case s.Direction != "source" && s.Direction != "sink":
		return p, &SpecError{"spec.direction", fmt.Sprintf("%.40q is not known: use source or sink", s.Direction)}
	case s.Address == "":
		return p, &SpecError{"spec.address", "is empty: it is the path of the file"}
	case s.Queue == "":
		return p, &SpecError{"spec.queue", "is empty"}
	}
	var err error
	if err = p.policy(s.Policy); err == nil {
		err = p.promise(s.Evidence, s.Loss)
	}
	return p, err
}

// choice is the value of one key of the policy: one of two words, the first being the default.
func choice(policy map[string]string, key, usual, other string) (bool, error) {
	switch v, ok := policy[key]; {
	case !ok || v == usual:
		return false, nil
	case v == other:
		return true, nil
	default:
		return false, &SpecError{"spec.policy." + key, fmt.Sprintf("%.40q is not known: use %s or %s", v, usual, other)}
	}
}

// placedBy is the key of the policy that says which node a connector runs on. It is for who places it, not for this
// package.
const placedBy = "node"

func (p *plan) policy(policy map[string]string) error {
	known := []string{"framing", placedBy}
	if p.source {
		known = []string{"follow", "startAt", placedBy}
	}
	for _, k := range slices.Sorted(maps.Keys(policy)) {
		if !slices.Contains(known, k) {
			return &SpecError{"spec.policy", fmt.Sprintf("%.40q is not known here: use %s", k, strings.Join(known, " and "))}
		}
	}
	if !p.source {
		byLength, err := choice(policy, "framing", "newline", "length")
		if byLength {
			p.framing = framedByLength
		}
		return err
	}
	once, err := choice(policy, "follow", "true", "false")
	if err != nil {
		return err
	}
	p.follow = !once
	p.atEnd, err = choice(policy, "startAt", "begin", "end")
	return err
}

// promise compares what the spec states with what this connector can rule out.
func (p *plan) promise(evidence, loss string) error {
	var needed []string
	if p.source {
		want, err := wire.ParseWant(evidence)
		switch {
		case err != nil:
			return &SpecError{"spec.evidence", "of a source is what it asks of the queue: " + err.Error()}
		case want == wire.Accepted():
			return &SpecError{"spec.evidence", "accepted is no place in the queue, and a source goes on from what the queue " +
				"has: use stored:written, stored:flushed or replicated:N[:flushed]"}
		}
		p.want = want
		if want.Persistence < wire.Flushed {
			needed = []string{LossPowerCut}
		}
	} else {
		needed = []string{LossDuplicates}
		if evidence != string(control.Flushed) {
			return &SpecError{"spec.evidence", fmt.Sprintf("%.40q is not what a sink gives: a message is accepted when its "+
				"record is flushed, so state flushed", evidence)}
		}
	}
	return p.losses(loss, needed)
}

func (p *plan) losses(loss string, needed []string) error {
	may := []string{LossPowerCut}
	if !p.source {
		may = []string{LossDuplicates}
		if p.framing == framedByNewline {
			may = append(may, LossUnframed)
		}
	}
	stated := strings.Split(loss, ",")
	for i, w := range stated {
		stated[i] = strings.TrimSpace(w)
	}
	if slices.Equal(stated, []string{LossNone}) {
		stated = nil
	}
	for _, w := range stated {
		if !slices.Contains(may, w) {
			return &SpecError{"spec.loss", fmt.Sprintf("%.40q is not known here: use none, or %s, with commas between", w,
				strings.Join(may, " and "))}
		}
	}
	for _, w := range needed {
		if !slices.Contains(stated, w) {
			return &SpecError{"spec.loss", fmt.Sprintf("leaves out %q, which this direction and evidence cannot rule out: "+
				"state %q", w, strings.Join(needed, ","))}
		}
	}
	p.unframed = slices.Contains(stated, LossUnframed)
	return nil
}
