package raftstore

import (
	"fmt"
	"strings"
	"testing"

	"weida/fsync/memfs"
	"weida/segment"
)

const compactDiskMax = 8 * 512 << 10 // bytes of a group with segments of 512 KiB

// One old body that stays does not keep what is settled behind it: its segment is compacted. Also in the
// second life. (T-58)
func TestOneOldBodyDoesNotKeepTheRest(t *testing.T) {
	r, m := snapRig(t)
	m.must(put("pinned", "old but alive"))
	for life := 1; ; life++ {
		churn(r, m, 200) // 12.5 MiB
		if st := m.group.Status().Store; st.PhysicalBytes > compactDiskMax {
			t.Errorf("life %d: %+v, want at most %d bytes", life, st, compactDiskMax)
		}
		if m.read("pinned") != "old but alive" {
			t.Fatal("body differs")
		}
		if life == 2 {
			break
		}
		r.kill()
		m = newKV(t, "a again")
		r.open(1, m)
	}
	r.stop()
}

// The same on every replica of a group, of which each in turn loses its power. (T-58)
func TestOneOldBodyOnReplicas(t *testing.T) {
	c := newClusterWith(t, 3, 1, HostOptions{Shards: 1, SnapshotBytes: 1 << 20})
	c.openAll(1, 3)
	c.leader(1).kvs[1].must(put("pinned", "old but alive"))
	body := strings.Repeat("x", segment.InlineMax)
	for _, nd := range c.nodes {
		for i := range 120 { // 7.5 MiB
			c.leader(1).kvs[1].must(put(fmt.Sprint("k", i%4), body))
			c.settle()
		}
		c.tick(4)
		c.crash(nd, true, memfs.KeepRandom)
		c.start(nd)
		c.open(nd, 1, genesis(3))
		c.leader(1)
		c.tick(20)
	}
	c.same(1, true)
	c.bodies(1)
	for _, nd := range c.nodes {
		if st := nd.kvs[1].group.Status().Store; st.PhysicalBytes > compactDiskMax {
			t.Errorf("node %d: %+v, want at most %d bytes", nd.id, st, compactDiskMax)
		}
		if nd.kvs[1].read("pinned") != "old but alive" {
			t.Errorf("node %d: the body differs", nd.id)
		}
		nd.rig.stop()
	}
}
