package peer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weida/raftstore"
)

// sorter drives an order with a time of its own.
type sorter struct {
	t   *testing.T
	o   order
	now time.Time
	got map[raftstore.GroupID][]string
}

func newSorter(t *testing.T) *sorter {
	return &sorter{
		t: t, o: newOrder(GapWaitDefault), now: time.Unix(1000, 0),
		got: make(map[raftstore.GroupID][]string),
	}
}

func (s *sorter) keep(list []raftstore.Frame) {
	for _, f := range list {
		s.got[f.Group] = append(s.got[f.Group], string(f.Data))
	}
}

// comes lets the frame of that number arrive.
func (s *sorter) comes(group raftstore.GroupID, number uint64) {
	f := numbered{number, raftstore.Frame{Group: group, Data: []byte(fmt.Sprint(number))}}
	s.keep(s.o.take(nil, f, s.now))
}

func (s *sorter) passes(d time.Duration) {
	s.now = s.now.Add(d)
	s.keep(s.o.expire(nil, s.now))
}

func (s *sorter) want(group raftstore.GroupID, want ...string) {
	s.t.Helper()
	if !slices.Equal(s.got[group], want) {
		s.t.Errorf("group %d got %q, want %q", group, s.got[group], want)
	}
}

// a frame waits for a gap in its own group's numbers only.
func TestFrameWaitsForItsOwnGroupOnly(t *testing.T) {
	s := newSorter(t)
	s.comes(1, 2)
	s.comes(2, 1)
	s.comes(1, 3)
	s.want(1)
	s.want(2, "1")
	s.comes(1, 1)
	s.want(1, "1", "2", "3")
	if _, gaps := s.o.due(s.now); gaps || s.o.frames != 0 || s.o.bytes != 0 || len(s.o.rooms) != 0 {
		t.Errorf("nothing waits, but %+v", s.o)
	}
}

// a gap older than one heartbeat counts as lost, not a moment earlier; what comes too late is dropped.
func TestGapCountsAsLostAfterOneHeartbeat(t *testing.T) {
	s := newSorter(t)
	s.comes(1, 1)
	s.comes(1, 3)
	if d, gaps := s.o.due(s.now); !gaps || d != GapWaitDefault {
		t.Errorf("due in %v, %v", d, gaps)
	}
	s.passes(GapWaitDefault - time.Nanosecond)
	s.want(1, "1")
	s.passes(time.Nanosecond)
	s.want(1, "1", "3")
	s.comes(1, 2)
	s.comes(1, 4)
	s.want(1, "1", "3", "4")
	if s.o.lost != 1 || s.o.late != 1 {
		t.Errorf("%d lost, %d late", s.o.lost, s.o.late)
	}
}

// Each gap has its own age: what waited longest for it.
func TestSecondGapIsAsOldAsItsFrames(t *testing.T) {
	s := newSorter(t)
	s.comes(1, 3) // gap before 3 begins at 0
	s.passes(150 * time.Millisecond)
	s.comes(1, 5) // gap before 5 begins at 150
	s.comes(2, 9) // and one of another group
	s.passes(50 * time.Millisecond)
	s.want(1, "3")
	if d, _ := s.o.due(s.now); d != 150*time.Millisecond {
		t.Errorf("the second gap is due in %v", d)
	}
	s.passes(150 * time.Millisecond)
	s.want(1, "3", "5")
	s.want(2, "9")

	s.comes(3, 7) // that 1 to 6 are missing is known from now on
	s.passes(time.Millisecond)
	s.comes(3, 5)
	s.passes(GapWaitDefault - 2*time.Millisecond)
	s.want(3)
	s.passes(time.Millisecond)
	s.want(3, "5", "7")
}

// What waits is bounded; beyond it the oldest gap is not waited for.
func TestWhatWaitsIsBounded(t *testing.T) {
	s := newSorter(t)
	for n := range uint64(3 * waitFrames) {
		s.comes(raftstore.GroupID(n%3+1), n+2)
		if s.o.frames > waitFrames || s.o.bytes > waitBytes || len(s.o.gaps) > waitFrames {
			t.Fatalf("%d frames, %d bytes and %d gaps wait", s.o.frames, s.o.bytes, len(s.o.gaps))
		}
	}
	big := make([]byte, 1<<20)
	for n := range uint64(2 * waitBytes / len(big)) {
		f := numbered{2 * n, raftstore.Frame{Group: 7, Data: big}}
		s.keep(s.o.take(nil, f, s.now))
		if s.o.bytes > waitBytes {
			t.Fatalf("%d bytes wait", s.o.bytes)
		}
	}
}

// Frames of many groups in any order, some twice, some lost: each group gets each of its frames at most once, in order;
// those that came in time, and nothing waits in the end.
func TestOrderOfAnything(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		s := newSorter(t)
		groups, each := 1+rng.IntN(5), 1+rng.IntN(30)
		type one struct {
			group  raftstore.GroupID
			number uint64
		}
		var list []one
		lost := make(map[one]bool)
		for g := range groups {
			for n := range each {
				f := one{raftstore.GroupID(g + 1), uint64(n + 1)}
				switch rng.IntN(10) {
				case 0:
					lost[f] = true
				case 1:
					list = append(list, f, f)
				default:
					list = append(list, f)
				}
			}
		}
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for _, f := range list {
			s.comes(f.group, f.number)
		}
		s.passes(GapWaitDefault)
		for g := range groups {
			var want []string
			for n := range each {
				if !lost[one{raftstore.GroupID(g + 1), uint64(n + 1)}] {
					want = append(want, fmt.Sprint(n+1))
				}
			}
			s.want(raftstore.GroupID(g+1), want...)
		}
		if s.o.frames != 0 || s.o.bytes != 0 || len(s.o.rooms) != 0 {
			t.Fatalf("%d frames, %d bytes still wait", s.o.frames, s.o.bytes)
		}
	}
}
