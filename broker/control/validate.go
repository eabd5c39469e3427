package control

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of resources (docs/reference/limits.md).
const (
	NameMax         = 512                 // bytes of a name (W-20)
	ReplicasMax     = 7                   // of a queue
	DrainMax        = 30 * 24 * time.Hour // of draining; it always ends (W-28)
	DrainDefault    = 5 * time.Minute     // of draining, where neither spec nor deletion says
	MessageOverhead = 256                 // bytes a message counts beside its body (W-26)

	memberMax     = 128 // bytes of a node's name or fingerprint in a spec
	wordMax       = 128 // bytes of protocol, direction and keys of a policy
	textMax       = 1024
	policyMax     = 64   // entries of a policy
	conditionsMax = 16   // of a status
	copiesMax     = 16   // replicas in a status
	messageMax    = 1024 // bytes of a condition's message
)

// WithDefaults returns the spec as it is kept: what was left out is filled in, so that get shows it.
// Limits of 0 stay 0: the node's profile gives them.
func (s QueueSpec) WithDefaults() QueueSpec {
	if s.Replicas == 0 {
		s.Replicas = 1
	}
	if s.Durability == "" {
		s.Durability = Flushed
	}
	if s.DrainDeadline == 0 {
		s.DrainDeadline = Duration(DrainDefault)
	}
	s.Placement.Nodes = cloneList(s.Placement.Nodes)
	return s
}

// WithDefaults returns the spec as it is kept. There are no defaults: what a connector is worth has to be said.
func (s ConnectorSpec) WithDefaults() ConnectorSpec {
	if len(s.Policy) == 0 {
		s.Policy = nil
	}
	s.Policy = maps.Clone(s.Policy)
	return s
}

// cloneList copies a list; an empty one is nil, so that one value has one form.
func cloneList[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}

// Validate refuses what no state of the registry would take; a node calls it before it proposes.
func (m *Mutation) Validate() *Error { return m.validate(commandVersion) }

// validate judges by the rules of a version.
func (m *Mutation) validate(rules int) *Error {
	refuse := func(field, format string, args ...any) *Error {
		return invalid(m.Kind, m.Name, field, format, args...)
	}
	if m.Kind == KindNode && rules >= 2 {
		return m.validateNode(refuse)
	}
	if m.Kind != KindQueue && m.Kind != KindConnector {
		return refuse("kind", "kind %.40q is not known: use %s or %s", m.Kind, KindQueue, KindConnector)
	}
	if m.Verb != Apply && m.Verb != Create && m.Verb != Delete {
		return refuse("verb", "verb %.40q is not known: use %s, %s or %s", m.Verb, Apply, Create, Delete)
	}
	if err := validateName(m.Kind, m.Name); err != nil {
		return err
	}
	if m.At <= 0 {
		return refuse("at", "the time %d of the request is not one: it is in milliseconds since 1970, above 0", m.At)
	}
	if m.At > math.MaxInt64-DrainMax.Milliseconds() {
		return refuse("at", "the time %d of the request is too far ahead", m.At)
	}
	if m.Verb == Delete {
		return m.validateDelete(refuse)
	}
	if m.Drain != nil {
		return refuse("drain", "a drain deadline of its own belongs to a deletion; the spec's is spec.drainDeadline")
	}
	switch {
	case m.Kind == KindQueue && m.Queue != nil && m.Connector == nil:
		return validateQueue(m.Name, *m.Queue, rules)
	case m.Kind == KindConnector && m.Connector != nil && m.Queue == nil:
		return ValidateConnector(m.Name, *m.Connector)
	}
	return refuse("spec", "%s of a %s carries one spec, of that kind", m.Verb, m.Kind)
}

func (m *Mutation) validateDelete(refuse func(string, string, ...any) *Error) *Error {
	if m.Queue != nil || m.Connector != nil {
		return refuse("spec", "a deletion carries no spec")
	}
	if m.Drain != nil && (*m.Drain < 0 || *m.Drain > Duration(DrainMax)) {
		return refuse("drain", "a drain deadline of %v: between 0s and %v are allowed", time.Duration(*m.Drain), DrainMax)
	}
	return nil
}

// validateNode is for the verbs of nodes.
func (m *Mutation) validateNode(refuse func(string, string, ...any) *Error) *Error {
	switch m.Verb {
	case NodeAdd, NodeDrain, NodeUndrain, NodeRemove:
	default:
		return refuse("verb", "a node is not changed by verb %.40q: use %s, %s, %s or %s", m.Verb, NodeAdd, NodeDrain,
			NodeUndrain, NodeRemove)
	}
	if why := flaw(m.Name, 1, memberMax); why != "" {
		return refuse("metadata.name", "metadata.name %s", why)
	}
	if m.At <= 0 {
		return refuse("at", "the time %d of the request is not one: it is in milliseconds since 1970, above 0", m.At)
	}
	if m.Queue != nil || m.Connector != nil || m.Drain != nil || (m.Node != nil) != (m.Verb == NodeAdd) {
		return refuse("spec", "%s of a node carries a node's spec if it adds one, and nothing else", m.Verb)
	}
	if m.Node == nil {
		return nil
	}
	for _, f := range []struct {
		field, text string
		least, most int
	}{
		{"spec.fingerprint", m.Node.Fingerprint, 1, memberMax},
		{"spec.address", m.Node.Address, 0, textMax},
		{"spec.admin", m.Node.Admin, 0, textMax},
	} {
		if why := flaw(f.text, f.least, f.most); why != "" {
			return refuse(f.field, "%s %s", f.field, why)
		}
	}
	return nil
}

func invalid(k Kind, name, field, format string, args ...any) *Error {
	return &Error{Reason: Invalid, Kind: k, Name: name, Field: field, Message: fmt.Sprintf(format, args...)}
}

// flaw is what is wrong with a text, "" if nothing: it has min to limit bytes of UTF-8 without control
// characters.
func flaw(s string, least, most int) string {
	if len(s) < least || len(s) > most {
		return fmt.Sprintf("has %d bytes: between %d and %d are allowed", len(s), least, most)
	}
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "has a control character: none is allowed"
	}
	return ""
}

func validateName(k Kind, name string) *Error {
	if why := flaw(name, 1, NameMax); why != "" {
		return invalid(k, name, "metadata.name", "metadata.name %s", why)
	}
	return nil
}

// ValidateQueue refuses a spec that the registry would not take, by the first bad field; nil if it would.
// Fields that are left out are fine: WithDefaults fills them in.
func ValidateQueue(name string, s QueueSpec) *Error { return validateQueue(name, s, commandVersion) }

func validateQueue(name string, s QueueSpec, rules int) *Error {
	s = s.WithDefaults()
	refuse := func(field, format string, args ...any) *Error {
		return invalid(KindQueue, name, field, field+" "+format, args...)
	}
	if err := validateName(KindQueue, name); err != nil {
		return err
	}
	if why := replicasFlaw(s.Replicas, rules); why != "" {
		return refuse("spec.replicas", "%d: %s", s.Replicas, why)
	}
	if s.Durability != Flushed && s.Durability != Written {
		return refuse("spec.durability", "%.40q is not known: use %s or %s", s.Durability, Flushed, Written)
	}
	if s.Durability == Written && s.Replicas > 1 {
		return refuse("spec.durability", "%q with %d replicas: a replica that lost its tail in a power cut would go on "+
			"counting as one that has it; use %q, or one replica", Written, s.Replicas, Flushed)
	}
	if err := validateLimits(s.Limits, refuse); err != nil {
		return err
	}
	if err := validatePlacement(s, refuse); err != nil {
		return err
	}
	if s.DrainDeadline < 0 || s.DrainDeadline > Duration(DrainMax) {
		return refuse("spec.drainDeadline", "%v: above 0s and at most %v are allowed",
			time.Duration(s.DrainDeadline), DrainMax)
	}
	return nil
}

func replicasFlaw(n, rules int) string {
	switch {
	case n < 1:
		return "at least 1 is needed"
	case n == 2:
		return "two replicas tolerate no failure: use 1 or 3"
	case rules < 2 && n > 1:
		return "more than 1 are refused until replication exists: use 1"
	case n > ReplicasMax:
		return fmt.Sprintf("at most %d are allowed", ReplicasMax)
	}
	return ""
}

func validateLimits(l QueueLimits, refuse func(string, string, ...any) *Error) *Error {
	for _, one := range []struct {
		field string
		v     uint64
	}{
		{"spec.limits.messages", l.Messages},
		{"spec.limits.bytes", l.Bytes},
		{"spec.limits.messageBytes", l.MessageBytes},
	} {
		if one.v > math.MaxInt64-MessageOverhead {
			return refuse(one.field, "%d: at most %d are allowed; 0 is the default", one.v, int64(math.MaxInt64-MessageOverhead))
		}
	}
	if least := l.MessageBytes + MessageOverhead; l.Bytes != 0 && l.Bytes < least {
		return refuse("spec.limits.bytes", "%d: a message of spec.limits.messageBytes would never fit: "+
			"at least %d, which is %d with the %d bytes that every message counts", l.Bytes, least, l.MessageBytes,
			MessageOverhead)
	}
	return nil
}

func validatePlacement(s QueueSpec, refuse func(string, string, ...any) *Error) *Error {
	nodes := s.Placement.Nodes
	if len(nodes) > s.Replicas {
		return refuse("spec.placement.nodes", "names %d nodes for spec.replicas %d: at most one node for each replica",
			len(nodes), s.Replicas)
	}
	for i, n := range nodes {
		field := fmt.Sprintf("spec.placement.nodes[%d]", i)
		if why := flaw(n, 1, memberMax); why != "" {
			return refuse(field, "%s", why)
		}
		if slices.Contains(nodes[:i], n) {
			return refuse(field, "%q is named twice: replicas are on distinct nodes", n)
		}
	}
	leader := s.Placement.PreferredLeader
	if leader == "" {
		return nil
	}
	if why := flaw(leader, 1, memberMax); why != "" {
		return refuse("spec.placement.preferredLeader", "%s", why)
	}
	if len(nodes) == s.Replicas && !slices.Contains(nodes, leader) {
		return refuse("spec.placement.preferredLeader", "%q is none of spec.placement.nodes %q, which hold all replicas",
			leader, nodes)
	}
	return nil
}

// ValidateConnector refuses a spec that the registry would not take, by the first bad field; nil if it
// would. Evidence and loss are texts of the connector's own: nothing is taken over by analogy (T-11, D-19).
func ValidateConnector(name string, s ConnectorSpec) *Error {
	refuse := func(field, format string, args ...any) *Error {
		return invalid(KindConnector, name, field, field+" "+format, args...)
	}
	if err := validateName(KindConnector, name); err != nil {
		return err
	}
	if why := flaw(s.Protocol, 1, wordMax); why != "" {
		return refuse("spec.protocol", "%s", why)
	}
	if s.Direction != "source" && s.Direction != "sink" {
		return refuse("spec.direction", "%.40q is not known: use source or sink", s.Direction)
	}
	if why := flaw(s.Address, 1, textMax); why != "" {
		return refuse("spec.address", "%s", why)
	}
	if len(s.Policy) > policyMax {
		return refuse("spec.policy", "has %d entries: at most %d are allowed", len(s.Policy), policyMax)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Policy)) {
		if why := flaw(k, 1, wordMax); why != "" {
			return refuse("spec.policy", "key %.40q %s", k, why)
		}
		if why := flaw(s.Policy[k], 0, textMax); why != "" {
			return refuse("spec.policy", "value of %q %s", k, why)
		}
	}
	if why := flaw(s.Queue, 1, NameMax); why != "" {
		return refuse("spec.queue", "%s", why)
	}
	if why := flaw(s.Evidence, 1, textMax); why != "" {
		return refuse("spec.evidence", "%s; say which evidence the other side gives", why)
	}
	if why := flaw(s.Loss, 1, textMax); why != "" {
		return refuse("spec.loss", "%s; say what may be lost and when", why)
	}
	return nil
}

// validateStatus refuses a status that no controller may write.
func validateStatus(k Kind, name string, s *Status) *Error {
	refuse := func(field, format string, args ...any) *Error {
		return invalid(k, name, field, field+" "+format, args...)
	}
	switch s.Phase {
	case Pending, Ready, Degraded, Deleting:
	default:
		return refuse("status.phase", "%.40q is not known", s.Phase)
	}
	if len(s.Placement) > copiesMax {
		return refuse("status.placement", "has %d replicas: at most %d are allowed", len(s.Placement), copiesMax)
	}
	for i, r := range s.Placement {
		if len(r.Node) > memberMax || len(r.Disk) > memberMax || len(r.Lost) > wordMax {
			return refuse(fmt.Sprintf("status.placement[%d]", i), "has more than %d bytes in a field", memberMax)
		}
	}
	if len(s.Conditions) > conditionsMax {
		return refuse("status.conditions", "has %d: at most %d are allowed", len(s.Conditions), conditionsMax)
	}
	for i, c := range s.Conditions {
		if len(c.Type) > wordMax || len(c.Reason) > wordMax || len(c.Message) > messageMax {
			return refuse(fmt.Sprintf("status.conditions[%d]", i), "has more than %d bytes in its message, or than %d "+
				"elsewhere", messageMax, wordMax)
		}
	}
	return nil
}
