package queue

import (
	"bytes"
	"reflect"
	"sync"
	"testing"
)

// TestViewsAreReadWhileApplyGoesOn: several views of several ages, each read by a goroutine of its own, give what the
// state was. The race detector looks on in CI.
func TestViewsAreReadWhileApplyGoesOn(t *testing.T) {
	s := &State{}
	fill(s, 3, 2000)
	s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 500}, nil)
	var readers sync.WaitGroup
	for round := range uint64(20) {
		want, view := s.Snapshot(), s.View()
		counts, peek := s.Counts(), (&View{*s}).Peek(round*50, 200)
		readers.Go(func() {
			for range 3 {
				var got []byte
				view.Pieces(func(b []byte) bool { got = append(got, b...); return true })
				if !bytes.Equal(got, want) || view.Counts() != counts {
					t.Errorf("the view of round %d changed", round)
				}
				if !reflect.DeepEqual(view.Peek(round*50, 200), peek) {
					t.Errorf("what the view of round %d shows changed", round)
				}
			}
		})
		for i := range uint64(200) {
			n := round*200 + i
			for _, c := range []Command{
				{Kind: PublishFrom, Slot: 1 + n%1000, Seq: 1<<40 + n, Low: 1<<40 + n, Body: Ref{2, n + 1}, Length: int64(n)},
				{Kind: Settle, Subscription: "a", Offset: n * 7919 % 500, Attempt: 1 + n%3, Term: 1, Verb: Verb(1 + n%3)},
				{Kind: Limit, Subscription: "a", Limit: 500 + n/4},
			} {
				s.Apply(c, nil)
			}
		}
		if round == 15 {
			s.Apply(Command{Kind: Attach, Subscription: "a", Session: 2, Limit: 600}, nil)
			s.Apply(Command{Kind: Purge}, nil)
			s.Apply(Command{Kind: Retire, Producer: "7"}, nil)
		}
	}
	readers.Wait()
}
