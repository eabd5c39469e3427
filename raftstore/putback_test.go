package raftstore

import (
	"errors"
	"fmt"
	"testing"

	"weida/fsync/memfs"
)

// A replica whose disk was put back to an older state, while the leader that it confirmed to goes on, halts: its node
// stays, its vote is not to be had, and the others serve. With it raft would panic.
func TestDirectoryPutBack(t *testing.T) {
	c, lead := threeNodes(t, 33)
	back := c.rest(lead)[0]
	old := back.disk.Clone()
	for k := range 5 {
		lead.kvs[1].must(put(fmt.Sprint("k", k), "confirmed by all"))
		c.settle()
	}
	c.crash(back, false, memfs.Keep(0))
	back.disk = old
	c.start(back)
	// An append begins behind what was confirmed; it is refused, and comes again, until a heartbeat is there.
	c.drop = func(p *packet) bool { return p.kind == "raft" && p.to == back.id }
	m := c.open(back, 1, genesis(3))
	c.tick(20)
	if !errors.Is(m.halted, ErrForgot) || back.told(GroupReadOnly) != 1 {
		t.Errorf("%s goes on with less than it confirmed: %v", m.name, m.halted)
	}
	if c.leads(1) != lead {
		t.Error("the leader is gone")
	}
	c.drop = nil
	tag := lead.kvs[1].must(put("after", "of two"))
	c.settle()
	if at := lead.kvs[1].appended(tag); lead.kvs[1].now().Committed < at {
		t.Errorf("two of three do not go on: entry %d is not committed", uint64(at))
	}
}
