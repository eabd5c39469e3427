package raftstore

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"weida/fsync/memfs"
)

// large is an item with a body in a file of its own.
func large(key string, w BodyWriter) Item {
	return Item{Command: []byte("p" + key), HasBody: true, Large: w}
}

// bodyFilesOf are a node's files of large bodies.
func bodyFilesOf(n *node) (list []string) {
	for _, f := range n.disk.Files() {
		if strings.HasSuffix(f, ".body") {
			list = append(list, f)
		}
	}
	return list
}

// A large body is at the other members before its entry is proposed, each got it once, and it counts like any other
// (T-45, X-8).
func TestLargePush(t *testing.T) {
	c, lead := threeNodes(t, 41)
	m := lead.kvs[1]
	w := writeBody(t, m.group, largeBody())
	c.settle()
	for _, n := range c.nodes {
		if len(bodyFilesOf(n)) != 1 {
			t.Fatalf("node %d has %v", n.id, bodyFilesOf(n))
		}
	}
	tag := m.must(put("small", "s"), large("large", w))
	c.settle()
	i := m.appended(tag)
	if n := lead.heldBy(i); n != 3 {
		t.Errorf("%d replicas hold it", n)
	}
	if want := 2 * int64(len(largeBody())+digestSize); c.streamed != want {
		t.Errorf("%d bytes streamed, want %d", c.streamed, want)
	}
	for _, n := range c.nodes {
		c.crash(n, true, memfs.KeepNone)
	}
	for _, n := range c.nodes {
		c.start(n)
		c.open(n, 1, nil)
	}
	c.leader(1)
	c.tick(4)
	for _, n := range c.nodes {
		if n.kvs[1].read("large") != string(largeBody()) {
			t.Errorf("node %d has another body", n.id)
		}
	}
	c.same(1, true)
	c.stops()
}

// A stream that is cut at any piece leaves nothing; the body is fetched when its entry comes, the group goes on
// with the other member meanwhile, and the file comes once.
func TestLargePushCut(t *testing.T) {
	size := len(largeBody())
	for at := 0; at <= size; at += size / 5 {
		c, lead := threeNodes(t, 42)
		m := lead.kvs[1]
		late := c.rest(lead)[0]
		c.cutStream = func(s *nodeStream) int {
			if s.to != late.id || s.nth > 4 {
				return -1
			}
			return at
		}
		w := writeBody(t, m.group, largeBody())
		c.settle()
		if n := bodyFilesOf(late); len(n) != 0 {
			t.Fatalf("cut at %d: left %v", at, n)
		}
		tag := m.must(large("large", w), put("small", "s"))
		c.settle()
		i := m.appended(tag)
		if n := lead.heldBy(i); n != 2 || m.now().Committed < i {
			t.Fatalf("cut at %d: %d replicas hold it, committed %d", at, n, m.now().Committed)
		}
		c.until("the late one has it", func() bool { return lead.heldBy(i) == 3 })
		c.tick(4)
		if late.kvs[1].read("large") != string(largeBody()) || len(bodyFilesOf(late)) != 1 {
			t.Fatalf("cut at %d: %v", at, bodyFilesOf(late))
		}
		c.same(1, true)
		c.stops()
	}
}

// A body that no entry names is gone on all nodes once an entry of a higher term is committed, and a stream of a
// deposed leader ends.
func TestLargeUnnamed(t *testing.T) {
	c, lead := threeNodes(t, 43)
	m := lead.kvs[1]
	writeBody(t, m.group, largeBody())
	c.settle()
	open, err := m.group.NewBody(int64(len(largeBody())))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Write(largeBody()[:100_000]); err != nil {
		t.Fatal(err)
	}
	c.settle()
	for _, n := range c.rest(lead) {
		c.cut[[2]NodeID{lead.id, n.id}], c.cut[[2]NodeID{n.id, lead.id}] = true, true
		lead.host.PeerDown(n.id)
		n.host.PeerDown(lead.id)
	}
	c.until("another leads", func() bool { n := c.leads(1); return n != nil && n != lead && m.role != LeaderRole })
	if n := len(lead.host.far.pushes.list); n != 0 {
		t.Errorf("%d pushes of a deposed leader", n)
	}
	clear(c.cut)
	for _, n := range c.rest(lead) {
		c.meet(lead, n)
	}
	next := c.leads(1)
	next.kvs[1].must(note("of the new term"))
	c.tick(30)
	for _, n := range c.rest(lead) {
		if list := bodyFilesOf(n); len(list) != 0 {
			t.Errorf("node %d has %v", n.id, list)
		}
	}
	// On the deposed leader they belong to their writers, who give them up.
	if _, err := m.propose(large("late", open)); err == nil {
		t.Error("a body of a deposed leader was taken")
	}
	open.Abort()
	c.same(1, true)
	c.stops()
}

// A file that a power cut left unfinished under a body's ref is no body: its entry waits until the body came again,
// whole. Before, the entry was appended beside the remains.
func TestLargeLeftover(t *testing.T) {
	for _, keep := range []memfs.Keep{memfs.KeepNone, memfs.KeepRandom, memfs.KeepAll} {
		c, lead := threeNodes(t, 44)
		m := lead.kvs[1]
		late := c.rest(lead)[0]
		w := writeBody(t, m.group, largeBody())
		c.settle()
		if len(bodyFilesOf(late)) != 1 {
			t.Fatal("no file under way")
		}
		dir, err := late.fs.OpenDir(rigDir + "/groups/1")
		if err != nil {
			t.Fatal(err)
		}
		// The name lasts, the content does not.
		if err := errors.Join(late.fl.Flush("directory", dir), dir.Close()); err != nil {
			t.Fatal(err)
		}
		c.crash(late, true, keep)
		c.start(late)
		again := c.open(late, 1, nil)
		c.tick(4)
		tag := m.must(large("large", w))
		c.settle()
		i := m.appended(tag)
		c.until("it counts", func() bool { return lead.heldBy(i) == 3 })
		c.tick(4)
		if again.read("large") != string(largeBody()) {
			t.Fatalf("keep %d: another body", keep)
		}
		c.same(1, true)
		c.stops()
	}
}

// A member that is away when a large body comes gets it when it is back, entry by entry or with a snapshot.
func TestLargeFetch(t *testing.T) {
	c, lead := threeNodes(t, 45)
	m := lead.kvs[1]
	gone := c.rest(lead)[0]
	c.crash(gone, false, memfs.KeepAll)
	body := bytes.Repeat([]byte("abcdefgh"), 100_000)
	m.must(large("one", writeBody(t, m.group, body)), put("small", "s"))
	m.must(large("two", writeBody(t, m.group, largeBody())))
	c.settle()
	c.start(gone)
	again := c.open(gone, 1, nil)
	c.until("it has all", func() bool { return again.lastI == m.lastI && lead.heldBy(m.lastI) == 3 })
	c.tick(4)
	if again.read("one") != string(body) || again.read("two") != string(largeBody()) {
		t.Fatal("other bodies")
	}
	c.same(1, true)
	c.stops()
}

// A leader whose body of an entry is damaged, when somebody asks for it, gives the leadership to one who has it.
func TestStepsAside(t *testing.T) {
	c, lead := threeNodes(t, 46)
	m := lead.kvs[1]
	late, other := c.rest(lead)[0], c.rest(lead)[1]
	c.cutStream = func(s *nodeStream) int {
		if s.to == late.id && s.nth <= 2 {
			return 0
		}
		return -1
	}
	hold := true
	c.drop = func(p *packet) bool { // whoever asks asks the leader again, not another
		return hold && p.kind == "payload" && p.from == late.id && p.to == other.id
	}
	w := writeBody(t, m.group, largeBody())
	c.settle()
	tag := m.must(large("large", w))
	c.settle()
	i := m.appended(tag)
	if err := lead.disk.FlipBit(bodyFilesOf(lead)[0], 150_000, 1); err != nil {
		t.Fatal(err)
	}
	c.until("it steps aside", func() bool { n := c.leads(1); return n == other })
	hold = false
	c.until("the late one has it", func() bool { return late.kvs[1].lastI > i })
	if late.kvs[1].read("large") != string(largeBody()) || late.kvs[1].lastI != other.kvs[1].lastI {
		t.Fatal("another body")
	}
	c.stops()
}
