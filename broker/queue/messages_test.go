package queue

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// kinds draws messages that follow each other in some manner, extreme ones included.
type kinds struct {
	term, ref uint64
	seqs      map[uint64]uint64
}

func (k *kinds) draw(t *rapid.T) []message {
	n := rapid.IntRange(1, 150).Draw(t, "n")
	manner := rapid.SampledFrom([]string{
		"alike", "lengths", "producers", "one producer", "gaps", "large", "term", "extreme", "mixed",
	}).Draw(t, "manner")
	base := rapid.Uint64Range(0, 70_000).Draw(t, "length")
	var list []message
	for i := range uint64(n) {
		k.ref++
		m := message{length: base}
		switch manner {
		case "lengths":
			m.length = (base*i + 1) % 65_537
		case "producers":
			m.slot = i*7%5 + 1
			m.length = base + i%3
		case "one producer":
			m.slot = 3
		case "gaps":
			k.ref += i % 4
		case "large":
			if i%5 == 0 {
				m.large = &Large{Length: int64(base), Digest: [16]byte{byte(i)}}
			}
		case "term":
			if i == 0 {
				k.term, k.ref = k.term+1, 1
			}
		case "extreme":
			m.slot, m.length = math.MaxUint64>>(i%64), 1<<(i%50)
			k.seqs[m.slot] = rapid.SampledFrom([]uint64{0, 1 << 40, seqMax}).Draw(t, "seq")
		case "mixed":
			m.slot = uint64(rapid.IntRange(0, 2).Draw(t, "slot"))
		}
		if m.slot != 0 {
			k.seqs[m.slot]++
			m.seq = k.seqs[m.slot]
		}
		m.ref = Ref{k.term, k.ref}
		list = append(list, m)
	}
	return list
}

// checkMessages compares the set with a map in every way it can be read.
func checkMessages(t *rapid.T, s *messages, m map[uint64]message, probes []uint64) {
	keys := slices.Sorted(maps.Keys(m))
	var bytes uint64
	for _, x := range m {
		bytes += x.length + MessageCost
	}
	if s.count != uint64(len(m)) || s.bytes != bytes {
		t.Fatalf("%d messages of %d bytes, want %d of %d", s.count, s.bytes, len(m), bytes)
	}
	s.runs.from(0, func(key uint64, r *run) bool {
		if _, ok := r.next(0); !ok || r.cells != nil && (r.count > blockMax || r.base.large != nil) {
			t.Fatalf("a run at %d that cannot be: %+v", key, r)
		}
		return true
	})
	var got []uint64
	var end uint64
	var last message
	s.stretches(0, func(offset, n uint64, x message) bool {
		if len(got) > 0 && end == offset && last.shift(1) == x && last.large == nil {
			t.Fatalf("a stretch at %d that could be joined", offset)
		}
		for i := range n {
			if m[offset+i] != x.shift(i) {
				t.Fatalf("message %d is %+v, want %+v", offset+i, x.shift(i), m[offset+i])
			}
			got = append(got, offset+i)
		}
		end, last = offset+n, x.shift(n-1)
		return true
	})
	if !slices.Equal(got, keys) {
		t.Fatalf("offsets %v, want %v", got, keys)
	}
	for _, o := range probes {
		x, ok := s.get(o)
		if want, has := m[o]; x != want || ok != has {
			t.Fatalf("get %d: %+v %v, want %+v %v", o, x, ok, want, has)
		}
		i, _ := slices.BinarySearch(keys, o)
		at, x, ok := s.next(o)
		if ok != (i < len(keys)) || ok && (at != keys[i] || x != m[at]) {
			t.Fatalf("next %d: %d %+v %v", o, at, x, ok)
		}
		s.stretches(o, func(first, _ uint64, x message) bool {
			if first != at || x != m[at] {
				t.Fatalf("stretches from %d start at %d with %+v", o, first, x)
			}
			return false
		})
	}
}

// TestMessagesModel drives the set of messages and a map, with views that must stay and with what a restore does.
func TestMessagesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type copyOf struct {
			s messages
			m map[uint64]message
		}
		var s messages
		m := map[uint64]message{}
		next := uint64(rapid.IntRange(0, 100).Draw(t, "start"))
		k := kinds{term: 1, seqs: map[uint64]uint64{}}
		var frozen []copyOf
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for _, x := range k.draw(t) {
					s.add(next, x)
					m[next] = x
					next++
				}
			},
			"remove": func(t *rapid.T) {
				at, n := rapid.Uint64Range(0, next).Draw(t, "at"), rapid.Uint64Range(0, 150).Draw(t, "n")
				step := rapid.SampledFrom([]uint64{1, 2, 3, 63, 64}).Draw(t, "step")
				for i := range n {
					o := at + i*step
					if want, has := m[o]; has {
						if got := s.remove(o); got != want {
							t.Fatalf("removed %+v, want %+v", got, want)
						}
						delete(m, o)
					}
				}
			},
			"freeze": func(t *rapid.T) {
				if len(frozen) < 3 {
					frozen = append(frozen, copyOf{s.freeze(), maps.Clone(m)})
				}
			},
			"rebuild": func(t *rapid.T) {
				var back messages
				s.stretches(0, func(offset, n uint64, x message) bool {
					back.addRun(offset, n, x)
					return true
				})
				s = back
			},
			"": func(t *rapid.T) {
				probe := rapid.Uint64Range(0, next+1)
				probes := []uint64{0, probe.Draw(t, "probe"), probe.Draw(t, "probe"), next}
				checkMessages(t, &s, m, probes)
				for i := range frozen {
					checkMessages(t, &frozen[i].s, frozen[i].m, probes)
				}
			},
		})
	})
}

// TestRemoveWhatIsNotThere: taking out a message twice is a bug, and is said so.
func TestRemoveWhatIsNotThere(t *testing.T) {
	for _, o := range []uint64{0, 5, 6, 12, 100} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("removed %d", o)
				}
			}()
			var s messages
			for i := range uint64(10) {
				s.add(2+i, message{ref: Ref{1, i}})
			}
			s.remove(5)
			s.remove(6)
			s.remove(o)
		}()
	}
}

// TestRefsRise: a log whose terms or refs fall is a bug of the caller's, and is said so. Large bodies have their refs
// before their turn.
func TestRefsRise(t *testing.T) {
	large := &Large{Length: 1}
	for _, c := range []struct {
		before, m message
		bug       bool
	}{
		{message{ref: Ref{2, 5}}, message{ref: Ref{2, 6}}, false},
		{message{ref: Ref{2, 5}}, message{ref: Ref{3, 1}}, false},
		{message{ref: Ref{2, 5}}, message{ref: Ref{2, 5}}, true},
		{message{ref: Ref{2, 5}}, message{ref: Ref{2, 4}}, true},
		{message{ref: Ref{2, 5}}, message{ref: Ref{1, 6}}, true},
		{message{ref: Ref{2, 5}, large: large}, message{ref: Ref{2, 4}}, false},
		{message{ref: Ref{2, 5}, large: large}, message{ref: Ref{1, 6}}, true},
		{message{ref: Ref{2, 5}}, message{ref: Ref{2, 4}, large: large}, false},
		{message{ref: Ref{2, 5}}, message{ref: Ref{1, 6}, large: large}, true},
	} {
		for _, columns := range []bool{false, true} {
			var s messages
			if c.before.large == nil {
				s.add(6, message{ref: Ref{c.before.ref.Term, 1}, length: 1})
				s.add(7, message{ref: Ref{c.before.ref.Term, 2}, length: 1})
			}
			if columns {
				c.before.length = 9 // the run before has columns
			}
			s.add(8, c.before)
			func() {
				defer func() {
					if bug := recover() != nil; bug != c.bug {
						t.Errorf("%+v behind %+v: %v", c.m, c.before, bug)
					}
				}()
				s.add(9, c.m)
			}()
		}
	}
}

// TestEveryRemovalOfARun takes each place out of runs of both kinds at the edges of a block, and each pair.
func TestEveryRemovalOfARun(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 63, 64, 65, 130} {
		for _, start := range []uint64{0, 1, 62, 63, math.MaxUint64 - 200} {
			for a := range n {
				for b := range n {
					if n > 3 && (a%7 != 0 || b%5 != 0) {
						continue
					}
					s := messages{}
					s.addRun(start, n, message{ref: Ref{1, 1}})
					s.remove(start + a)
					if a != b {
						s.remove(start + b)
					}
					var got []string
					s.stretches(0, func(o, n uint64, m message) bool {
						for i := range n {
							got = append(got, fmt.Sprint(o+i-start, m.shift(i).ref.Seq-1))
						}
						return true
					})
					var want []string
					for i := range n {
						if i != a && i != b {
							want = append(want, fmt.Sprint(i, i))
						}
					}
					if !slices.Equal(got, want) {
						t.Fatalf("%d from %d less %d and %d: %v", n, start, a, b, got)
					}
				}
			}
		}
	}
}
