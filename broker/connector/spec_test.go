package connector_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weida/broker/connector"

	"weida/broker/control"
)

// T-11, D-19: evidence and loss are words of closed lists, and a spec that promises more than its connector can is
// refused with what it leaves out.
func TestSpecs(t *testing.T) {
	for _, c := range []struct {
		spec       control.ConnectorSpec
		evidence   string
		loss       string
		field, why string // empty: it is taken
	}{
		{sourceSpec(), "stored:flushed", "none", "", ""},
		{sourceSpec(), "replicated:3:flushed", "none", "", ""},
		{sourceSpec(), "replicated:3:flushed", "power-cut", "", ""},
		{sourceSpec(), "stored:written", "power-cut", "", ""},
		{sourceSpec(), "stored:written", "none", "spec.loss", `leaves out "power-cut"`},
		{sourceSpec(), "replicated:3", "none", "spec.loss", `leaves out "power-cut"`},
		{sourceSpec(), "accepted", "power-cut", "spec.evidence", "no place in the queue"},
		{sourceSpec(), "stored", "none", "spec.evidence", "names no level"},
		{sourceSpec(), "flushed", "none", "spec.evidence", "is no evidence"},
		{sourceSpec(), "stored:flushed", "nothing", "spec.loss", `"nothing" is not known here: use none, or power-cut`},
		{sourceSpec(), "stored:flushed", "none,power-cut", "spec.loss", `"none" is not known here`},
		{sourceSpec(), "stored:flushed", "", "spec.loss", `"" is not known here`},
		{with(sourceSpec(), "follow", "no"), "stored:flushed", "none", "spec.policy.follow", "use true or false"},
		{with(sourceSpec(), "startAt", "7"), "stored:flushed", "none", "spec.policy.startAt", "use begin or end"},
		{with(sourceSpec(), "framing", "length"), "stored:flushed", "none", "spec.policy", "use follow and startAt"},

		{sinkSpec(), "flushed", "duplicates", "", ""},
		{sinkSpec(), "flushed", "unframed,duplicates", "", ""},
		{sinkSpec(), "flushed", "none", "spec.loss", `leaves out "duplicates"`},
		{sinkSpec(), "flushed", "unframed", "spec.loss", `leaves out "duplicates"`},
		{sinkSpec(), "written", "duplicates", "spec.evidence", "state flushed"},
		{sinkSpec(), "stored:flushed", "duplicates", "spec.evidence", "state flushed"},
		{with(sinkSpec(), "framing", "length"), "flushed", "duplicates", "", ""},
		{with(sinkSpec(), "framing", "length"), "flushed", "duplicates,unframed", "spec.loss", "use none, or duplicates"},
		{with(sinkSpec(), "framing", "csv"), "flushed", "duplicates", "spec.policy.framing", "use newline or length"},
		{with(sinkSpec(), "follow", "true"), "flushed", "duplicates", "spec.policy", "use framing"},

		{control.ConnectorSpec{Protocol: "kafka", Direction: "sink"}, "x", "y", "spec.protocol", `"kafka" is not known`},
		{control.ConnectorSpec{Protocol: "file", Direction: "both"}, "x", "y", "spec.direction", "use source or sink"},
	} {
		c.spec.Evidence, c.spec.Loss = c.evidence, c.loss
		err := connector.Check(c.spec)
		var refused *connector.SpecError
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%+v: %v", c.spec, err)
		case c.field == "":
		case !errors.As(err, &refused) || refused.Field != c.field || !strings.Contains(err.Error(), c.why):
			t.Errorf("%+v: %v, want %s: %s", c.spec, err, c.field, c.why)
		}
	}
}

// A spec that cannot be made true ends Run, and the status says why.
func TestRefusedSpec(t *testing.T) {
	spec := sourceSpec()
	spec.Loss = "some"
	c := connector.New(connector.Options{UID: 7, Spec: spec, Dir: t.TempDir()})
	var refused *connector.SpecError
	if err := c.Run(t.Context()); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
	if s := c.Status(); s.Phase != control.Pending || s.Reason != "SpecRefused" || s.Message != refused.Error() {
		t.Errorf("%+v", s)
	}
}

// A connector reads and writes in its directory only, whatever the spec says.
func TestPaths(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "sub"), 0o700),
		os.Symlink(out, filepath.Join(dir, "away")),
		os.Symlink(filepath.Join(out, "f"), filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600),
		os.WriteFile(filepath.Join(out, "f"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ dir, path, want, why string }{
		{dir, "f", "f", ""},
		{dir, "plain", "plain", ""},
		{dir, "sub/f", "sub/f", ""},
		{dir, "./sub/../f", "f", ""},
		{dir, filepath.Join(dir, "f"), "f", ""},
		{dir, "../f", "", "is not in"},
		{dir, filepath.Join(out, "f"), "", "is not in"},
		{dir, dir + "x/f", "", "is not in"},
		{dir, ".", "", "is not in"},
		{dir, dir, "", "is not in"},
		{dir, "away/f", "", "which is no directory"},
		{dir, "plain/f", "", "which is no directory"},
		{dir, "link", "", "not a regular file"},
		{dir, "sub", "", "not a regular file"},
		{dir, stateName, "", "begins with"},
		{"", "f", "", "names none for connectors"},
		{filepath.Join(out, "none"), "f", "", "mkdir -m 700"},
	} {
		spec := sourceSpec()
		spec.Address = c.path
		at, err := connector.PathOf(connector.New(connector.Options{UID: 7, Spec: spec, Dir: c.dir}))
		var refused *connector.PathError
		switch {
		case c.why == "" && (err != nil || at != filepath.Join(dir, c.want)):
			t.Errorf("%q: %+v, %v", c.path, at, err)
		case c.why != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%q: %+v, %v; want %s", c.path, at, err, c.why)
		}
	}
}

// A state file that makes no sense is not taken for none: that could cut a file, or publish it again.
func TestDamagedState(t *testing.T) {
	r := newRig(t)
	r.write("f", "one\n")
	for _, s := range []string{
		"", "{", `{"version":2,"end":0,"anchor":""}`, `{"version":1,"end":-1,"anchor":""}`,
		`{"version":1,"base":2,"lines":1,"end":1,"anchor":""}`, `{"version":1,"end":0,"anchor":"","more":1}`,
	} {
		r.write(stateName, s)
		u := r.run(r.options(sourceSpec()))
		u.untilWhy(control.Degraded, "StateDamaged")
		u.stop()
	}
	r.holds(1)
}

// The words of a code make one word.
func TestReasons(t *testing.T) {
	if got := connector.Word("not_offered"); got != "NotOffered" {
		t.Error(got)
	}
}
