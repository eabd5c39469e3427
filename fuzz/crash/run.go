package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/endpoint"
	"weida/fuzz/internal/fleet"
	"weida/fuzz/internal/history"
	"weida/fuzz/internal/process"
)

// options of a run; each field's flag is in main.go.
type options struct {
	nodes, queues int
	duration      time.Duration
	kinds         []kind
	fs            string
	seed          uint64
	rate          int // messages a second, all producers together
	heal          time.Duration
	dir           string // where the run's directory is made
	bin           string // the binary; built if empty
	keep          bool
	live          io.Writer     // the live line; nil for none
	plan          []fault       // of a test; else the seed's
	lieAt         time.Duration // of a test: from when on disks say that they flushed, and do not; 0 for never
	tty           bool
	target        string // a context file: somebody else's cluster
	broken        string // the rule that the nodes are without, "" for none
	again         string // the command that repeats it
}

// run is one attack on one cluster.
type run struct {
	o       options
	dir     string // everything of this run
	fleet   *fleet.Fleet
	seats   []*seat
	net     *network // nil where there are no partitions
	fragile int      // the only node whose bytes are spoiled
	history *recorder
	slots   []*slot
	began   time.Time
	numbers atomic.Int64
	changes atomic.Int64            // that the administrator made
	looked  map[history.DumpAt]bool // of the process lane
	moves   sync.WaitGroup          // changes of replicas that are on their way
	all     context.Context         // ends when nothing is waited for any more
	over    context.CancelFunc

	names   []string // of nodes
	addrs   []string // UDP
	key     *endpoint.Identity
	trust   *endpoint.Trust
	remotes []*fleet.Node // HTTP sides of somebody else's cluster

	mu       sync.Mutex
	problems []string // guarded by mu; what is wrong, beside what the history says
	lates    []string // guarded by mu; what did not come in time
	troubles []string // guarded by mu; what went wrong with the harness
	bars     []*bar   // guarded by mu; faults as they were
	begun    map[kind]int
	turned   int           // guarded by mu; processes that said that they are not the node
	noticed  time.Duration // when something wrong was seen first; of who samples
	said     time.Duration // when the live line was written last; of who samples
	samples  []sample      // guarded by mu
	elected  []change      // guarded by mu
}

// attackAll does a whole run and returns what it showed. An error is that there was no run to judge.
func attackAll(ctx context.Context, o options) (res *result, err error) {
	r := &run{o: o, begun: make(map[kind]int), looked: make(map[history.DumpAt]bool)}
	r.all, r.over = context.WithCancel(context.Background())
	if r.dir, err = o.directory(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	plan := o.plan
	if plan == nil {
		plan = schedule(o.seed, o.nodes, o.duration, o.kinds)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", o.again)
	for _, f := range plan {
		fmt.Fprintln(&text, f)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "schedule"), []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.leave(err == nil && !res.failed())) }()
	if r.history, err = newRecorder(r.dir, o.heal); err != nil {
		return nil, err
	}
	if o.target != "" {
		err = r.visit(ctx)
	} else {
		err = r.build()
	}
	if err != nil {
		return nil, err
	}
	if err := r.load(ctx, plan); err != nil {
		return nil, err
	}
	return r.judge()
}

// build makes network, disks and nodes, and starts them.
func (r *run) build() (err error) {
	o := fleet.Options{Bin: r.o.bin, Dir: r.dir, Nodes: r.o.nodes}
	if r.o.has(bitflip) {
		o.Scrub = scrubEvery
	}
	if r.o.has(partition) {
		if r.net, err = newNetwork(r.o.nodes); err != nil {
			return err
		}
		o.Ports = r.net.ports()
		o.By = func(i int) []string { return r.net.spaces[i].enter() }
		o.HTTP = func(i int) *http.Client { return process.Asker(r.net.spaces[i].dial) }
	}
	if err := os.Mkdir(filepath.Join(r.dir, "disks"), 0o700); err != nil {
		return err
	}
	for i := range r.o.nodes {
		d, err := newDisk(filepath.Join(r.dir, "disks", fmt.Sprintf("n%d", i+1)), r.o.fs, r.o.seed+uint64(i))
		if err != nil {
			return err
		}
		r.seats = append(r.seats, &seat{index: i, disk: &volume{disk: d}})
	}
	o.Data = func(i int, _ string) string { return filepath.Join(r.seats[i].disk.root(), "data") }
	if r.fleet, err = fleet.New(o); err != nil {
		return err
	}
	r.key, r.trust, r.addrs = r.fleet.Key, r.fleet.Trust, r.fleet.Addrs()
	for i, x := range r.fleet.Nodes {
		r.seats[i].Node, r.names = x, append(r.names, x.Name)
	}
	if r.fragile = -1; r.o.has(bitflip) || r.o.has(rollback) || r.o.has(emptied) {
		r.fragile = fragileOf(r.o.seed, r.o.nodes)
	}
	for _, s := range r.seats {
		if err := r.launch(s); err != nil {
			return err
		}
	}
	for _, s := range r.seats {
		up := <-s.ready
		if s.ready = nil; up.err != nil {
			return fmt.Errorf("%s: %w", s.Name, up.err)
		}
	}
	return nil
}

func (o options) has(k kind) bool {
	for _, x := range o.kinds {
		if x == k {
			return true
		}
	}
	return false
}

// load lets everybody work while faults come, until the time is up or ctx ends.
func (r *run) load(ctx context.Context, plan []fault) error {
	r.slots = slots(r.o)
	draw := drawers(r.o.seed)
	g := &governor{r: r, rng: draw()}
	making, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	r.began = time.Now()
	for _, s := range r.slots {
		if err := g.make(making, s, s.most); err != nil {
			return err
		}
	}
	ctx, cancel = context.WithTimeout(ctx, r.o.duration)
	defer cancel()
	var work sync.WaitGroup
	pace := time.Second * time.Duration(3*len(r.slots)) / time.Duration(r.o.rate)
	r.began = time.Now()
	for _, s := range r.slots {
		for _, id := range []string{"p1", "p2", ""} {
			p := &producer{r: r, slot: s, rng: draw(), id: id, pace: pace}
			work.Go(func() { p.work(ctx) })
		}
		for _, id := range []string{"s1", "s1", ""}[:2+len(r.slots)%2] {
			k := &consumer{r: r, slot: s, rng: draw(), id: id}
			work.Go(func() { k.work(ctx) })
		}
	}
	work.Go(func() { g.work(ctx) })
	work.Go(func() { r.sampling(ctx, cancel) })
	err := r.attack(ctx, plan)
	<-ctx.Done()
	work.Wait()
	return err
}

// drawers gives everybody a source of numbers of their own.
func drawers(seed uint64) func() *rand.Rand {
	n := uint64(0)
	return func() *rand.Rand {
		n++
		return rand.New(rand.NewPCG(seed, 1000+n))
	}
}

// now is the time of the run.
func (r *run) now() time.Duration { return time.Since(r.began) }

func (r *run) number() int { return int(r.numbers.Add(1)) }

// anyone is some node that may answer; nil if there is none.
func (r *run) anyone(rng *rand.Rand) *fleet.Node {
	if n := len(r.remotes); n > 0 {
		return r.remotes[rng.IntN(n)]
	}
	for _, i := range rng.Perm(len(r.seats)) {
		if r.seats[i].usable() {
			return r.seats[i].Node
		}
	}
	return nil
}

// problemsMax bounds what is kept of what is wrong.
const problemsMax = 50

// wrong notes something that must not be.
func (r *run) wrong(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.problems) < problemsMax {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

// trouble notes what went wrong with the harness itself.
func (r *run) trouble(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles = append(r.troubles, fmt.Sprintf(format, args...))
}

// struck notes the beginning or the end of a fault.
func (r *run) struck(b *bar, begin bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if begin {
		r.bars = append(r.bars, b)
		r.begun[b.Kind]++
	}
}

// leave ends what outlives this process. Of a run that was good only the picture stays, and what was planned and done,
// unless more is wanted.
func (r *run) leave(good bool) (err error) {
	for _, s := range r.seats {
		s.set(func() { s.frozen = false })
		if s.Node != nil && s.Alive() {
			_ = s.Kill() // one that ended by itself meanwhile is dead as well
		}
	}
	if r.fleet != nil {
		_ = r.fleet.End() // likewise
	}
	for _, s := range r.seats {
		if s.Node != nil && r.o.fs != "none" && (r.o.keep || !good) {
			err = errors.Join(err, command("", "cp", "-a", s.Dir, filepath.Join(r.dir, "data-"+s.Name)))
		}
		err = errors.Join(err, s.disk.close())
	}
	if r.net != nil {
		err = errors.Join(err, r.net.close())
	}
	if r.history != nil {
		err = errors.Join(err, r.history.Close())
	}
	if !good || r.o.keep || err != nil {
		return err
	}
	list, err := os.ReadDir(r.dir)
	for _, e := range list {
		if !slices.Contains([]string{"run.svg", "schedule", "faults"}, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(r.dir, e.Name())))
		}
	}
	return err
}
