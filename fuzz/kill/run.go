package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"weida/broker/client"
	"weida/fuzz/internal/process"
)

// options of a run; each field's flag or variable is in main.go.
type options struct {
	kills  int
	seed   uint64
	dir    string    // where the run's directory is made
	loadMS int       // longest load before a kill
	live   io.Writer // the live line; nil for none
	// tamper spoils the data directory between a kill and the next start; nil for none. It shows that the check sees.
	tamper func(data string, kills int) error
	record func(event) // is given the history, in order; nil for none
}

// run is one node with those who work on it, and the model of both.
type run struct {
	o        options
	rng      *rand.Rand
	dir      string // everything of this run
	node     *node
	gate     *gate
	slots    []*slot
	workers  sync.WaitGroup
	kills    int
	lives    int
	began    time.Time
	numbers  atomic.Int64
	streams  atomic.Int64
	verified atomic.Int64
	wrong    chan struct{} // closed at the first violation

	mu      sync.Mutex
	model   *model   // guarded by mu
	journal *journal // guarded by mu
	failed  error    // guarded by mu; of the journal
}

// plans are the names of a run's queues and what is done with them.
var plans = map[string]plan{
	"steady":  {durability: "flushed"},
	"written": {durability: "written", purges: true},
	"purged":  {durability: "flushed", purges: true},
	"limited": {durability: "flushed", limits: true},
	"reborn":  {durability: "flushed", reborn: true, purges: true},
	"again":   {durability: "flushed", reborn: true, limits: true},
}

var planNames = []string{"steady", "written", "purged", "limited", "reborn", "again"}

// crash does a whole run. On an error the run's directory is kept, and the error names it.
func crash(o options) (c counts, err error) {
	r := &run{
		o: o, rng: rand.New(rand.NewPCG(o.seed, 1)), model: newModel(), gate: newGate(),
		wrong: make(chan struct{}),
	}
	if r.dir, err = filepath.Abs(filepath.Join(o.dir, fmt.Sprintf("kill-artefacts-%d", o.seed))); err != nil {
		return c, err
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return c, fmt.Errorf("%w; what an earlier run kept is not touched: move it away, or take another seed", err)
	}
	said, err := os.Create(filepath.Join(r.dir, "node.out"))
	if err != nil {
		return c, err
	}
	defer func() { _ = said.Close() }() // for people to read
	bin, err := process.Build(r.dir)
	if err != nil {
		return c, errors.Join(err, os.RemoveAll(r.dir))
	}
	r.node = newNode(bin, filepath.Join(r.dir, "node"), said)
	if r.journal, err = newJournal(r.dir); err != nil {
		return c, err
	}
	if err = r.node.prepare(); err == nil {
		err = r.play()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.model.counts.verified = int(r.verified.Load())
	err = errors.Join(err, r.failed, r.journal.close())
	for i := range r.model.wrong {
		err = errors.Join(err, &r.model.wrong[i])
	}
	if err != nil {
		return r.model.counts, fmt.Errorf("seed %d, after %d kills: %w\nkept: %s", o.seed, r.kills, err, r.dir)
	}
	return r.model.counts, os.RemoveAll(r.dir)
}

// play starts those who work on the node, and gives them one life of it after another.
func (r *run) play() (err error) {
	defer func() {
		r.gate.ended()
		r.gate.close()
		if r.node.Alive() {
			err = errors.Join(err, r.node.Kill())
		}
		r.workers.Wait()
	}()
	r.began = time.Now()
	worker := uint64(10)
	draw := func() *rand.Rand {
		worker++
		return rand.New(rand.NewPCG(r.o.seed, worker))
	}
	for _, name := range planNames {
		s := &slot{name: name, plan: plans[name]}
		r.slots = append(r.slots, s)
		g := &manager{r: r, slot: s, rng: draw()}
		r.workers.Go(g.work)
		for _, id := range []string{"", "p1", "p2"} {
			p := &producer{r: r, slot: s, rng: draw(), id: id}
			r.workers.Go(p.work)
		}
		for _, own := range []string{"c1", "c2"} {
			k := &consumer{r: r, slot: s, rng: draw(), own: own}
			r.workers.Go(k.work)
		}
	}
	if err := r.loop(); err != nil || r.contradicted() {
		return err
	}
	return r.last()
}

// loop alternates: start, now and then look at everything, load, kill.
func (r *run) loop() error {
	for audit := 0; r.kills < r.o.kills; audit++ {
		if err := r.begin(true); err != nil {
			return err
		}
		if audit > 2 && r.rng.IntN(8) == 0 || audit == 12 {
			audit = 0
			if _, err := r.audit(false); err != nil {
				return err
			}
			r.gate.resume()
		}
		r.gate.begin()
		r.load()
		if err := r.strike(); err != nil {
			return err
		}
		r.report()
		if r.contradicted() {
			return nil
		}
	}
	return nil
}

// load lets everybody work until so many things were answered, which is a moment of no particular kind, or until it
// takes too long.
func (r *run) load() {
	goal := r.rng.IntN(800)
	if r.rng.IntN(10) == 0 {
		goal *= 5
	}
	from := r.answers()
	end := time.Now().Add(time.Duration(r.o.loadMS) * time.Millisecond)
	for r.answers() < from+goal && time.Now().Before(end) && !r.contradicted() {
		time.Sleep(time.Duration(r.rng.IntN(2000)) * time.Microsecond)
	}
}

func (r *run) answers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.model.counts
	return c.written + c.flushed + c.refused + c.deliveries + c.accepts + c.rejects + c.releases
}

// begin starts the node; with strikes it is now and then killed on the way up, once or more.
func (r *run) begin(strikes bool) error {
	for strikes && r.kills > 0 && r.kills < r.o.kills && r.rng.IntN(8) == 0 {
		if err := r.node.Launch(); err != nil {
			return err
		}
		time.Sleep(time.Duration(r.rng.IntN(80_000)) * time.Microsecond)
		if err := r.strike(); err != nil {
			return err
		}
	}
	if r.o.tamper != nil && r.kills > 0 {
		if err := r.o.tamper(r.node.data(), r.kills); err != nil {
			return err
		}
	}
	err := r.node.start()
	var ended *process.EndedError
	for tries := 0; errors.As(err, &ended) && r.node.AddressTaken() && tries < 10; tries++ {
		if err = r.node.configure("127.0.0.1:0", "127.0.0.1:0"); err == nil {
			err = r.node.start()
		}
	}
	if err == nil {
		r.lives++
		r.note(started{r.lives})
	}
	return err
}

// strike is the kill.
func (r *run) strike() error {
	r.kills++
	err := r.node.Kill()
	r.note(killed{r.lives})
	r.gate.ended()
	if err == nil && r.kills > 1 && r.rng.IntN(12) == 0 {
		_, err = r.whole()
	}
	return err
}

func (r *run) contradicted() bool {
	select {
	case <-r.wrong:
		return true
	default:
		return false
	}
}

// number is one that names a message or an operation.
func (r *run) number() int { return int(r.numbers.Add(1)) }

func (r *run) stream() int { return int(r.streams.Add(1)) }

func (r *run) registry() *registry { return &registry{r.node.adminAt()} }

// note tells the model of an event.
func (r *run) note(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.model.wrong)
	r.model.apply(e)
	if r.o.record != nil {
		r.o.record(e)
	}
	r.failed = errors.Join(r.failed, r.journal.add(r.model.now, e))
	if before == 0 && (len(r.model.wrong) > 0 || r.failed != nil) && !r.contradicted() {
		close(r.wrong)
	}
}

// odd notes an error that a client got, unless it is that of its own end.
func (r *run) odd(p place, doing string, err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, client.ErrClosed) {
		return
	}
	r.note(trouble{place: p, Doing: doing, Code: codeOf(err), Text: err.Error()})
}

// backlog is how many messages a queue holds, about.
func (r *run) backlog(uid uint64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.model.queues[uid]; q != nil {
		return q.backlog
	}
	return 0
}

func (r *run) report() {
	if r.o.live == nil {
		return
	}
	r.mu.Lock()
	c := r.model.counts
	r.mu.Unlock()
	var b bytes.Buffer
	fmt.Fprintf(&b, "\rkill %d of %d · seed %d · %.2f s a kill · %d messages, %d deliveries, %d settled, %d purges, "+
		"%d deletions \x1b[K", r.kills, r.o.kills, r.o.seed, time.Since(r.began).Seconds()/float64(r.kills), c.messages,
		c.deliveries, c.accepts+c.rejects, c.purges, c.deletions)
	_, _ = r.o.live.Write(b.Bytes()) // nobody has to look
}
