package raftstore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"weida/fsync"
	"weida/fsync/memfs"
	"weida/segment"
)

// life is what one group has promised so far, over all lives of the process.
type life struct {
	lines   []string // of entries that were appended, in order
	maybe   []string // of a proposal with an indeterminate outcome behind them
	flushed int      // the first so many are flushed
	term    Term
	refs    map[BodyRef]string
}

// TestCrash runs random histories with kill -9, power cuts and full disks at random file-system
// operations, on three groups and with every way to flush, and checks the promises of the package after
// every restart (D-1, D-3):
// Appended survives a kill, Flushed a power cut, nothing is invented, changed or reordered, every live body
// is whole, epochs rise and refs are never used twice.
//
// WEIDA_RUNS sets the number of histories, WEIDA_SEED replays one.
func TestCrash(t *testing.T) {
	if s := os.Getenv("WEIDA_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		crashHistory(t, seed)
		return
	}
	runs := 25
	if s := os.Getenv("WEIDA_RUNS"); s != "" {
		var err error
		if runs, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	first := rand.Uint64()
	t.Logf("seeds %d to %d", first, first+uint64(runs)-1)
	for i := range uint64(runs) {
		if crashHistory(t, first+i); t.Failed() {
			return
		}
	}
}

const crashGroups = 3

// crashRig is a history: a rig, the groups of this life and what they promised.
type crashRig struct {
	*rig
	rng    *rand.Rand
	lives  [crashGroups]life
	kvs    [crashGroups]*kv
	unique int
}

func crashHistory(t *testing.T, seed uint64) {
	defer func() {
		if t.Failed() {
			t.Logf("replay with WEIDA_SEED=%d go test ./raftstore -run TestCrash", seed)
		}
	}()
	c := &crashRig{rig: &rig{t: t, disk: memfs.New()}, rng: rand.New(rand.NewPCG(seed, 1))}
	c.opts = HostOptions{Shards: 2, SnapshotBytes: 256 << 10, ParkTicks: 1}
	c.wal.SegmentBytes = 512 << 10
	c.flush = []fsync.Strategy{fsync.Auto, fsync.Files, fsync.Whole}[c.rng.IntN(3)]
	c.boot()
	for range 6 {
		if !c.openAll() {
			return
		}
		if c.rng.IntN(4) > 0 {
			c.fs.DieBefore(c.fs.Ops() + 1 + c.rng.IntN(400))
		}
		for range 10 + c.rng.IntN(60) {
			if c.fs.Dead() {
				break
			}
			c.act()
		}
		c.remember()
		c.crash()
		if t.Failed() {
			return
		}
	}
}

// act does one random thing.
func (c *crashRig) act() {
	m := c.kvs[c.rng.IntN(crashGroups)]
	switch c.rng.IntN(11) {
	case 0, 1, 2, 3, 4:
		c.propose(m)
	case 5:
		c.host.Tick()
	case 6:
		c.fl.Step()
	case 7:
		c.settleDead()
	case 8: // the disk fills up, or is given room again
		if c.rng.IntN(3) == 0 {
			c.disk.SetCapacity(c.disk.Used() + int64(c.rng.IntN(256<<10)))
		} else {
			c.disk.SetCapacity(0)
		}
	default:
		c.host.Step()
	}
}

// settleDead is settle that stands a death in between.
func (c *crashRig) settleDead() {
	for range 200 {
		worked := c.host.Step()
		if worked = c.fl.Step() || worked; !worked {
			return
		}
	}
}

func (c *crashRig) propose(m *kv) {
	var items []Item
	for range 1 + c.rng.IntN(4) {
		c.unique++
		key := fmt.Sprint("k", c.rng.IntN(12))
		switch c.rng.IntN(6) {
		case 0:
			items = append(items, del(fmt.Sprint(key, ":", c.unique)))
		case 1:
			items = append(items, note(fmt.Sprint(key, ":", c.unique)))
		case 2:
			if it, ok := c.large(m, fmt.Sprint(key, ":", c.unique)); ok {
				items = append(items, it)
			}
		default:
			it := put(fmt.Sprint(key, ":", c.unique), "")
			it.Inline = bodyOf(string(it.Command), 40<<10)
			items = append(items, it)
		}
	}
	if len(items) == 0 {
		return
	}
	if _, err := m.propose(items...); err != nil && m.halted == nil && !errors.Is(err, ErrDiskFull) {
		c.t.Errorf("propose: %v", err)
	}
}

func (c *crashRig) large(m *kv, key string) (Item, bool) {
	it := Item{Command: []byte("p" + key), HasBody: true}
	body := bodyOf(string(it.Command), 0)
	w, err := m.group.NewBody(int64(len(body)))
	if err != nil {
		return it, false
	}
	if c.rng.IntN(4) == 0 { // left alone: nobody names it
		_, err := w.Write(body[:100])
		if err != nil && !c.fs.Dead() && !errors.Is(err, ErrDiskFull) { // its own beginning may have crossed the line
			c.t.Errorf("write a body: %v", err)
		}
		return it, false
	}
	if _, err := w.Write(body); err != nil {
		return it, false
	}
	if err := w.Finish(segment.DigestOf(body)); err != nil {
		return it, false
	}
	it.Large = w
	return it, true
}

// bodyOf is the body that a command always carries: below limit bytes, or a large one if limit is 0.
func bodyOf(cmd string, limit int) []byte {
	rng := rand.NewChaCha8(sha256.Sum256([]byte(cmd)))
	n := segment.InlineMax + 1 + int(rng.Uint64()%(100<<10))
	if limit > 0 {
		n = int(rng.Uint64() % uint64(limit))
	}
	b := make([]byte, n)
	if _, err := rng.Read(b); err != nil {
		panic(err)
	}
	return b
}

// remember takes down what this life promised before it ends.
func (c *crashRig) remember() {
	for i, m := range c.kvs {
		l := &c.lives[i]
		l.lines = slices.Clone(m.applied)
		l.flushed = m.upTo[m.now().Flushed]
		l.maybe = m.indeterminate()
		l.term = m.term
	}
}

// crash ends the process and starts it again. After a power cut only what was flushed is owed.
func (c *crashRig) crash() {
	c.disk.SetCapacity(0)
	if c.rng.IntN(2) == 0 {
		for i := range c.lives {
			c.lives[i].flushed = len(c.lives[i].lines) // a kill -9 loses nothing that was appended
		}
		c.kill()
		return
	}
	c.powerCut([]memfs.Keep{memfs.KeepNone, memfs.KeepRandom, memfs.KeepAll}[c.rng.IntN(3)], c.rng)
}

// openAll opens every group and checks it against what it had promised.
func (c *crashRig) openAll() bool {
	for i := range c.kvs {
		m := newKV(c.t, fmt.Sprint("group ", i+1))
		c.open(GroupID(i+1), m)
		c.kvs[i] = m
		c.check(&c.lives[i], m)
	}
	return !c.t.Failed()
}

func (c *crashRig) check(l *life, m *kv) {
	if m.term <= l.term {
		c.t.Errorf("%s: epoch %d after %d", m.name, m.term, l.term)
	}
	most := append(slices.Clone(l.lines), l.maybe...)
	switch {
	case len(m.applied) < l.flushed:
		c.t.Errorf("%s: %d lines, %d were promised", m.name, len(m.applied), l.flushed)
	case len(m.applied) > len(most):
		c.t.Errorf("%s: %d lines, only %d were proposed", m.name, len(m.applied), len(most))
	case !slices.Equal(m.applied, most[:len(m.applied)]):
		c.t.Errorf("%s: lines changed", m.name)
	}
	if now := m.now(); now.Flushed != now.Applied {
		c.t.Errorf("%s: marks %+v after recovery", m.name, now)
	}
	if l.refs == nil {
		l.refs = map[BodyRef]string{}
	}
	for _, key := range sortedKeys(m.state) {
		h := m.state[key]
		limit := 40 << 10
		if h.Body.Large {
			limit = 0
		}
		if m.read(key) != string(bodyOf(h.Line, limit)) {
			c.t.Errorf("%s: another body under %q", m.name, h.Line)
		}
		if was, ok := l.refs[h.Body.Ref]; ok && was != h.Line {
			c.t.Errorf("%s: ref %v of %q is used for %q", m.name, h.Body.Ref, was, h.Line)
		}
		l.refs[h.Body.Ref] = h.Line
	}
}
