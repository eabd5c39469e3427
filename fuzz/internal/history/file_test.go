package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weida/broker/client"
	"weida/broker/wire"
)

// samples are an event of every kind, with every field set.
func samples() []Event {
	q := Queue{"q", 7}
	m := Message{"p", 3, 5, DigestOf([]byte("hello"))}
	s := Stored{9, 2, m}
	return []Event{
		&Publish{Ref: 1, Queue: q, Message: m, Stream: "s", Want: Of(wire.Replicated(2, wire.Flushed))},
		&Answer{
			Ref: 1, Outcome: client.OK, Evidence: Of(wire.Replicated(3, wire.Flushed)), Committed: true, Offset: 9, Term: 2,
		},
		&Answer{Ref: 2, Outcome: client.Refused, Code: wire.QueueFull},
		&Deliver{Queue: q, Subscription: "sub", Session: "k/1", Stored: s, Attempt: 1},
		&Settle{Ref: 3, Queue: q, Offset: 9, Term: 2, Attempt: 1, Verb: Accept},
		&Settled{Ref: 3, Fate: Done},
		&Purge{Ref: 4, Queue: q},
		&Purged{Ref: 4, Fate: Done, Count: 12},
		&Change{Ref: 5, Name: "q", Do: Create, Replicas: 3, Durability: "flushed"},
		&Changed{Ref: 5, Fate: Done, UID: 7},
		&Fault{Ref: 6, Fault: PowerCut, Nodes: []string{"n1"}, Detail: "nothing kept"},
		&FaultDone{Ref: 6},
		&Boot{Node: "n1", Incarnation: 2, BootID: "b"},
		&Lost{Queue: q, From: 3, To: 5},
		&Audit{Queue: q, Messages: []Stored{s}, Books: &Books{1, 2, 3, 4, 5, 6, 7}, Final: true},
		&Dump{
			Node: "n1", Group: 7, At: AtStop, Taken: 4, Base: 2, Next: 9, Held: []Run{{1, 2}}, Quiet: true,
		},
		&Entry{Node: "n1", Group: 7, Index: 3, Term: 2, Sum: DigestOf(nil), Adds: []Stored{s}, Missing: []uint64{9}},
		&DumpEnd{Node: "n1", Group: 7, Last: 3, LastTerm: 2, Commit: 2, Next: 10, State: DigestOf(nil)},
		&Healed{},
		&Health{Wrong: []string{"x"}},
	}
}

// What is written is read again, of all kinds, in the order of time across files.
func TestFilesSurvive(t *testing.T) {
	dir := t.TempDir()
	var want []Line
	for range 3 {
		client := string(rune('c' - len(want)/len(samples())))
		w, err := NewWriter(dir, client, func(l *Line) { want = append(want, *l) })
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range samples() {
			w.Note(e)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	var got []Line
	for l, err := range Read(files) {
		if err != nil {
			t.Fatal(err)
		}
		quoted, err := Quote(files, []Source{l.Source})
		if err != nil || len(quoted) != 1 || !strings.HasSuffix(quoted[0], l.String()) {
			t.Fatalf("%v is quoted as %q: %v", l.String(), quoted, err)
		}
		l.Source = Source{}
		seen[l.Event.name()] = true
		got = append(got, l)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(Evidence{})); d != "" {
		t.Fatal(d)
	}
	if len(seen) != len(made) {
		t.Errorf("samples have %d of %d kinds", len(seen), len(made))
	}
}

// A history that is not whole is refused: what is missing is not silence.
func TestDamagedFilesAreRefused(t *testing.T) {
	good := `{"t":5,"client":"c","event":"healed"}` + "\n"
	for _, c := range []struct{ text, want string }{
		{good + `{"t":6,"client":"c","event":"healed"}`, "line 2: the last line is not whole"},
		{good + `{"t":4,"client":"c","event":"healed"}` + "\n", "line 2: it is older"},
		{good + `{"t":6,"client":"c","event":"rumour"}` + "\n", `line 2: an event of unknown kind "rumour"`},
		{good + "\n", "line 2: "},
		{`{"t":6,"client":"c","event":"fault.done","ref":"x"}` + "\n", "line 1: "},
	} {
		name := filepath.Join(t.TempDir(), "c"+suffix)
		if err := os.WriteFile(name, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		var err error
		for _, err = range Read([]string{name}) {
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q is read with %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := Files(t.TempDir()); err == nil {
		t.Error("no files at all are a history")
	}
	if _, err := NewWriter(t.TempDir(), "x/y", nil); err == nil {
		t.Error("a client with a path as its name")
	}
}
