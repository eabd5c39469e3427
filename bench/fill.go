package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"weida/raftstore"
)

// counter is the smallest machine: it counts messages and holds on to their bodies.
type counter struct {
	applied atomic.Int64
	flushed atomic.Uint64
	last    atomic.Uint64 // index of the last entry appended
	dropped atomic.Pointer[error]
	bell    *ringer
}

func (c *counter) Appended(_ uint64, _ raftstore.Term, i raftstore.Index) { c.last.Store(uint64(i)) }

func (c *counter) Dropped(_ uint64, o raftstore.Outcome) {
	c.dropped.Store(&o.Err)
	c.bell.Wake()
}

func (c *counter) Apply(_ raftstore.Term, _ raftstore.Index, items []raftstore.Item) {
	c.applied.Add(int64(len(items)))
}

func (c *counter) Moved(m raftstore.Marks) {
	c.flushed.Store(uint64(m.Flushed))
	c.bell.Wake()
}

func (c *counter) Role(raftstore.Role, raftstore.Term, raftstore.Leader) {}

func (c *counter) Snapshot() raftstore.Source { return nothing{} }

func (c *counter) Restore(s raftstore.Source) error {
	_, err := s.WriteTo(io.Discard)
	return err
}

type nothing struct{}

func (nothing) WriteTo(io.Writer) (int64, error) { return 0, nil }

// node is a store with a running host and groups 1 to n.
type node struct {
	*storeRig
	host     *raftstore.Host
	groups   []raftstore.Group
	counters []*counter
	bell     *ringer
}

// openNode opens n groups from several goroutines, as a starting broker does.
func openNode(dir string, n int, create bool) (*node, error) {
	r, err := openStore(dir, "data")
	if err != nil {
		return nil, err
	}
	nd := &node{
		storeRig: r, host: raftstore.NewHost(raftstore.HostOptions{Store: r.store}), bell: &ringer{bell: make(bell, 1)},
		groups: make([]raftstore.Group, n), counters: make([]*counter, n),
	}
	nd.host.Start()
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, min(n, openers))
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				nd.counters[i] = &counter{bell: nd.bell}
				nd.groups[i], errs[w] = nd.host.OpenOwner(raftstore.GroupID(i+1), nd.counters[i],
					raftstore.OwnerOptions{Create: create})
			}
		})
	}
	wg.Wait()
	return nd, errors.Join(errs...)
}

// openers is how many groups are opened at a time: most of it is waiting for the disk.
const openers = 64

// fill publishes messages of size bytes to every group, a batch at a time, and returns when all is flushed.
func (nd *node) fill(messages, size int) error {
	const batch = 100
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i)
	}
	for sent := 0; sent < messages; {
		n := min(batch, messages-sent)
		for g, group := range nd.groups {
			for {
				b := &raftstore.Batch{Tag: uint64(sent) + 1, Items: make([]raftstore.Item, n)}
				for i := range b.Items {
					b.Items[i] = raftstore.Item{HasBody: true, Inline: body}
				}
				err := group.Propose(b)
				if err == nil {
					break
				}
				if !errors.Is(err, raftstore.ErrFull) {
					return fmt.Errorf("group %d: %w", g+1, err)
				}
				<-nd.bell.bell
			}
		}
		sent += n
	}
	return nd.settle(int64(messages))
}

// settle waits until every group has applied and flushed that many messages.
func (nd *node) settle(messages int64) error {
	for i := 0; i < len(nd.counters); {
		c := nd.counters[i]
		if e := c.dropped.Load(); e != nil {
			return *e
		}
		if err := nd.host.Err(); err != nil {
			return err
		}
		if c.applied.Load() >= messages && c.flushed.Load() >= c.last.Load() {
			i++
			continue
		}
		<-nd.bell.bell
	}
	return nil
}
