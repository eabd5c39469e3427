package raftstore

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
	"weida/wal"
)

// history is a random run of a cluster, and what its group has promised so far.
type history struct {
	*cluster
	g      GroupID
	n      int
	unique int
	// entries are what was applied anywhere: no replica may apply anything else there.
	entries map[Index]string
	// confirmed are entries that were committed in the term of their leader, with their lines.
	confirmed map[Index][]string
	watched   map[*kv]map[uint64]bool
	proofs    int
	faulty    map[*node]bool // whose flushes fail
	changes   int
	// long: bodies of all sizes, and logs that are trimmed (see supplyhistory_test.go).
	long bool
}

// TestReplicaHistory runs random histories of three or five replicas, with proposals, lost, reordered and cut
// messages, kills, power cuts, disks that fill up, and looks at the disks themselves whenever a leader says who
// holds what: no replica applies anything different, nothing that was confirmed is lost, evidence is never
// overstated (W7, X-8), and when the faults end the group goes on.
//
// WEIDA_RUNS sets the number of histories, WEIDA_SEED replays one.
func TestReplicaHistory(t *testing.T) { histories(t, 12, runHistory) }

// histories runs some, by default so many.
func histories(t *testing.T, runs int, run func(*testing.T, uint64)) {
	if s := os.Getenv("WEIDA_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		run(t, seed)
		return
	}
	if s := os.Getenv("WEIDA_RUNS"); s != "" {
		var err error
		if runs, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	first := rand.Uint64() >> 16
	t.Logf("seeds %d to %d", first, first+uint64(runs)-1)
	for i := range uint64(runs) {
		t.Run(fmt.Sprint(first+i), func(t *testing.T) { run(t, first+i) })
		if t.Failed() {
			return
		}
	}
}

func runHistory(t *testing.T, seed uint64) {
	defer func() {
		if t.Failed() {
			t.Logf("replay with WEIDA_SEED=%d go test ./raftstore -run TestReplicaHistory", seed)
		}
	}()
	n := 3 + 2*int(seed%2)
	h := &history{
		cluster: newClusterWith(t, n, seed, HostOptions{
			Shards: 1 + int(seed%3), ParkTicks: 2, SnapshotBytes: 64 << 10 << (seed % 5),
		}),
		g: 1, n: n,
		entries:   map[Index]string{},
		confirmed: map[Index][]string{},
		faulty:    map[*node]bool{},
		watched:   map[*kv]map[uint64]bool{},
	}
	for _, nd := range h.nodes {
		h.serve(nd)
	}
	for range 1000 + h.rng.IntN(1000) {
		h.act()
		if t.Failed() {
			return
		}
	}
	h.heal()
	t.Logf("%d entries, %d confirmed, %d proofs, %d changes", len(h.entries), len(h.confirmed), h.proofs, h.changes)
}

// serve opens the replica of a node and watches what it says.
func (h *history) serve(nd *node) {
	m := h.open(nd, h.g, genesis(h.n))
	h.watched[m] = map[uint64]bool{}
	check := func(i Index, t Term, lines string) {
		now := fmt.Sprint(t, " ", lines)
		if was, ok := h.entries[i]; ok && was != now {
			h.t.Errorf("%s applies %q as entry %d, it was %q", m.name, now, i, was)
		}
		h.entries[i] = now
	}
	at := 0 // what was replayed at opening, behind a snapshot
	if len(m.entries) > 0 {
		at = m.upTo[m.entries[0]-1]
	}
	for _, i := range m.entries {
		end := m.upTo[i]
		check(i, m.terms[i], fmt.Sprint(m.applied[at:end]))
		at = end
	}
	m.onApply = func(i Index, items []Item) {
		var lines []string
		for _, it := range items {
			lines = append(lines, string(it.Command))
		}
		check(i, m.terms[i], fmt.Sprint(lines))
	}
	m.onMoved = func(now Marks) { h.moved(nd, m, now) }
}

// moved confirms what is committed, and sometimes looks whether as many disks hold it as is said.
func (h *history) moved(nd *node, m *kv, now Marks) {
	for tag, a := range m.answers {
		if a.outcome.Kind == 0 && a.term == now.Term && a.index <= now.Committed && !h.watched[m][tag] {
			h.watched[m][tag] = true
			h.confirmed[a.index] = append(h.confirmed[a.index], m.lines[tag]...)
		}
	}
	if m.role != LeaderRole || h.rng.IntN(20) > 0 {
		return
	}
	h.proofs++
	h.prove(nd, now)
}

// prove cuts the power of copies of the disks and counts those that hold what Held says.
func (c *cluster) prove(nd *node, now Marks) {
	for k := MaxVoters; k > 0; k-- {
		i := now.Held[k-1]
		if i == 0 || k < MaxVoters && now.Held[k] == i {
			continue
		}
		term, err := c.group(nd, 1).log.Term(i)
		if err != nil && !errors.Is(err, wal.ErrTrimmed) { // then it is committed, and only one can stand there
			c.t.Errorf("node %d: entry %d of which %d hold it: %v", nd.id, i, k, err)
			continue
		}
		var on []NodeID
		for _, o := range c.nodes {
			if c.diskHolds(o, 1, wal.Mark{Term: term, Index: i}) {
				on = append(on, o.id)
			}
		}
		if len(on) < k {
			c.t.Errorf("node %d says that %d replicas hold entry %d of term %d, the disks of %v do", nd.id, k, i, term, on)
		}
	}
}

// diskHolds reports whether the disk of a node, after a power cut, has the entry, all before it, and their bodies.
func (c *cluster) diskHolds(nd *node, g GroupID, m wal.Mark) bool {
	disk := nd.disk.Clone()
	disk.SetCapacity(0)
	disk.PowerCut(memfs.KeepNone, rand.New(rand.NewPCG(1, 2)))
	root, err := disk.OpenDir("/")
	if err != nil {
		c.t.Fatal(err)
	}
	fl := fsync.NewFlusher(fsync.Options{Root: root, Strategy: fsync.Files})
	store, err := wal.OpenStore(disk, rigDir, wal.Options{
		Flusher: fl, Boot: segment.Boot(disk.BootID()), SegmentBytes: 512 << 10,
	})
	if err != nil {
		c.t.Errorf("node %d after a power cut: %v", nd.id, err)
		return false
	}
	log, err := store.OpenLog(g)
	if err != nil {
		c.t.Errorf("node %d after a power cut: %v", nd.id, err)
		return false
	}
	switch term, err := log.Term(m.Index); {
	case errors.Is(err, wal.ErrTrimmed): // a snapshot has taken its place
	case err != nil || m.Term != 0 && term != m.Term:
		return false
	}
	covered := log.Recovered().Snapshot.Index // what it does not name is settled, and may be gone
	for i := log.First(); i <= m.Index; {
		list, err := log.Entries(i, m.Index+1, 1<<20)
		if err != nil {
			c.t.Errorf("node %d after a power cut: %v", nd.id, err)
			return false
		}
		for _, e := range list {
			if e.Type != segment.EntryNormal || e.Index <= covered {
				continue
			}
			if err := segment.EachCommit(e.Data, func(b segment.Commit) error {
				return onDisk(log, b)
			}); err != nil {
				c.t.Errorf("node %d after a power cut, entry %d: %v", nd.id, e.Index, err)
				return false
			}
		}
		i += Index(len(list))
	}
	return c.snapshotHolds(nd, log)
}

// onDisk says what is wrong with a body that an entry names: nothing if it, or a tombstone for it, is there.
func onDisk(log *wal.Log, b segment.Commit) error {
	r, err := log.OpenBody(b)
	if errors.Is(err, wal.ErrAbsent) {
		if ok, herr := log.Holds(b); ok || herr != nil {
			return herr
		}
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}

// act does one random thing.
func (h *history) act() {
	nd := h.nodes[h.rng.IntN(len(h.nodes))]
	if nd.up && (nd.fs.Dead() || nd.kvs[h.g].halted != nil) { // in the middle of a write or a flush
		h.crashSome(nd)
		return
	}
	switch k := h.rng.IntN(100); {
	case k < 30:
		if nd.up {
			nd.host.Step()
		}
	case k < 45:
		if nd.up {
			nd.fl.Step()
		}
	case k < 70:
		if len(h.net) > 0 {
			h.deliver(h.rng.IntN(min(len(h.net), 4)))
		}
	case k < 72:
		if len(h.net) > 0 {
			i := h.rng.IntN(len(h.net))
			h.net = slices.Delete(h.net, i, i+1)
		}
	case k < 80:
		ticks := 1 + h.rng.IntN(5)
		if h.leads(h.g) == nil {
			ticks += 15
		}
		for range ticks {
			for _, o := range h.nodes {
				if o.up && h.rng.IntN(8) > 0 {
					o.host.Tick()
				}
			}
			h.bit()
		}
	case k < 91:
		h.proposeSome()
	case k < 92:
		h.change()
	case k < 94:
		h.cutSome()
	case k < 96:
		h.fill(nd)
	case k < 97 && h.rng.IntN(6) == 0:
		if nd.up {
			h.faulty[nd] = true // until it is started on another cache
			nd.fs.Fail(faultfs.Match{Op: faultfs.OpSync, Path: groupFiles(h.g)}, 1+h.rng.IntN(3), -1, syscall.EIO)
		}
	case k < 97:
		if nd.up && h.rng.IntN(4) == 0 {
			nd.fs.DieBefore(nd.fs.Ops() + 1 + h.rng.IntN(60))
		}
	default:
		if !nd.up || h.rng.IntN(3) == 0 {
			h.crashSome(nd)
		}
	}
}

// bit lets everybody work a little.
func (h *history) bit() {
	for range 3 * len(h.nodes) {
		nd := h.nodes[h.rng.IntN(len(h.nodes))]
		if nd.up {
			nd.host.Step()
			nd.fl.Step()
		}
		for range h.rng.IntN(6) {
			if len(h.net) > 0 {
				h.deliver(h.rng.IntN(min(len(h.net), 4)))
			}
		}
	}
}

func (h *history) proposeSome() {
	nd := h.leads(h.g)
	if nd == nil {
		return
	}
	m := nd.kvs[h.g]
	if h.long {
		h.proposeLong(m)
		return
	}
	var items []Item
	for range 1 + h.rng.IntN(4) {
		h.unique++
		key := fmt.Sprint("k", h.rng.IntN(6), ":", h.unique)
		switch h.rng.IntN(4) {
		case 0:
			items = append(items, del(key))
		case 1:
			items = append(items, note(key))
		default:
			it := put(key, "")
			it.Inline = bodyOf(string(it.Command), 4<<10<<h.rng.IntN(4))
			items = append(items, it)
		}
	}
	_, _ = m.propose(items...) // full or no leader: nothing follows
}

// change asks for other voters, or for another leader.
func (h *history) change() {
	nd := h.leads(h.g)
	if nd == nil {
		return
	}
	list := members(h.n)
	voters := 1 + 2*h.rng.IntN((h.n+1)/2)
	for _, i := range h.rng.Perm(h.n)[voters:] {
		list[i].Learner = true
	}
	c := Change{Members: list}
	if h.rng.IntN(3) == 0 {
		c = Change{TransferTo: replicaOn(NodeID(1 + h.rng.IntN(h.n)))}
	}
	if nd.kvs[h.g].group.Reconfigure(c) == nil {
		h.changes++
	}
}

// cutSome cuts a connection one way, or heals all.
func (h *history) cutSome() {
	if h.rng.IntN(2) == 0 {
		clear(h.cut)
		return
	}
	a, b := NodeID(1+h.rng.IntN(h.n)), NodeID(1+h.rng.IntN(h.n))
	if a != b {
		h.cut[[2]NodeID{a, b}] = true
	}
}

// fill makes a disk full, or gives it room again.
func (h *history) fill(nd *node) {
	if h.rng.IntN(3) == 0 {
		nd.disk.SetCapacity(nd.disk.Used() + int64(h.rng.IntN(64<<10)))
	} else {
		nd.disk.SetCapacity(0)
	}
}

// crashSome takes a node down or brings one back.
func (h *history) crashSome(nd *node) {
	nd.disk.SetCapacity(0)
	if nd.up {
		keep := []memfs.Keep{memfs.KeepNone, memfs.KeepRandom, memfs.KeepAll}[h.rng.IntN(3)]
		h.crash(nd, h.rng.IntN(2) == 0 || h.faulty[nd], keep)
		delete(h.faulty, nd)
		return
	}
	h.start(nd)
	h.serve(nd)
}

// lastWord proposes something that is taken and gets an entry: what is still on its way from before may end a
// leadership once more, and where the disk of another member refused a write lately a leader may wait for it.
func (h *history) lastWord() {
	var err error
	for calm, wait := 0, diskRefusedTicks+diskHeardTicks; calm < 20; {
		lead := h.leader(h.g)
		m := lead.kvs[h.g]
		var tag uint64
		tag, err = m.propose(put("last", "word"))
		if h.settle(); err == nil && m.answers[tag].outcome.Kind == 0 {
			return
		}
		full := slices.ContainsFunc(h.rest(lead), func(o *node) bool { return lead.host.DiskOf(o.id)&DiskNoRoom != 0 })
		if wait > 0 && full {
			wait--
		} else {
			calm++
		}
		h.tick(1)
	}
	h.t.Fatalf("no leader takes a proposal, the last because of: %v", err)
}

// heal ends all faults; then the group has to elect, to take a proposal, and to hold everything that it confirmed.
func (h *history) heal() {
	clear(h.cut)
	for _, nd := range h.nodes {
		nd.disk.SetCapacity(0)
		if !nd.up {
			h.start(nd)
			h.serve(nd)
		}
		if nd.fs.DieBefore(0); nd.fs.Dead() || nd.kvs[h.g].halted != nil || h.faulty[nd] {
			h.crash(nd, h.faulty[nd], memfs.KeepNone)
			h.start(nd)
			h.serve(nd)
		}
	}
	h.lastWord()
	for range 120 { // what was lost is found out by heartbeats, and asked for again
		if h.tick(1); h.atRest() {
			break
		}
	}
	m := h.leader(h.g).kvs[h.g]
	h.same(h.g, true)
	h.bodies(h.g)
	rep := h.replication(h.leader(h.g))
	if now := m.now(); now.HeldBy(now.Written) != voters(rep.Committed) || pendingIn(&Status{Replication: rep}) {
		h.t.Errorf("all is well, and the marks are %+v, the group %+v", now, rep)
	}
	h.prove(h.leader(h.g), m.now())
	for i, lines := range h.confirmed {
		for _, line := range lines {
			if !strings.Contains(h.entries[i], line) {
				h.t.Errorf("entry %d was confirmed with %q and is %q", i, line, h.entries[i])
			}
		}
	}
}

// atRest reports whether all replicas applied all that the leader has, and no change is under way.
func (h *history) atRest() bool {
	lead := h.leads(h.g)
	if lead == nil {
		return false
	}
	now := lead.kvs[h.g].now()
	for _, nd := range h.nodes {
		if nd.kvs[h.g].lastI != now.Written {
			return false
		}
	}
	return !pendingIn(&Status{Replication: h.replication(lead)})
}
