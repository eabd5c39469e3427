package queue

import (
	"bytes"
	"runtime"
	"testing"
)

// FuzzRestore: damaged snapshots are refused, or give a state that has exactly this snapshot and goes on as any other
// does. Nothing panics, and no more is allocated than the bytes warrant.
func FuzzRestore(f *testing.F) {
	f.Add((&State{}).Snapshot())
	f.Add(rich().Snapshot())
	s := &State{}
	for i := range uint64(300) {
		s.Apply(Command{Kind: Publish, Body: Ref{1 + i/100, i + 1}, Length: int64(i % 3 * i)}, nil)
	}
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 40}, nil)
	s.Apply(Command{Kind: Attach, Subscription: "b", Session: 2, Limit: 20}, nil)
	s.Apply(Command{Kind: Detach, Subscription: "a", Session: 1}, nil)
	f.Add(s.Snapshot())
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := Restore(b)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(1<<20+400*len(b)) {
			t.Errorf("%d bytes allocated for %d", n, len(b))
		}
		if err != nil {
			return
		}
		if !bytes.Equal(s.Snapshot(), b) {
			t.Fatalf("%x restores to another snapshot, %x", b, s.Snapshot())
		}
		goOn(t, s)
	})
}

// goOn does a little of everything with a state, and restores what comes of it.
func goOn(t *testing.T, s *State) {
	v := s.View()
	var last Ref
	s.present.stretches(0, func(_, n uint64, m message) bool { last = m.shift(n - 1).ref; return true })
	if last.Term+1 > last.Term {
		s.Apply(Command{Kind: Publish, Body: Ref{last.Term + 1, 1}, Length: 9}, nil)
	}
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 3, Limit: 10}, nil)
	for _, m := range s.View().Peek(0, 20) {
		s.Apply(Command{
			Kind: Settle, Subscription: "a", Offset: m.Offset, Attempt: m.Attempt, Term: m.Ref.Term, Verb: Accept,
		}, nil)
	}
	s.Apply(Command{Kind: Register, Producer: "p"}, nil)
	s.Apply(Command{Kind: Retire, Producer: "p"}, nil)
	check := func(s *State) {
		if c := s.Counts(); c.In != c.Ready+c.Unsettled+c.Accepted+c.Rejected+c.Purged {
			t.Fatalf("counts %+v", c)
		}
		if _, err := Restore(s.Snapshot()); err != nil {
			t.Fatal(err)
		}
	}
	check(s)
	s.Apply(Command{Kind: DetachAll}, nil)
	s.Apply(Command{Kind: Purge}, nil)
	check(s)
	check(&v.s)
}

// FuzzDecode: a command that is understood has one encoding.
func FuzzDecode(f *testing.F) {
	for _, c := range commands {
		f.Add(c.command.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		if again := c.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%x is %+v, which is %x", b, c, again)
		}
	})
}
