package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

const queue = "demo"

// options of a run; each field's flag or variable is in main.go.
type options struct {
	kills  int
	seed   uint64
	dir    string    // where the run's directory is made
	loadMS int       // longest load before a kill
	live   io.Writer // the live line; nil for none
	// tamper spoils the data directory between a kill and the next start; nil for none. It shows that the check sees.
	tamper func(data string) error
}

// run is one node with its model.
type run struct {
	o       options
	rng     *rand.Rand
	dir     string // everything of this run
	node    *node
	streams int
	kills   int

	mu     sync.Mutex
	model  *model // guarded by mu while publishers run
	failed error  // guarded by mu; answers that contradict
}

// crash does a whole run. On an error the run's directory is kept, and the error names it.
func crash(o options) (c counts, err error) {
	r := &run{o: o, rng: rand.New(rand.NewPCG(o.seed, 1)), model: newModel()}
	r.dir = filepath.Join(o.dir, fmt.Sprintf("crash-artefacts-%d", o.seed))
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return c, err
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil {
		return c, err
	}
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
		err = errors.Join(err, r.history())
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
	if r.o.tamper != nil && r.kills > 0 {
		if err := r.o.tamper(filepath.Join(r.node.dir, "n1")); err != nil {
			return err
		}
	}
	return r.node.start()
}

func (r *run) struck() error {
	r.kills++
	return r.node.kill()
}

// check publishes a marker, reads and accepts everything up to it, and compares. With strike, the node is killed while
// the consumer reads: what the consumer had got by then may be settled or not, and the rest has to come back.
func (r *run) check(strike bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), workMax)
	defer cancel()
	c, err := r.node.dial(ctx)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer c.Close()
	end, marker, err := r.marker(ctx, c)
	if err != nil {
		return err
	}
	var killed chan error
	if strike {
		killed = make(chan error, 1)
		delay := time.Duration(r.rng.IntN(r.o.loadMS*1000)) * time.Microsecond
		go func() {
			time.Sleep(delay)
			killed <- r.struck()
			cancel()
		}()
	}
	got, err := r.consume(ctx, c, marker)
	if strike {
		if killErr := <-killed; killErr != nil {
			return killErr
		}
	}
	if strike && err != nil {
		return r.model.interrupted(got)
	}
	if checkErr := r.model.check(got, end); checkErr != nil || err != nil {
		return errors.Join(checkErr, err)
	}
	if err := r.model.order(); err != nil {
		return err
	}
	r.model.settled(end)
	return nil
}

// marker publishes a message that ends what there is to check: the queue ends behind it.
func (r *run) marker(ctx context.Context, c *client.Client) (end uint64, d digest, err error) {
	r.streams++
	p := &publisher{r: r, stream: r.streams, want: wire.Stored(wire.Written)}
	body := fmt.Appendf(nil, "marker %d of seed %d", p.stream, r.o.seed)
	prod, err := c.Producer(ctx, queue, client.ProducerOptions{Want: p.want})
	if err != nil {
		return 0, d, fmt.Errorf("publish the marker: %w", err)
	}
	msg := r.sent(p.stream, body)
	res, err := prod.Publish(ctx, client.Message{Body: bytes.NewReader(body), Length: int64(len(body))})
	if err = errors.Join(err, prod.Close(ctx)); err != nil {
		return 0, d, fmt.Errorf("publish the marker: %w", err)
	}
	r.answered(p, msg, res)
	if msg.state != confirmed {
		return 0, d, errors.Join(fmt.Errorf("the marker was not confirmed: %s %w", res.Outcome, res.Err), r.failed)
	}
	return msg.offset + 1, digestOf(body), r.failed
}

// consume reads and accepts everything up to the marker. Without an error every accept was answered.
func (r *run) consume(ctx context.Context, c *client.Client, marker digest) (got []delivery, err error) {
	k, err := c.Consumer(ctx, queue, client.ConsumerOptions{Credit: 1 + r.rng.IntN(2000)})
	if err != nil {
		return nil, fmt.Errorf("consume: %w", err)
	}
	defer k.Close()
	for d, err := range k.Deliveries(ctx) {
		if err != nil {
			return got, fmt.Errorf("consume: %w", err)
		}
		body, err := io.ReadAll(d.Body())
		if err != nil {
			return got, fmt.Errorf("consume: body at offset %d: %w", d.Offset, err)
		}
		if int64(len(body)) != d.Length {
			return got, fmt.Errorf("consume: offset %d: %d bytes of %d", d.Offset, len(body), d.Length)
		}
		// Noted before the accept: from then on it may be gone.
		got = append(got, delivery{d.Offset, d.Term, digestOf(body)})
		if err := d.Accept(ctx); err != nil {
			return got, fmt.Errorf("accept offset %d: %w", d.Offset, err)
		}
		if got[len(got)-1].body == marker {
			break
		}
	}
	if ctx.Err() != nil {
		return got, fmt.Errorf("consume: %w after %d messages", ctx.Err(), len(got))
	}
	stale, err := k.Flush(ctx)
	if err == nil && len(stale) > 0 {
		err = fmt.Errorf("an accept was refused: offset %d attempt %d: %w", stale[0].Offset, stale[0].Attempt, stale[0].Err)
	}
	return got, err
}

// last checks once more, stops the node in order and verifies its files offline.
func (r *run) last() error {
	if err := r.begin(); err != nil {
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

// history keeps what the model knew when a contradiction showed.
func (r *run) history() error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "base %d, %d offsets that may be gone\n", r.model.base, len(r.model.maybeGone))
	for stream := 1; stream <= r.streams; stream++ {
		for _, msg := range r.model.streams[stream] {
			fmt.Fprintf(&b, "%v: %v offset %d term %d flushed %v seen %v\n", msg, msg.state, msg.offset, msg.term,
				msg.flushed, msg.seen)
		}
	}
	return os.WriteFile(filepath.Join(r.dir, "history"), b.Bytes(), 0o600)
}
