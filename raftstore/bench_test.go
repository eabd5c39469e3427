package raftstore

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// nothing is a machine that keeps nothing, so that only the group's own cost is measured.
type nothing struct {
	mu   sync.Mutex
	cond *sync.Cond
	m    Marks
}

func newNothing() *nothing {
	n := &nothing{}
	n.cond = sync.NewCond(&n.mu)
	return n
}

func (n *nothing) Appended(uint64, Term, Index) {}
func (n *nothing) Dropped(_ uint64, o Outcome)  { panic(o.Err) }
func (n *nothing) Apply(Term, Index, []Item)    {}
func (n *nothing) Role(Role, Term, Leader)      {}
func (n *nothing) Snapshot() Source             { return frozen(nil) }
func (n *nothing) Restore(Source) error         { return nil }
func (n *nothing) Bodies(func(BodyRef) bool)    {}
func (n *nothing) Moved(m Marks) {
	n.mu.Lock()
	n.m = m
	n.mu.Unlock()
	n.cond.Broadcast()
}

func (n *nothing) wait(i Index) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.m.Flushed < i {
		n.cond.Wait()
	}
}

func openMany(b *testing.B, h *Host, n int) ([]Group, []*nothing) {
	groups, machines := make([]Group, n), make([]*nothing, n)
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < n; i += 64 {
				machines[i] = newNothing()
				g, err := h.OpenOwner(GroupID(i+1), machines[i], OwnerOptions{Create: true})
				if err != nil {
					b.Error(err)
					return
				}
				groups[i] = g
			}
		})
	}
	wg.Wait()
	return groups, machines
}

// BenchmarkPropose measures proposals of 256 bytes through a started host, flushed, many in flight.
func BenchmarkPropose(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n, " groups"), func(b *testing.B) {
			h, store := realHost(b, b.TempDir(), HostOptions{})
			groups, machines := openMany(b, h, n)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				items := []Item{{Command: []byte("c"), HasBody: true, Inline: make([]byte, 256)}}
				for {
					err := groups[i%n].Propose(&Batch{Items: items})
					if err == nil {
						break
					}
					runtime.Gosched()
				}
				i++
			}
			for i, g := range groups {
				for g.Status().Inbox > 0 {
					runtime.Gosched()
				}
				machines[i].wait(g.Status().Marks.Written)
			}
			if err := errors.Join(h.Stop(), store.Close()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
