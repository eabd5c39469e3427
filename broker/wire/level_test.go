package wire_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weida/broker/wire"
)

// Covers is the product of two orders: reflexive, antisymmetric, transitive, and not total (D-12, D-13).
func TestEvidenceIsPartiallyOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyEvidence(t), anyEvidence(t), anyEvidence(t)
		if !a.Covers(a) {
			t.Fatalf("%v does not cover itself", a)
		}
		if a.Covers(b) && b.Covers(a) && a != b {
			t.Fatalf("%v and %v cover each other", a, b)
		}
		if a.Covers(b) && b.Covers(c) && !a.Covers(c) {
			t.Fatalf("%v covers %v covers %v, but not the first the last", a, b, c)
		}
		if want := a.Persistence >= b.Persistence && a.Replicas >= b.Replicas; a.Covers(b) != want {
			t.Fatalf("%v covers %v: %v, want %v", a, b, !want, want)
		}
	})
}

func TestCoversOnEachAxis(t *testing.T) {
	written, flushed := wire.Stored(wire.Written), wire.Stored(wire.Flushed)
	three, threeFlushed := wire.Replicated(3, wire.Written), wire.Replicated(3, wire.Flushed)
	for _, c := range []struct {
		have, want wire.Evidence
		covers     bool
	}{
		{wire.Accepted(), wire.Accepted(), true},
		{wire.Accepted(), written, false},
		{written, wire.Accepted(), true},
		{written, flushed, false},
		{flushed, written, true},
		{flushed, three, false}, // more replicas are not a stronger disk, and the other way round
		{three, flushed, false},
		{threeFlushed, flushed, true},
		{threeFlushed, wire.Replicated(4, wire.Written), false},
		{wire.Evidence{}, wire.Accepted(), false}, // nothing said covers nothing
		{wire.Evidence{Persistence: wire.Flushed, Replicas: 3}, written, false},
	} {
		if got := c.have.Covers(c.want); got != c.covers {
			t.Errorf("%v covers %v: %v, want %v", c.have, c.want, got, c.covers)
		}
	}
}

func TestWantsAsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvidence(t)
		if got, err := wire.ParseWant(e.String()); err != nil || got != e {
			t.Fatalf("%v parsed as %v, %v", e, got, err)
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("%v: %v", e, err)
		}
	})
	for text, says := range map[string]string{
		"":                     "is no evidence",
		"stored":               "stored:written", // D-4: no default level
		"stored:":              "is no evidence",
		"flushed":              "is no evidence",
		"replicated":           "is no evidence",
		"replicated:":          "between 2 and",
		"replicated:1":         "not replicated", // D-6
		"replicated:0:flushed": "not replicated",
		"replicated:256":       "between 2 and",
		"replicated:-3":        "between 2 and",
		"replicated:3:FLUSHED": "between 2 and",
		"replicated:3:written": "between 2 and",
		"processed":            "is no evidence", // reserved, never given to a producer
	} {
		if got, err := wire.ParseWant(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, error %v; want one that says %q", text, got, err, says)
		}
	}
}

func TestValidateRefusesWhatNobodyMayReport(t *testing.T) {
	for _, e := range []wire.Evidence{
		{},
		wire.Stored(wire.None),
		wire.Replicated(3, wire.None),
		wire.Replicated(0, wire.Flushed),
		wire.Replicated(256, wire.Flushed),
		wire.Stored(wire.Flushed + 1),
	} {
		if e.Validate() == nil {
			t.Errorf("%+v is valid", e)
		}
	}
}

// Every row says what happened, what it means for the data and what to do, and whether to try again.
func TestCodeTable(t *testing.T) {
	names := map[string]bool{}
	last := wire.OK
	for _, i := range wire.Codes {
		if i.Code <= last {
			t.Errorf("%v is out of order or there twice", i.Name)
		}
		last = i.Code
		if names[i.Name] || i.Name == "" || strings.ToLower(i.Name) != i.Name {
			t.Errorf("code %d: name %q", i.Code, i.Name)
		}
		names[i.Name] = true
		for _, text := range []string{i.Meaning, i.Effect, i.Remedy} {
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %q is no sentence", i.Name, text)
			}
		}
		switch i.Retry {
		case wire.RetryNow, wire.RetryLater, wire.RetryOther, wire.RetryFix, wire.RetryNever:
		default:
			t.Errorf("%s: retry class %q", i.Name, i.Retry)
		}
		if got, ok := wire.Lookup(i.Code); !ok || got != i || i.Code.String() != i.Name {
			t.Errorf("%s is not found by its code", i.Name)
		}
	}
	if _, ok := wire.Lookup(wire.OK); ok {
		t.Error("0 is an error")
	}
}

func TestErrorSaysAll(t *testing.T) {
	e := &wire.Error{Code: wire.UnknownQueue, Detail: `The name was "nope"`}
	i, _ := wire.Lookup(wire.UnknownQueue)
	for _, part := range []string{i.Meaning, i.Effect, i.Remedy, `"nope".`, "weida explain E1001"} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q does not say %q", e, part)
		}
	}
	if e.Retry() != wire.RetryFix {
		t.Errorf("retry %q", e.Retry())
	}
	// A code of a later version is shown with what came with it.
	if got := (&wire.Error{Code: 99999, Detail: "new"}).Error(); got != "new [E99999]" {
		t.Errorf("unknown code: %q", got)
	}
}
