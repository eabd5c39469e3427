package raftstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/fsync/memfs"
	"weida/segment"
	"weida/wal"
)

// rig is one node on a memory disk, everything stepped on the test's goroutine.
type rig struct {
	t      *testing.T
	disk   *memfs.FS
	fs     *faultfs.FS
	fl     *fsync.Flusher
	store  *wal.Store
	host   *Host
	opts   HostOptions
	wal    wal.Options
	flush  fsync.Strategy
	events []Event
}

const rigDir = "/data"

func newRig(t *testing.T) *rig { return newRigWith(t, HostOptions{Shards: 2}) }

func newRigWith(t *testing.T, o HostOptions) *rig {
	r := &rig{t: t, disk: memfs.New(), opts: o}
	r.boot()
	return r
}

// boot starts the process on what the disk holds.
func (r *rig) boot() {
	r.t.Helper()
	r.fs = faultfs.New(r.disk)
	root, err := r.fs.OpenDir("/")
	if err != nil {
		r.t.Fatal(err)
	}
	r.fl = fsync.NewFlusher(fsync.Options{Root: root, Strategy: r.flush})
	o := r.wal
	o.Flusher, o.Boot = r.fl, segment.Boot(r.disk.BootID())
	if r.store, err = wal.OpenStore(r.fs, rigDir, o); err != nil {
		r.t.Fatal(err)
	}
	ho := r.opts
	ho.Store = r.store
	ho.Event = func(e Event) { r.events = append(r.events, e) }
	r.events = nil
	r.host = NewHost(ho)
}

// kill ends the process like kill -9 and starts it again.
func (r *rig) kill() {
	r.disk.Kill()
	r.boot()
}

// powerCut takes the power away and starts the node again.
func (r *rig) powerCut(keep memfs.Keep, rng *rand.Rand) {
	r.disk.PowerCut(keep, rng)
	r.boot()
}

func (r *rig) open(g GroupID, m *kv) Group {
	r.t.Helper()
	group, err := r.host.OpenOwner(g, m, OwnerOptions{Create: true})
	if err != nil {
		r.t.Fatal(err)
	}
	m.group = group
	return group
}

// run steps the host, not the flusher, until it has nothing to do.
func (r *rig) run() {
	r.t.Helper()
	for range 10_000 {
		if !r.host.Step() {
			return
		}
	}
	r.t.Fatal("the host does not come to rest")
}

// settle steps host and flusher until neither has anything to do.
func (r *rig) settle() {
	r.t.Helper()
	for range 10_000 {
		worked := r.host.Step()
		worked = r.fl.Step() || worked
		if !worked {
			return
		}
	}
	r.t.Fatal("the node does not come to rest")
}

func (r *rig) stop() {
	r.t.Helper()
	if err := r.host.Stop(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) told(k EventKind) (n int) {
	for _, e := range r.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// answer is how one proposal ended.
type answer struct {
	term    Term
	index   Index
	outcome Outcome // Kind 0: appended
}

// held is a body in a kv machine, and the command that put it there.
type held struct {
	Body segment.Commit
	Line string
}

// kv is a small Machine: a map from keys to bodies. A command is an operation (put, delete, note), the
// key, and after a colon whatever makes it unique. It checks what every machine may rely on.
type kv struct {
	t     testing.TB
	name  string
	group Group

	state   map[string]held
	answers map[uint64]answer
	asked   map[uint64]bool
	freed   map[uint64]int
	lines   map[uint64][]string // commands of each proposal
	upTo    map[Index]int       // how many lines were applied up to an entry
	refs    map[BodyRef]bool    // inline refs of this life's entries
	lastRef BodyRef             // greatest inline ref applied
	applied []string            // one line per item
	entries []Index
	marks   []Marks
	role    Role
	term    Term
	lastI   Index
	halted  error
	overdue Index // told of last, with why
	why     error
	nextTag uint64
	onApply func(Index, []Item)
	onMoved func(Marks)

	replica bool // of a replicated group: it may begin anywhere, and an undecided suffix may go
	leader  Leader
	terms   map[Index]Term // of what was applied
}

func newKV(t testing.TB, name string) *kv {
	return &kv{
		t: t, name: name,
		state:   map[string]held{},
		answers: map[uint64]answer{},
		asked:   map[uint64]bool{},
		freed:   map[uint64]int{},
		lines:   map[uint64][]string{},
		upTo:    map[Index]int{},
		refs:    map[BodyRef]bool{},
		terms:   map[Index]Term{},
	}
}

func (m *kv) Attach(g Group)   { m.group = g }
func (m *kv) Halted(err error) { m.halted = err }

func (m *kv) Overdue(last Index, why error) { m.overdue, m.why = last, why }

func (m *kv) Appended(tag uint64, t Term, i Index) {
	m.answered(tag, answer{term: t, index: i})
}

func (m *kv) Dropped(tag uint64, o Outcome) {
	if o.Kind == 0 || o.Err == nil {
		m.t.Errorf("%s: tag %d dropped without kind or reason", m.name, tag)
	}
	m.answered(tag, answer{outcome: o})
}

func (m *kv) answered(tag uint64, a answer) {
	if _, twice := m.answers[tag]; twice || !m.asked[tag] {
		m.t.Errorf("%s: tag %d answered twice or never asked", m.name, tag)
	}
	if m.freed[tag] != 0 {
		m.t.Errorf("%s: tag %d freed before its answer", m.name, tag)
	}
	m.answers[tag] = a
}

func (m *kv) Apply(t Term, i Index, items []Item) {
	if i != m.lastI+1 && (!m.replica || m.lastI != 0) {
		m.t.Errorf("%s: entry %d applied after %d", m.name, i, m.lastI)
	}
	m.lastI = i
	m.entries = append(m.entries, i)
	if m.replica {
		m.terms[i] = t
	}
	for _, it := range items {
		cmd := string(it.Command)
		if it.HasBody && !it.Body.Large {
			if !m.lastRef.Less(it.Body.Ref) {
				m.t.Errorf("%s: inline ref %v after %v", m.name, it.Body.Ref, m.lastRef)
			}
			m.lastRef = it.Body.Ref
		}
		if it.HasBody && m.refs[it.Body.Ref] {
			m.t.Errorf("%s: ref %v used twice", m.name, it.Body.Ref)
		}
		m.applied = append(m.applied, cmd)
		key, _, _ := strings.Cut(cmd[1:], ":")
		if old, ok := m.state[key]; ok && (cmd[0] == 'p' || cmd[0] == 'd') {
			m.group.Release(old.Body.Ref)
			delete(m.state, key)
		}
		if cmd[0] == 'p' {
			m.refs[it.Body.Ref] = true
			m.state[key] = held{Body: it.Body, Line: cmd}
		}
	}
	m.upTo[i] = len(m.applied)
	if m.onApply != nil {
		m.onApply(i, items)
	}
}

func (m *kv) Moved(now Marks) {
	if n := len(m.marks); n > 0 {
		was := m.marks[n-1]
		fell := now.Written < was.Written || now.Flushed < was.Flushed
		if now == was || fell && !m.replica || now.Applied < was.Applied || now.Committed < was.Committed {
			m.t.Errorf("%s: marks went from %+v to %+v", m.name, was, now)
		}
	}
	bad := now.Committed != now.Written || now.Applied != m.lastI
	if m.replica {
		bad = now.Committed > now.Written || m.lastI != 0 && now.Applied != m.lastI
	}
	if bad || now.Flushed > now.Written {
		m.t.Errorf("%s: marks %+v with %d applied", m.name, now, m.lastI)
	}
	m.marks = append(m.marks, now)
	if m.onMoved != nil {
		m.onMoved(now)
	}
}

func (m *kv) now() Marks {
	if len(m.marks) == 0 {
		return Marks{}
	}
	return m.marks[len(m.marks)-1]
}

func (m *kv) Role(r Role, t Term, l Leader) {
	if m.replica && r == LeaderRole && m.terms[m.lastI] != t {
		m.t.Errorf("%s: leads in term %d before it applied an entry of it", m.name, t)
	}
	if m.group == nil { // a wrapper that does not pass Attach on
		m.role, m.term, m.leader = r, t, l
		return
	}
	if st := m.group.Status(); st.Role != r || st.Replication != nil && st.Replication.Leader != l {
		m.t.Errorf("%s: is told that it is %v under %+v, and the status says %v: %+v", m.name, r, l, st.Role, st.Replication)
	}
	m.role, m.term, m.leader = r, t, l
}

func (m *kv) Bodies(yield func(BodyRef) bool) {
	for _, k := range sortedKeys(m.state) {
		if !yield(m.state[k].Body.Ref) {
			return
		}
	}
}

// propose hands items to the group and returns the tag; on an error nothing may follow.
func (m *kv) propose(items ...Item) (uint64, error) {
	m.nextTag++
	tag := m.nextTag
	m.asked[tag] = true
	for _, it := range items {
		m.lines[tag] = append(m.lines[tag], string(it.Command))
	}
	err := m.group.Propose(&Batch{Tag: tag, Items: items, Free: func() { m.free(tag, items) }})
	if err != nil {
		delete(m.asked, tag)
	}
	return tag, err
}

func (m *kv) must(items ...Item) uint64 {
	m.t.Helper()
	tag, err := m.propose(items...)
	if err != nil {
		m.t.Fatalf("%s: propose: %v", m.name, err)
	}
	return tag
}

// free spoils the buffers: whoever still reads them finds rubbish.
func (m *kv) free(tag uint64, items []Item) {
	if _, ok := m.answers[tag]; !ok {
		m.t.Errorf("%s: tag %d freed without an answer", m.name, tag)
	}
	if m.freed[tag]++; m.freed[tag] > 1 {
		m.t.Errorf("%s: tag %d freed twice", m.name, tag)
	}
	for _, it := range items {
		for i := range it.Command {
			it.Command[i] = 0xee
		}
		for i := range it.Inline {
			it.Inline[i] = 0xee
		}
	}
}

// indeterminate returns the commands of proposals with that outcome, in order.
func (m *kv) indeterminate() (lines []string) {
	for tag := range m.nextTag {
		if a, ok := m.answers[tag+1]; ok && a.outcome.Kind == Indeterminate {
			lines = append(lines, m.lines[tag+1]...)
		}
	}
	return lines
}

// complete fails unless every proposal was answered and freed.
func (m *kv) complete() {
	m.t.Helper()
	for tag := range m.asked {
		if _, ok := m.answers[tag]; !ok {
			m.t.Errorf("%s: tag %d has no answer", m.name, tag)
		}
		if m.freed[tag] != 1 {
			m.t.Errorf("%s: tag %d freed %d times", m.name, tag, m.freed[tag])
		}
	}
}

// appended fails unless the proposal got an entry.
func (m *kv) appended(tag uint64) Index {
	m.t.Helper()
	a, ok := m.answers[tag]
	if !ok || a.outcome.Kind != 0 || a.term != m.term {
		m.t.Fatalf("%s: tag %d: %+v (answered %v)", m.name, tag, a, ok)
	}
	return a.index
}

// refused fails unless the proposal was refused for that reason.
func (m *kv) refused(tag uint64, why error) {
	m.t.Helper()
	a := m.answers[tag]
	if a.outcome.Kind != Refused || !errors.Is(a.outcome.Err, why) {
		m.t.Fatalf("%s: tag %d: %+v, want refused with %v", m.name, tag, a, why)
	}
}

func put(key, body string) Item {
	return Item{Command: []byte("p" + key), HasBody: true, Inline: []byte(body)}
}

func del(key string) Item   { return Item{Command: []byte("d" + key)} }
func note(text string) Item { return Item{Command: []byte("n" + text)} }

// read opens the body of a key and returns it whole.
func (m *kv) read(key string) string {
	m.t.Helper()
	h, ok := m.state[key]
	if !ok {
		m.t.Fatalf("%s: no key %s", m.name, key)
	}
	b, err := readBody(m.group, h.Body)
	if err != nil {
		m.t.Fatalf("%s: %s: %v", m.name, key, err)
	}
	return string(b)
}

func readBody(g Group, c segment.Commit) ([]byte, error) {
	r, err := g.OpenBody(c)
	if err != nil {
		return nil, err
	}
	var b sink
	_, err = r.WriteTo(&b)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if int64(len(b)) != c.Length || r.Length() != c.Length || segment.DigestOf(b) != c.Digest {
		return nil, fmt.Errorf("body %v has %d bytes, want %d, or another digest", c.Ref, len(b), c.Length)
	}
	return b, nil
}

type sink []byte

func (s *sink) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}
