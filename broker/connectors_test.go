package broker_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weida/broker"
	"weida/broker/control"
	"weida/broker/wire"
)

// unsure says whether a change has to be asked for again: on a slow machine the nodes find each other late, and answers
// do not come in time. The same may then be applied, or deleted, twice.
func (r *clusterRig) unsure(err error, verb control.Verb) bool {
	var no *wire.Error
	return r.ctx.Err() == nil && errors.As(err, &no) && (no.Code == wire.NotCommitted ||
		no.Code == wire.MutationIndeterminate && (verb == control.Apply || verb == control.Delete))
}

// mutate asks for a change until it is answered.
func (r *clusterRig) mutate(m control.Mutation) (control.Result, error) {
	res, err := r.any().Mutate(r.ctx, m)
	for r.unsure(err, m.Verb) {
		res, err = r.any().Mutate(r.ctx, m)
	}
	return res, err
}

// change makes a change of the registry and fails if it is refused.
func (r *clusterRig) change(m control.Mutation) control.Result {
	r.t.Helper()
	res, err := r.mutate(m)
	if err == nil && res.Err != nil {
		err = res.Err
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func (r *clusterRig) connect(name string, spec control.ConnectorSpec) {
	r.t.Helper()
	r.change(control.Mutation{Verb: control.Apply, Kind: control.KindConnector, Name: name, Connector: &spec})
}

// becomes waits until a connector has a phase.
func (r *clusterRig) becomes(name string, phase control.Phase) {
	r.t.Helper()
	var last control.Connector
	for r.ctx.Err() == nil {
		for _, k := range r.any().Registry().Connectors {
			if k.Metadata.Name != name {
				continue
			}
			if last = k; k.Status.Phase == phase {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("connector %s does not become %s: %+v", name, phase, last.Status)
}

// first is the lines of a text without those that stood in it before: a sink may write a message twice.
func first(text string) string {
	seen := make(map[string]bool)
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !seen[line] {
			seen[line] = true
			b.WriteString(line)
		}
	}
	return b.String()
}

// A file goes line by line into a replicated queue and out of it into another file, by connectors that the registry
// places; they go on when the nodes are stopped and started one after the other (T-10, T-49, D-19).
func TestFileConnectors(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	r := newClusterWith(t, 3, func(c *broker.Config) { c.Connectors = files })
	in, out := filepath.Join(files, "in"), filepath.Join(files, "out")
	var want strings.Builder
	write := func(n int) {
		t.Helper()
		f, err := os.OpenFile(in, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			line := fmt.Sprintf("line %d\n", strings.Count(want.String(), "\n"))
			want.WriteString(line)
			if _, err := f.WriteString(line); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(200)
	r.make("q", control.QueueSpec{Replicas: 3})
	r.connect("in", control.ConnectorSpec{
		Protocol: "file", Direction: "source", Address: "in", Queue: "q", Evidence: "replicated:2:flushed", Loss: "none",
		Policy: map[string]string{"follow": "true"},
	})
	r.connect("out", control.ConnectorSpec{
		Protocol: "file", Direction: "sink", Address: "out", Queue: "q", Evidence: "flushed", Loss: "duplicates",
		Policy: map[string]string{"node": "n2"},
	})
	r.becomes("in", control.Ready)
	r.becomes("out", control.Ready)
	same := func() {
		t.Helper()
		for r.ctx.Err() == nil {
			if b, err := os.ReadFile(out); err == nil && first(string(b)) == want.String() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		b, err := os.ReadFile(out)
		t.Fatalf("%d lines of %d came out: %v", strings.Count(string(b), "\n"), strings.Count(want.String(), "\n"), err)
	}
	same()
	for i := range r.nodes {
		r.stop(i)
		write(50)
		r.start(i)
		same()
	}
	r.change(control.Mutation{Verb: control.Delete, Kind: control.KindConnector, Name: "in"})
	for r.ctx.Err() == nil && len(r.any().Registry().Connectors) == 2 {
		time.Sleep(10 * time.Millisecond)
	}
	if n := len(r.any().Registry().Connectors); n != 1 {
		t.Errorf("%d connectors are left", n)
	}
}

// A connector that nothing could make run is refused when it is applied, with the field and what to state (T-11, D-19).
func TestConnectorsThatCannotRunAreRefused(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 1)
	for _, row := range []struct {
		change func(*control.ConnectorSpec)
		field  string
	}{
		{func(s *control.ConnectorSpec) { s.Evidence = "none" }, "spec.evidence"},
		{func(s *control.ConnectorSpec) { s.Loss = "none" }, "spec.loss"},
		{func(s *control.ConnectorSpec) { s.Loss = "duplicates,surprises" }, "spec.loss"},
		{func(s *control.ConnectorSpec) { s.Protocol = "pigeon" }, "spec.protocol"},
		{func(s *control.ConnectorSpec) { s.Policy = map[string]string{"speed": "9"} }, "spec.policy"},
		{func(s *control.ConnectorSpec) { s.Direction, s.Evidence, s.Loss = "source", "accepted", "none" }, "spec.evidence"},
		{func(s *control.ConnectorSpec) { s.Policy = map[string]string{"node": "n9"} }, ""}, // it may come
	} {
		spec := control.ConnectorSpec{
			Protocol: "file", Direction: "sink", Address: "out", Queue: "q", Evidence: "flushed", Loss: "duplicates",
		}
		row.change(&spec)
		res, err := r.mutate(control.Mutation{
			Verb: control.Apply, Kind: control.KindConnector, Name: "c", Connector: &spec,
		})
		switch {
		case err != nil:
			t.Fatal(err)
		case row.field == "" && res.Err != nil, row.field != "" && res.Err == nil:
			t.Errorf("%+v: %v", spec, res.Err)
		case row.field != "" && (res.Err.Field != row.field || res.Err.Reason != control.Invalid):
			t.Errorf("%+v: %+v", spec, res.Err)
		}
	}
}
