package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"weida/fsync/memfs"
	"weida/segment"
)

// scrubbed is a group of three that is scrubbed every two seconds, with so many keys k0, k1, … of n bytes each.
func scrubbed(t *testing.T, seed uint64, keys, n int) (c *cluster, lead *node) {
	t.Helper()
	o := HostOptions{Shards: 1, ScrubEvery: 20, ScrubBytes: 1 << 30, ParkTicks: 3}
	c = newClusterWith(t, 3, seed, o)
	c.openAll(1, 3)
	lead = c.leader(1)
	for i := range keys {
		lead.kvs[1].must(put(fmt.Sprint("k", i), textOf(i, n)))
		c.settle()
	}
	c.tick(4)
	return c, lead
}

// textOf is a body that no other has a part of.
func textOf(i, n int) string {
	rng := rand.New(rand.NewPCG(uint64(i), 3))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + rng.IntN(26))
	}
	return string(b)
}

// flip damages the file of a group in which what is found stands, off bytes behind its beginning.
func (n *node) flip(g GroupID, what string, off int64) (path string) {
	n.c.t.Helper()
	dir := filepath.Join(rigDir, "groups", fmt.Sprint(uint64(g)))
	for _, f := range n.disk.Files() {
		raw, err := n.disk.Bytes(f)
		if err != nil {
			n.c.t.Fatal(err)
		}
		if at := bytes.Index(raw, []byte(what)); at >= 0 && filepath.Dir(f) == dir {
			if err := n.disk.FlipBit(f, int64(at)+off, 2); err != nil {
				n.c.t.Fatal(err)
			}
			return f
		}
	}
	n.c.t.Fatalf("node %d does not have %q", n.id, what)
	return ""
}

func (n *node) damage(g GroupID) Damage { return n.kvs[g].group.Status().Damage }

// Damage to a body, in the segment that is appended to and in a sealed one, of a leader and of a follower: it is never
// served, it comes back from the others, and then the log opens again. Nobody else notices.
func TestDamagedBodyComesBack(t *testing.T) {
	for _, at := range []struct {
		name   string
		leader bool
		key    int
	}{
		{"leader, sealed", true, 0},
		{"leader, open", true, 39},
		{"follower, sealed", false, 1},
		{"follower, open", false, 38},
	} {
		t.Run(at.name, func(t *testing.T) {
			c, lead := scrubbed(t, 1, 40, 30_000)
			n := lead
			if !at.leader {
				n = c.rest(lead)[0]
			}
			c.tick(60) // the group is quiet, and parked
			if r := c.group(n, 1); !r.hushed || !r.parked {
				t.Fatal("it is not quiet")
			}
			term := lead.kvs[1].term
			key := fmt.Sprint("k", at.key)
			n.flip(1, textOf(at.key, 30_000), 700)
			c.until("it is mended", func() bool {
				if !at.leader { // the scrub finds it
					return n.damage(1).Found > 0 && n.damage(1).Open == 0
				}
				b, err := readBody(n.kvs[1].group, n.kvs[1].state[key].Body)
				if err == nil && string(b) != textOf(at.key, 30_000) {
					t.Fatal("wrong bytes were served")
				}
				return n.damage(1).Found > 0 && n.damage(1).Open == 0
			})
			if n.told(DamageFound) != 1 || n.told(DamageMended) != 1 {
				t.Fatalf("%+v", n.events)
			}
			if got := n.kvs[1].read(key); got != textOf(at.key, 30_000) {
				t.Fatal("another body")
			}
			c.tick(60) // another pass finds nothing
			if got := n.damage(1); got.Found != 1 || got.Mended != 1 || got.Open != 0 || got.Passes < 2 || got.Reason != nil {
				t.Fatalf("%+v", got)
			}
			for _, o := range c.rest(n) {
				if o.damage(1).Found != 0 {
					t.Errorf("node %d: %+v", o.id, o.damage(1))
				}
			}
			if n.kvs[1].group.Status().Damaged != nil || lead.kvs[1].term != term || lead.kvs[1].role != LeaderRole {
				t.Fatal("the leadership moved")
			}
			lead.kvs[1].must(put("after", "x"))
			c.tick(5)
			c.same(1, true)
			c.bodies(1)
			c.crash(n, true, 0)
			c.start(n)
			c.open(n, 1, nil)
			c.leader(1)
			c.tick(10)
			c.same(1, false)
			c.bodies(1)
		})
	}
}

// A reader who meets damage is refused with the file and the place, at once, and has the body mended without a scrub.
func TestReaderMeetsDamage(t *testing.T) {
	c, lead := scrubbed(t, 2, 3, 3000)
	lead.host.scrub.begins = 1 << 60
	asked := 0
	c.drop = func(p *packet) bool { // by what the commit record says, for it is in the log
		for _, one := range payloads(t, p) {
			for _, w := range one.wants {
				if asked++; w.Loose || w.Body.Length != 3000 || w.Body.Digest != segment.DigestOf([]byte(textOf(1, 3000))) {
					t.Errorf("asked for %+v", w)
				}
			}
		}
		return false
	}
	m := lead.kvs[1]
	path := lead.flip(1, textOf(1, 3000), 5)
	_, err := m.group.OpenBody(segment.Commit{Ref: m.state["k1"].Body.Ref, Length: -1}) // as a queue does
	var d *DamagedError
	if !errors.As(err, &d) || d.Alone || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "byte") {
		t.Fatal(err)
	}
	c.tick(5)
	if m.read("k1") != textOf(1, 3000) {
		t.Fatal("another body")
	}
	if got := lead.damage(1); got.Found != 1 || got.Mended != 1 || asked == 0 {
		t.Fatalf("%+v", got)
	}
}

// A large body that is damaged anywhere, its head and its tail too, comes again as a stream; the damaged file is put
// aside.
func TestDamagedLargeComesBack(t *testing.T) {
	c, lead := scrubbed(t, 3, 2, 100)
	body := []byte(textOf(77, 300_000))
	lead.kvs[1].must(Item{Command: []byte("plarge"), HasBody: true, Large: writeBody(t, lead.kvs[1].group, body)})
	c.tick(4)
	for i, n := range c.nodes {
		off := []int64{20, 100_000, 300_000 + 56*6 + 100}[i] // head, frame, tail
		path := ""
		for _, f := range n.disk.Files() {
			if strings.HasSuffix(f, ".body") {
				path = f
			}
		}
		if err := n.disk.FlipBit(path, off, 1); err != nil {
			t.Fatal(err)
		}
		c.until("it is mended", func() bool { return n.damage(1).Found == 1 && n.damage(1).Open == 0 })
		if n.kvs[1].read("large") != string(body) {
			t.Fatal("another body")
		}
		aside := 0
		for _, f := range n.disk.Files() {
			if strings.HasPrefix(f, rigDir+"/quarantine/") {
				aside++
			}
		}
		if aside != 1 {
			t.Fatalf("%d files were put aside", aside)
		}
	}
	c.tick(40)
	for _, n := range c.nodes {
		c.crash(n, true, 0)
		c.start(n)
		c.open(n, 1, nil)
		c.leader(1)
		c.tick(5)
		if n.kvs[1].read("large") != string(body) {
			t.Fatal("another body")
		}
	}
}

// An entry that is damaged is taken the place of by a snapshot: the replica goes on, starts again, and a follower that
// was away is brought up by it.
func TestDamagedEntryIsCovered(t *testing.T) {
	c, lead := scrubbed(t, 4, 3, 100)
	away := c.rest(lead)[1]
	c.crash(away, false, 0)
	c.tick(5)
	lead.kvs[1].must(note("a line that stands in an entry alone"))
	c.tick(5)
	lead.kvs[1].must(put("behind", "x"))
	c.tick(5)
	lead.flip(1, "a line that stands in an entry alone", 3)
	c.until("it is mended", func() bool { return lead.damage(1).Found > 0 && lead.damage(1).Open == 0 })
	c.start(away)
	c.open(away, 1, nil)
	c.until("it is brought up", func() bool { return away.kvs[1].lastI == lead.kvs[1].lastI })
	c.bodies(1)
	c.tick(40)
	c.crash(lead, true, 0)
	c.start(lead)
	c.open(lead, 1, nil)
	c.leader(1)
	c.tick(10)
	c.bodies(1)
}

// The small files are written anew, a damaged snapshot is followed by a newer one, and a segment that would not open
// again goes.
func TestDamagedFiles(t *testing.T) {
	c, _ := scrubbed(t, 5, 40, 30_000)
	for _, n := range c.nodes {
		var files []string
		for _, f := range n.disk.Files() {
			if strings.HasPrefix(f, filepath.Join(rigDir, "groups", "1")+"/") {
				files = append(files, f)
			}
		}
		for _, f := range files {
			before := n.damage(1).Mended
			if err := n.disk.FlipBit(f, 20, 1); err != nil {
				t.Fatal(err)
			}
			c.until("it is mended: "+f, func() bool { return n.damage(1).Mended > before && n.damage(1).Open == 0 })
		}
		c.tick(40)
		if n.damage(1).Open != 0 || n.kvs[1].group.Status().Damaged != nil {
			t.Fatalf("%+v", n.damage(1))
		}
		c.crash(n, true, 0)
		c.start(n)
		c.open(n, 1, nil)
		c.leader(1)
		c.tick(5)
		c.bodies(1)
	}
}

// A leader that can't mend itself within a moment hands over; what it can't mend for long its status says.
func TestDamagedLeaderHandsOver(t *testing.T) {
	c, lead := scrubbed(t, 6, 3, 3000)
	c.drop = func(p *packet) bool { return p.kind == "payload" }
	lead.flip(1, textOf(1, 3000), 5)
	lead.kvs[1].must(note("x"))
	c.until("another leads", func() bool { n := c.leads(1); return n != nil && n != lead })
	if lead.kvs[1].group.Status().Damaged != nil {
		t.Fatal("there is hope yet")
	}
	c.until("it gives up", func() bool { return lead.kvs[1].group.Status().Damaged != nil })
	if lead.told(DamageStays) != 1 {
		t.Fatalf("%+v", lead.events)
	}
	c.drop = nil
	c.until("it is mended", func() bool { return lead.damage(1).Open == 0 && lead.kvs[1].group.Status().Damaged == nil })
	c.bodies(1)
}

// With one replica the damaged message alone refuses, with the file, the place and what to do; everything else goes on.
func TestDamagedOwner(t *testing.T) {
	r := &rig{t: t, disk: memfs.New(), opts: HostOptions{Shards: 1, ScrubEvery: 20, ScrubBytes: 1 << 30}}
	r.wal.SegmentBytes = 512 << 10
	r.boot()
	m := newKV(t, "a")
	r.open(1, m)
	for i := range 40 {
		m.must(put(fmt.Sprint("k", i), textOf(i, 30_000)))
		r.settle()
	}
	n := &node{rig: r, c: &cluster{t: t}, kvs: map[GroupID]*kv{1: m}}
	path := n.flip(1, textOf(3, 30_000), 700)
	for range 40 {
		r.host.Tick()
		r.settle()
	}
	st := m.group.Status()
	if st.Damage.Found != 1 || st.Damage.Open != 1 || st.Damage.Passes == 0 || st.Damaged == nil || st.ReadOnly != nil ||
		!strings.Contains(st.Damage.Reason.Error(), path) {
		t.Fatalf("%+v", st)
	}
	for i := range 40 {
		got, err := readBody(m.group, m.state[fmt.Sprint("k", i)].Body)
		var d *DamagedError
		if i == 3 && (!errors.As(err, &d) || !d.Alone || !strings.Contains(err.Error(), path)) {
			t.Fatal(err)
		} else if i != 3 && (err != nil || string(got) != textOf(i, 30_000)) {
			t.Fatalf("body %d: %v", i, err)
		}
	}
	m.must(put("more", "more"))
	r.settle()
	if m.read("more") != "more" || r.told(DamageFound) != 1 {
		t.Fatal("it does not go on")
	}
	r.stop()
	r.boot()
	again := newKV(t, "again")
	r.open(1, again)
	if again.read("k4") != textOf(4, 30_000) {
		t.Fatal("another body")
	}
	r.stop()
}

// The scrub keeps to its rate, and a pass begins when it may and not before.
func TestScrubRate(t *testing.T) {
	c := newClusterWith(t, 3, 7, HostOptions{Shards: 1, ScrubEvery: 50, ScrubBytes: 10 * segment.BatchMax})
	c.openAll(1, 3)
	lead := c.leader(1)
	for i := range 40 {
		lead.kvs[1].must(put(fmt.Sprint("k", i), textOf(i, 60_000)))
		c.settle()
	}
	was := lead.host.Scrub()
	for range 200 {
		c.tick(1)
		now := lead.host.Scrub()
		if n := now.Bytes - was.Bytes; n > 3*segment.BatchMax {
			t.Fatalf("%d bytes in a tick", n)
		}
		was = now
	}
	if was.Passes < 2 || was.Passes > 5 || was.SincePass < 0 || was.Bytes < 2*40*60_000 {
		t.Fatalf("%+v", was)
	}
	if d := lead.damage(1); d.Scrubbed == 0 || d.Scrubbed > was.Bytes || d.Found != 0 {
		t.Fatalf("%+v", d)
	}
}
