package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// TestBodyRuns: a view's runs and large bodies are together the bodies of the state it was taken of, whatever was
// published and settled, and no two runs could be one.
func TestBodyRuns(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			s := &State{}
			s.Apply(Command{Kind: Attach, Subscription: "a", Session: 1, Limit: 1 << 40}, nil)
			term, seq, offset := uint64(1), uint64(0), uint64(0)
			large := map[Ref]Large{}
			for range 2000 {
				if rng.IntN(200) == 0 {
					term, seq = term+1+rng.Uint64N(2), 0
				}
				seq += 1 + rng.Uint64N(20)/19
				c := Command{Kind: Publish, Body: Ref{term, seq}, Length: int64(rng.IntN(3)), Term: term}
				if rng.IntN(50) == 0 {
					c.Length = 1 << 20
					c.Large = &Large{Length: c.Length, Digest: [16]byte{byte(seq)}}
					large[c.Body] = *c.Large
				}
				s.Apply(c, nil)
				offset++
				if rng.IntN(3) == 0 {
					s.Apply(Command{
						Kind: Settle, Subscription: "a", Offset: rng.Uint64N(offset), Attempt: 1, Term: term, Verb: Accept,
					}, nil)
				}
			}
			want := map[Ref]bool{}
			s.Bodies(func(r Ref) bool { want[r] = true; return true })
			v := s.View()
			s.Apply(Command{Kind: Purge}, nil)
			got := map[Ref]bool{}
			var last Ref
			v.BodyRuns(func(first Ref, n uint64) bool {
				if first == last {
					t.Errorf("run from %v goes on where the one before ends", first)
				}
				for i := range n {
					r := Ref{first.Term, first.Seq + i}
					if got[r] {
						t.Errorf("%v twice", r)
					}
					got[r] = true
				}
				last = Ref{first.Term, first.Seq + n}
				return true
			})
			runs := len(got)
			v.LargeBodies(func(r Ref, l Large) bool {
				if got[r] || l != large[r] {
					t.Errorf("large body %v is %v, or stands in a run", r, l)
				}
				got[r] = true
				return true
			})
			if !maps.Equal(got, want) || runs == len(got) || runs == 0 {
				t.Errorf("%d bodies, want %d", len(got), len(want))
			}
			calls := 0
			v.BodyRuns(func(Ref, uint64) bool { calls++; return false })
			v.LargeBodies(func(Ref, Large) bool { calls++; return false })
			if calls != 2 {
				t.Errorf("%d calls after no more was wanted", calls)
			}
		})
	}
}
