package machine

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"weida/fsync"
	"weida/fsync/faultfs"
	"weida/segment"
	"weida/wal"
)

// box is a store on a mounted image, with what was appended to it.
type box struct {
	flusher *fsync.Flusher
	store   *wal.Store
	logs    []*wal.Log
	sent    []segment.Index // last appended, by log
}

const logCount = 12

// body is what entry i of log g holds, whenever and wherever it is read.
func body(g int, i segment.Index) []byte {
	rng := rand.New(rand.NewPCG(uint64(g), uint64(i)))
	b := make([]byte, 1+rng.IntN(3000))
	for k := range b {
		b[k] = byte(rng.Uint32())
	}
	return b
}

// openBox opens or makes the store below dir, on the file system fs as it is seen through it.
func openBox(fs fsync.FS, dir string, strategy fsync.Strategy) (*box, error) {
	root, err := fs.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	boot, err := fsync.BootID(dir)
	if err != nil {
		return nil, err
	}
	b := &box{flusher: fsync.NewFlusher(fsync.Options{Root: root, Strategy: strategy})}
	b.store, err = wal.OpenStore(fs, filepath.Join(dir, "data"),
		wal.Options{Flusher: b.flusher, Boot: segment.Boot(boot)})
	if err != nil {
		return nil, errors.Join(err, b.flusher.Close())
	}
	for g := range logCount {
		log, err := b.store.OpenLog(segment.GroupID(g + 1))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("log %d: %w", g+1, err), b.store.Abandon(), b.flusher.Close())
		}
		b.logs = append(b.logs, log)
		b.sent = append(b.sent, log.Last().Index)
	}
	return b, nil
}

func (b *box) close() error { return errors.Join(b.store.Close(), b.flusher.Close()) }

// append adds the next entry of one log and asks for its flush.
func (b *box) append(g int) error {
	next := b.sent[g] + 1
	payload := body(g, next)
	ref := segment.BodyRef{Term: 1, Seq: uint64(next)}
	commit := segment.Commit{Ref: ref, Length: int64(len(payload)), Digest: segment.DigestOf(payload)}
	a := &wal.Append{
		Bodies:  []wal.Body{{Ref: ref, Payload: payload}},
		Entries: []segment.Entry{{Index: next, Term: 1, Data: segment.AppendData(nil, []segment.Commit{commit}, nil)}},
		Commit:  b.sent[g],
	}
	for {
		err := b.logs[g].Append(a)
		if errors.Is(err, wal.ErrNotReady) {
			job := b.logs[g].Job()
			if job == nil {
				return fmt.Errorf("log %d is not ready and has no job", g+1)
			}
			if err := errors.Join(job.Run(), b.logs[g].Advance()); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		b.sent[g] = next
		b.logs[g].RequestFlush()
		return nil
	}
}

func (b *box) flush() error {
	for b.flusher.Step() {
	}
	for g, log := range b.logs {
		if err := log.Advance(); err != nil {
			return fmt.Errorf("log %d: %w", g+1, err)
		}
	}
	return b.flusher.Err()
}

// holds checks that the log has at least the first want entries, every entry with the body that was appended, and none
// that was not.
func (b *box) holds(g int, want, sent segment.Index) error {
	last := b.logs[g].Last().Index
	if last < want {
		return fmt.Errorf("log %d: LOST: %d entries were flushed, %d are there", g+1, want, last)
	}
	if last > sent {
		return fmt.Errorf("log %d: INVENTED: %d entries, %d were appended", g+1, last, sent)
	}
	for i := segment.Index(1); i <= last; i++ {
		if err := b.entry(g, i); err != nil {
			return fmt.Errorf("log %d entry %d: %w", g+1, i, err)
		}
	}
	return nil
}

// entry checks one entry and its body.
func (b *box) entry(g int, i segment.Index) error {
	entries, err := b.logs[g].Entries(i, i+1, 1)
	if err != nil || len(entries) != 1 {
		return fmt.Errorf("%d entries, %w", len(entries), err)
	}
	commits, _, err := segment.ParseData(entries[0].Data)
	if err != nil || len(commits) != 1 {
		return fmt.Errorf("%d commit records, %w", len(commits), err)
	}
	r, err := b.logs[g].OpenBody(commits[0])
	if err != nil {
		return err
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if string(got) != string(body(g, i)) {
		return errors.New("CHANGED: another body")
	}
	return nil
}

// seeded returns the randomness of a test and prints its seed.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64() >> 16
	if s := os.Getenv("WEIDA_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 63); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 2))
}

const cuts = 12

// TestMachinePowerCut takes the power from real file systems (D-3, T-30): what the block device holds at a random
// moment is copied, mounted and opened. What was flushed is there; what was not is there whole or not at all; nothing
// is called corrupt.
func TestMachinePowerCut(t *testing.T) {
	asked(t)
	rng := seeded(t)
	for _, kind := range []string{"ext4", "xfs"} {
		for _, s := range []fsync.Strategy{fsync.Auto, fsync.Files, fsync.Whole} {
			t.Run(fmt.Sprintf("%s/%d", kind, s), func(t *testing.T) {
				p := newPowerCut(t, fsync.OS(), kind, s)
				// The moments are random: where none took anything yet, there are more of them.
				for i := 0; i < cuts || p.taken == 0 && i < 20*cuts; i++ {
					if err := p.cut(t, rng); err != nil {
						t.Fatal(err)
					}
				}
				if p.taken == 0 {
					t.Error("no cut took anything: the test shows nothing")
				}
				if err := p.b.close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestMachinePowerCutSeesLies: with flushes that do nothing, the same test finds losses. Each kind of flush by itself.
func TestMachinePowerCutSeesLies(t *testing.T) {
	asked(t)
	rng := seeded(t)
	for _, s := range []fsync.Strategy{fsync.Files, fsync.Whole} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			liar := faultfs.New(fsync.OS())
			p := newPowerCut(t, liar, "ext4", s)
			if s == fsync.Files {
				liar.IgnoreSync("")
			} else {
				liar.IgnoreSyncFS()
			}
			var found error
			for i := 0; i < cuts && found == nil; i++ {
				found = p.cut(t, rng)
			}
			if found == nil {
				t.Error("nothing was flushed and nothing was missed")
			}
			t.Log(found)
			if err := p.b.close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// powerCut is a store on an image of its own, whose power is taken again and again.
type powerCut struct {
	image, copied string
	options       []string
	strategy      fsync.Strategy
	b             *box
	taken         int // logs that a cut took something from
}

func newPowerCut(t *testing.T, fs fsync.FS, kind string, s fsync.Strategy) *powerCut {
	t.Helper()
	p := &powerCut{image: image(t, kind, 320), strategy: s}
	p.copied = filepath.Join(filepath.Dir(p.image), "cut.img")
	// Nothing but our own flushes and the cache's own mind may write while the image is copied.
	p.options = map[string][]string{"ext4": {"commit=300"}, "xfs": {"nouuid"}}[kind]
	b, err := openBox(fs, mount(t, p.image, p.options...), s)
	if err != nil {
		t.Fatal(err)
	}
	p.b = b
	return p
}

// cut appends and flushes at random, takes the power, and looks.
func (p *powerCut) cut(t *testing.T, rng *rand.Rand) error {
	t.Helper()
	for range 1 + rng.IntN(6) {
		for range 1 + rng.IntN(40) {
			if err := p.b.append(rng.IntN(logCount)); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(3) > 0 {
			if err := p.b.flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	flushed := make([]segment.Index, logCount)
	for g, log := range p.b.logs {
		flushed[g] = log.Flushed().Index
	}
	command(t, "cp", "--sparse=always", p.image, p.copied)
	var err error
	t.Run("cut", func(t *testing.T) { err = p.look(mount(t, p.copied, p.options...), flushed) })
	return err
}

// look opens what a cut left, checks it and lives on with it for a moment.
func (p *powerCut) look(dir string, flushed []segment.Index) error {
	b, err := openBox(fsync.OS(), dir, p.strategy)
	if err != nil {
		return err
	}
	for g := range logCount {
		if err = b.holds(g, flushed[g], p.b.sent[g]); err != nil {
			break
		}
		if b.logs[g].Last().Index < p.b.sent[g] {
			p.taken++
		}
		if err = b.append(g); err != nil {
			break
		}
	}
	return errors.Join(err, b.flush(), b.close())
}

// TestMachineStoreFull: a full disk refuses appends and loses nothing; with room again they go on, without a restart.
func TestMachineStoreFull(t *testing.T) {
	asked(t)
	dir := mount(t, image(t, "ext4", 24))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := openBox(fsync.OS(), dir, fsync.Auto)
	must(err)
	filler := filepath.Join(dir, "filler")
	out, err := exec.Command("dd", "if=/dev/zero", "of="+filler, "bs=64k").CombinedOutput()
	if err == nil {
		t.Fatalf("the disk is not full: %s", out)
	}
	var full error
	for i := 0; full == nil && i < 1_000_000; i++ {
		full = b.append(i % logCount)
	}
	if !errors.Is(full, fsync.ErrDiskFull) {
		t.Fatalf("a full disk: %v", full)
	}
	must(b.flush())
	for g := range logCount {
		must(b.holds(g, b.sent[g], b.sent[g]))
	}
	must(os.Remove(filler))
	for g := range logCount {
		must(b.append(g))
	}
	must(b.flush())
	sent := b.sent
	must(b.close())
	b, err = openBox(fsync.OS(), dir, fsync.Auto)
	must(err)
	for g := range logCount {
		must(b.holds(g, sent[g], sent[g]))
	}
	must(b.close())
}
