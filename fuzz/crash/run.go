package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const queue = "demo"

// options of a run; each field's flag or variable is in main.go.
type options struct {
	kills  int
	seed   uint64
	dir    string    // where the run's directory is made
	lines  int       // most lines of one publisher
	loadMS int       // longest load before a kill
	live   io.Writer // the live line; nil for none
}

// run is one node with its model.
type run struct {
	o       options
	rng     *rand.Rand
	dir     string // everything of this run
	round   string // files of the clients since the last complete check
	node    *node
	model   *model
	streams int
	kills   int
	markers int
}

// crash does a whole run. On an error the run's directory is kept, and the error names it.
func crash(o options) (c counts, err error) {
	r := &run{o: o, rng: rand.New(rand.NewPCG(o.seed, 1)), model: newModel()}
	r.dir = filepath.Join(o.dir, fmt.Sprintf("crash-artefacts-%d", o.seed))
	r.round = filepath.Join(r.dir, "round")
	if err := os.MkdirAll(r.round, 0o700); err != nil {
		return c, err
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil {
		return c, err
	}
	r.round = filepath.Join(r.dir, "round")
	said, err := os.Create(filepath.Join(r.dir, "node.out"))
	if err != nil {
		return c, err
	}
	bin, err := build(r.dir)
	if err != nil {
		return c, errors.Join(err, said.Close(), os.RemoveAll(r.dir))
	}
	r.node = &node{bin: bin, dir: filepath.Join(r.dir, "node"), said: said}
	if err = r.loop(); err == nil {
		err = r.last()
	}
	if r.node.cmd != nil && r.node.alive() {
		err = errors.Join(err, r.node.kill())
	}
	err = errors.Join(err, said.Close())
	if err != nil {
		return r.model.counts, fmt.Errorf("seed %d, after %d kills: %w\nkept: %s", o.seed, r.kills, err, r.dir)
	}
	return r.model.counts, os.RemoveAll(r.dir)
}

// loop alternates: start, check what the life before left, load, kill.
func (r *run) loop() error {
	for r.kills < r.o.kills {
		if err := r.begin(); err != nil {
			return err
		}
		if err := r.check(r.rng.IntN(6) == 0); err != nil {
			return err
		}
		if !r.node.alive() {
			continue // the check was struck
		}
		if err := r.load(time.Duration(r.rng.IntN(r.o.loadMS*1000)) * time.Microsecond); err != nil {
			return err
		}
		r.report()
	}
	return nil
}

// begin starts the node; now and then it is killed on the way up, once or more.
func (r *run) begin() error {
	for r.kills < r.o.kills && r.rng.IntN(8) == 0 {
		if err := r.node.launch(); err != nil {
			return err
		}
		time.Sleep(time.Duration(r.rng.IntN(60_000)) * time.Microsecond)
		if err := r.struck(); err != nil {
			return err
		}
	}
	return r.node.start()
}

func (r *run) struck() error {
	r.kills++
	return r.node.kill()
}

// load lets publishers run for a while and kills the node under them.
func (r *run) load(d time.Duration) error {
	slots := 1 + r.rng.IntN(3)
	var mu sync.Mutex // publishers are made one at a time: they draw from the run's randomness
	var all []*publisher
	var failed error
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range slots {
		wg.Go(func() {
			for {
				mu.Lock()
				select {
				case <-stop:
					mu.Unlock()
					return
				default:
				}
				p, err := r.publisher()
				if err == nil {
					all = append(all, p)
				}
				failed = errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
				p.wait() //nolint:errcheck // one whose node died ends with an error; its answers are what counts
			}
		})
	}
	time.Sleep(d)
	err := r.struck()
	mu.Lock()
	close(stop)
	running := all
	mu.Unlock()
	for _, p := range running {
		p.interrupt(2 * time.Second)
	}
	wg.Wait()
	err = errors.Join(err, failed)
	for _, p := range all {
		err = errors.Join(err, p.collect(r.model))
	}
	return err
}

// check publishes a marker, reads everything up to it and compares. With strike, the node is killed while the consumer
// reads; what the consumer had got by then may be settled or not, and the rest has to come back.
func (r *run) check(strike bool) error {
	end, marker, err := r.marker()
	if err != nil {
		return err
	}
	count := int(end - r.model.base)
	if strike {
		return r.strike(count)
	}
	if len(r.model.maybeGone) > 0 {
		// How many are left is not known: look first, settle then.
		got, err := r.consume("look", 0, func(d delivery) bool { return d.body == marker })
		if err != nil {
			return err
		}
		if err := r.model.check(got, end); err != nil {
			return err
		}
		count = len(got)
	}
	got, err := r.consume("settle", count, nil)
	if err != nil {
		return err
	}
	if len(got) < count {
		return fmt.Errorf("the consumer got %d of %d messages: %w", len(got), count, r.model.check(got, end))
	}
	if err := r.model.check(got, end); err != nil {
		return err
	}
	if err := r.model.order(); err != nil {
		return err
	}
	r.model.settled(end)
	return r.clean()
}

// clean forgets the files of clients that are accounted for.
func (r *run) clean() error {
	return errors.Join(os.RemoveAll(r.round), os.Mkdir(r.round, 0o700))
}

// marker publishes a message that ends what there is to check. Its offset says how many messages there are.
func (r *run) marker() (end uint64, d digest, err error) {
	r.markers++
	body := fmt.Sprintf("marker %d of seed %d", r.markers, r.o.seed)
	base := filepath.Join(r.round, "marker-"+strconv.Itoa(r.markers))
	p := &publisher{base: base, want: "stored:written"}
	r.streams++
	p.messages = []*message{r.model.send(r.streams, []byte(body))}
	out, err := os.Create(base + ".out")
	if err != nil {
		return 0, d, err
	}
	toFile := func(c *exec.Cmd) error { c.Stdout = out; return nil }
	p.client, err = r.node.client(base, toFile, "pub", queue, body, "--want", p.want, "-o", "json")
	if err == nil {
		err = p.wait()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return 0, d, fmt.Errorf("publish the marker: %w; see %s.err", err, base)
	}
	if err := p.collect(r.model); err != nil {
		return 0, d, err
	}
	if m := p.messages[0]; m.state != confirmed {
		return 0, d, fmt.Errorf("the marker was not confirmed; see %s.out", base)
	}
	return p.messages[0].offset + 1, digestOf([]byte(body)), nil
}

// consumer starts `sub` with what its output is read from.
func (r *run) consumer(name string, args ...string) (*client, *bufio.Reader, error) {
	var out io.ReadCloser
	pipe := func(c *exec.Cmd) (err error) {
		out, err = c.StdoutPipe()
		return err
	}
	base := filepath.Join(r.round, name+"-"+strconv.Itoa(r.markers))
	c, err := r.node.client(base, pipe, append([]string{"sub", queue, "-o", "json"}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	return c, bufio.NewReaderSize(out, 1<<20), nil
}

// consume reads count messages and accepts them, or reads up to one that stop names and settles none.
func (r *run) consume(name string, count int, stop func(delivery) bool) ([]delivery, error) {
	args := []string{"--settle", "none"}
	if stop == nil {
		args = []string{"--settle", "accept", "--count", strconv.Itoa(count)}
	}
	c, out, err := r.consumer(name, args...)
	if err != nil {
		return nil, err
	}
	watchdog := time.AfterFunc(workMax, func() { c.interrupt(0) })
	got, err := parseDeliveries(out, stop)
	if stop != nil {
		go c.interrupt(10 * time.Second)
		_, drainErr := io.Copy(io.Discard, out)
		err = errors.Join(err, drainErr)
	}
	end := c.wait()
	watchdog.Stop()
	if stop == nil && end != nil {
		err = errors.Join(err, fmt.Errorf("the consumer ended with %w; see %s", end, c.err.Name()))
	}
	return got, err
}

// strike kills the node while a consumer reads and accepts.
func (r *run) strike(count int) error {
	c, out, err := r.consumer("struck", "--settle", "accept", "--count", strconv.Itoa(count))
	if err != nil {
		return err
	}
	killed := make(chan error, 1)
	delay := time.Duration(r.rng.IntN(r.o.loadMS*1000)) * time.Microsecond
	go func() {
		time.Sleep(delay)
		err := r.struck()
		c.interrupt(2 * time.Second)
		killed <- err
	}()
	got, err := parseDeliveries(out, nil)
	end := c.wait()
	err = errors.Join(err, <-killed)
	if end == nil && len(got) == count {
		// Everything was accepted and answered before the kill.
		if err := r.model.check(got, r.model.base+uint64(count)); err != nil {
			return err
		}
		if err := r.model.order(); err != nil {
			return err
		}
		r.model.settled(r.model.base + uint64(count))
		return errors.Join(err, r.clean())
	}
	r.model.interrupted(got)
	return err
}

// last checks once more, stops the node in order and verifies its files offline.
func (r *run) last() error {
	if err := r.node.start(); err != nil {
		return err
	}
	if err := r.check(false); err != nil {
		return err
	}
	if err := r.node.stop(); err != nil {
		return err
	}
	out, err := exec.Command(r.node.bin, "log", "verify", filepath.Join(r.node.dir, "n1")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("log verify: %w\n%s", err, out)
	}
	r.report()
	return nil
}

func (r *run) report() {
	if r.o.live == nil {
		return
	}
	c := r.model.counts
	fmt.Fprintf(r.o.live, "\rkill %d of %d · seed %d · confirmed %d written, %d flushed · refused %d · no answer %d, "+
		"%d of them stored \x1b[K", r.kills, r.o.kills, r.o.seed, c.written, c.flushed, c.refused, c.open, c.found)
}
