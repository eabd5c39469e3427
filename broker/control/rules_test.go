package control

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func connectorSpec() ConnectorSpec {
	return ConnectorSpec{
		Protocol: "file", Direction: "source", Address: "/var/in", Policy: map[string]string{"k": "v", "j": ""}, Queue: "a",
		Evidence: "none: a line that was read is not kept by the file", Loss: "lines that are cut off before they are read",
	}
}

// queueRules are specs with the field that is refused, "" if none is (T-9).
var queueRules = []struct {
	why   string
	name  string
	spec  QueueSpec
	field string
	says  string
}{
	{"empty", "a", QueueSpec{}, "", ""},
	{"all", "a/b c", QueueSpec{
		1, Written, QueueLimits{1, 300, 44}, PlacementSpec{[]string{"n1"}, "n1"}, Duration(30 * 24 * time.Hour),
	}, "", ""},
	{"no name", "", QueueSpec{}, "metadata.name", "between 1 and 512"},
	{"longest name", strings.Repeat("x", 512), QueueSpec{}, "", ""},
	{"long name", strings.Repeat("x", 513), QueueSpec{}, "metadata.name", "513 bytes: between 1 and 512"},
	{"control", "a\x00", QueueSpec{}, "metadata.name", "control character"},
	{"line end", "a\n", QueueSpec{}, "metadata.name", "control character"},
	{"delete", "a\x7f", QueueSpec{}, "metadata.name", "control character"},
	{"C1", "a\u0085", QueueSpec{}, "metadata.name", "control character"},
	{"not UTF-8", "a\xff", QueueSpec{}, "metadata.name", "UTF-8"},
	{"opaque", "*.>#/../ä→%2F ", QueueSpec{}, "", ""},
	{"negative replicas", "a", QueueSpec{Replicas: -1}, "spec.replicas", "at least 1"},
	{"two", "a", QueueSpec{Replicas: 2}, "spec.replicas", "two replicas tolerate no failure: use 1"},
	{"three", "a", QueueSpec{Replicas: 3}, "", ""},
	{"four", "a", QueueSpec{Replicas: 4}, "", ""},
	{"seven", "a", QueueSpec{Replicas: 7}, "", ""},
	{"eight", "a", QueueSpec{Replicas: 8}, "spec.replicas", "at most 7"},
	{"written in three", "a", QueueSpec{Replicas: 3, Durability: Written}, "spec.durability", "power cut"},
	{"durability", "a", QueueSpec{Durability: "fast"}, "spec.durability", "use flushed or written"},
	{"written", "a", QueueSpec{Durability: Written}, "", ""},
	{"bytes", "a", QueueSpec{Limits: QueueLimits{Bytes: 255}}, "spec.limits.bytes", "at least 256"},
	{"bytes for one", "a", QueueSpec{Limits: QueueLimits{Bytes: 256}}, "", ""},
	{"one does not fit", "a", QueueSpec{Limits: QueueLimits{Bytes: 355, MessageBytes: 100}}, "spec.limits.bytes", "356"},
	{"one fits", "a", QueueSpec{Limits: QueueLimits{Bytes: 356, MessageBytes: 100}}, "", ""},
	{"messages", "a", QueueSpec{Limits: QueueLimits{Messages: math.MaxUint64}}, "spec.limits.messages", "at most"},
	{"huge bytes", "a", QueueSpec{Limits: QueueLimits{Bytes: 1 << 63}}, "spec.limits.bytes", "at most"},
	{
		"huge message", "a",
		QueueSpec{Limits: QueueLimits{Bytes: 256, MessageBytes: math.MaxUint64}},
		"spec.limits.messageBytes", "at most",
	},
	{
		"two pins", "a",
		QueueSpec{Placement: PlacementSpec{Nodes: []string{"n1", "n2"}}},
		"spec.placement.nodes",
		"2 nodes for spec.replicas 1",
	},
	{"empty pin", "a", QueueSpec{Placement: PlacementSpec{Nodes: []string{""}}}, "spec.placement.nodes[0]", "between 1"},
	{
		"long leader", "a",
		QueueSpec{Placement: PlacementSpec{PreferredLeader: strings.Repeat("n", 129)}},
		"spec.placement.preferredLeader", "between 1 and 128",
	},
	{
		"leader elsewhere", "a",
		QueueSpec{Placement: PlacementSpec{[]string{"n1"}, "n2"}},
		"spec.placement.preferredLeader",
		"none of spec.placement.nodes",
	},
	{"negative drain", "a", QueueSpec{DrainDeadline: -1}, "spec.drainDeadline", "above 0s and at most 720h0m0s"},
	{"long drain", "a", QueueSpec{DrainDeadline: Duration(30*24*time.Hour) + 1}, "spec.drainDeadline", "at most 720h"},
	{"first of many", "a", QueueSpec{Replicas: 2, Durability: "x", DrainDeadline: -1}, "spec.replicas", ""},
}

// TestQueueRules asks before a proposal and in the state machine: the same answer.
func TestQueueRules(t *testing.T) {
	for _, tc := range queueRules {
		r := newRegistry(t)
		for _, verb := range []Verb{Apply, Create} {
			res := r.mutate(Mutation{Verb: verb, Kind: KindQueue, Name: tc.name, Queue: &tc.spec})
			err := ValidateQueue(tc.name, tc.spec)
			if d := cmp.Diff(err, res.Err); d != "" && verb == Apply {
				t.Errorf("%s: two answers: %s", tc.why, d)
			}
			judge(t, tc.why, err, tc.field, tc.says)
		}
	}
}

// TestPinsAreDistinct: rules that only more than one replica can break.
func TestPinsAreDistinct(t *testing.T) {
	refuse := func(field, _ string, _ ...any) *Error { return &Error{Field: field} }
	for want, p := range map[string]PlacementSpec{
		"spec.placement.nodes[2]":        {Nodes: []string{"a", "b", "a"}},
		"spec.placement.preferredLeader": {Nodes: []string{"a", "b", "c"}, PreferredLeader: "d"},
	} {
		if err := validatePlacement(QueueSpec{Replicas: 3, Placement: p}, refuse); err == nil || err.Field != want {
			t.Errorf("%s: %v", want, err)
		}
	}
	open := PlacementSpec{Nodes: []string{"a", "b"}, PreferredLeader: "d"}
	if err := validatePlacement(QueueSpec{Replicas: 3, Placement: open}, refuse); err != nil {
		t.Errorf("a third node is free, and refused at %s", err.Field)
	}
}

func judge(t *testing.T, why string, err *Error, field, says string) {
	t.Helper()
	switch {
	case err == nil && field == "":
	case err == nil:
		t.Errorf("%s: taken", why)
	case err.Reason != Invalid || err.Field != field || !strings.Contains(err.Message, says) ||
		!strings.HasPrefix(err.Message, field):
		t.Errorf("%s: %s at %q: %s", why, err.Reason, err.Field, err.Message)
	}
}

// TestConnectorRules: evidence and loss are mandatory (T-10, T-11, D-19).
func TestConnectorRules(t *testing.T) {
	big := map[string]string{}
	for i := range 65 {
		big[fmt.Sprint(i)] = ""
	}
	for _, tc := range []struct {
		change func(*ConnectorSpec)
		field  string
		says   string
	}{
		{func(*ConnectorSpec) {}, "", ""},
		{func(s *ConnectorSpec) { s.Direction = "sink" }, "", ""},
		{func(s *ConnectorSpec) { s.Policy = nil }, "", ""},
		{func(s *ConnectorSpec) { s.Protocol = "" }, "spec.protocol", "between 1"},
		{func(s *ConnectorSpec) { s.Direction = "" }, "spec.direction", "use source or sink"},
		{func(s *ConnectorSpec) { s.Direction = "both" }, "spec.direction", "use source or sink"},
		{func(s *ConnectorSpec) { s.Address = "" }, "spec.address", "between 1"},
		{func(s *ConnectorSpec) { s.Policy = big }, "spec.policy", "at most 64"},
		{func(s *ConnectorSpec) { s.Policy = map[string]string{"": "v"} }, "spec.policy", "key"},
		{func(s *ConnectorSpec) { s.Policy = map[string]string{"k": strings.Repeat("v", 1025)} }, "spec.policy", "\"k\""},
		{func(s *ConnectorSpec) { s.Queue = "" }, "spec.queue", "between 1 and 512"},
		{func(s *ConnectorSpec) { s.Queue = "a\n" }, "spec.queue", "control"},
		{func(s *ConnectorSpec) { s.Evidence = "" }, "spec.evidence", "say which evidence"},
		{func(s *ConnectorSpec) { s.Loss = "" }, "spec.loss", "say what may be lost"},
		{func(s *ConnectorSpec) { s.Loss = strings.Repeat("x", 1025) }, "spec.loss", "between 1 and 1024"},
	} {
		spec := connectorSpec()
		tc.change(&spec)
		err := ValidateConnector("c", spec)
		judge(t, tc.field, err, tc.field, tc.says)
		res := newRegistry(t).mutate(Mutation{Verb: Apply, Kind: KindConnector, Name: "c", Connector: &spec})
		if d := cmp.Diff(err, res.Err); d != "" {
			t.Errorf("two answers: %s", d)
		}
	}
	if err := ValidateConnector("", connectorSpec()); err == nil || err.Field != "metadata.name" {
		t.Error(err)
	}
}

// TestMutationRules: what is no mutation at all changes nothing.
func TestMutationRules(t *testing.T) {
	q, c, d := QueueSpec{}, connectorSpec(), Duration(1)
	neg, long := Duration(-1), Duration(DrainMax)+1
	for _, tc := range []struct {
		m     Mutation
		field string
	}{
		{Mutation{Verb: Apply, Kind: "Topic", Name: "a", Queue: &q}, "kind"},
		{Mutation{Verb: "patch", Kind: KindQueue, Name: "a", Queue: &q}, "verb"},
		{Mutation{Verb: Delete, Kind: KindQueue}, "metadata.name"},
		{Mutation{Verb: Apply, Kind: KindQueue, Name: "a"}, "spec"},
		{Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Connector: &c}, "spec"},
		{Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Queue: &q, Connector: &c}, "spec"},
		{Mutation{Verb: Apply, Kind: KindConnector, Name: "a", Queue: &q, Connector: &c}, "spec"},
		{Mutation{Verb: Apply, Kind: KindConnector, Name: "a"}, "spec"},
		{Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Queue: &q, Drain: &d}, "drain"},
		{Mutation{Verb: Delete, Kind: KindQueue, Name: "a", Queue: &q}, "spec"},
		{Mutation{Verb: Delete, Kind: KindQueue, Name: "a", Drain: &neg}, "drain"},
		{Mutation{Verb: Delete, Kind: KindQueue, Name: "a", Drain: &long}, "drain"},
		{Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Queue: &q, At: -1}, "at"},
		{Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Queue: &q, At: math.MaxInt64}, "at"},
	} {
		r := newRegistry(t)
		r.must(r.apply("a", QueueSpec{}))
		r.mutate(Mutation{Verb: Apply, Kind: KindConnector, Name: "a", Connector: &c})
		res := r.mutate(tc.m)
		if err := r.refused(res, Invalid); err.Field != tc.field {
			t.Errorf("%s: %v", tc.field, err)
		}
		if res.Queue != nil && tc.m.Kind != KindQueue || res.Connector != nil && tc.m.Kind != KindConnector {
			t.Errorf("%s: answers with another resource: %+v", tc.field, res)
		}
	}
	m := Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Queue: &q}
	if err := m.Validate(); err == nil || err.Field != "at" {
		t.Errorf("without a time: %v", err)
	}
}
