package fuzz

import (
	"testing"

	"weida/broker/wire"
)

// FuzzEvidence: any text is evidence in exactly one form, or refused; `stored` without a level and
// `replicated` of one never pass (D-4, D-6).
func FuzzEvidence(f *testing.F) {
	for _, s := range []string{
		"accepted", "stored", "stored:written", "stored:flushed", "replicated:1", "replicated:3", "replicated:3:flushed",
		"replicated:03", "replicated:+3", "replicated:256", "replicated:3:written", "", ":", "Stored:flushed",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := wire.ParseWant(s)
		if err != nil {
			return
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("%q is %+v: %v", s, e, err)
		}
		if e.String() != s {
			t.Fatalf("%q is read as %q", s, e)
		}
		if e.Level() == "replicated" && e.Replicas < 2 || e.Level() == "stored" && e.Persistence == wire.None {
			t.Fatalf("%q is %+v", s, e)
		}
	})
}
