package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"weida/broker/client"
)

// damaged is a queue in whose files bits flip, while it is scrubbed and read from one end to the other.
type damaged struct {
	b       *besideRun
	traffic *traffic
	cancel  context.CancelFunc
	reader  sync.WaitGroup
	rng     *rand.Rand
	flipped int
}

const (
	damagedMessages = 8 << 10
	damagedBytes    = 4 << 10
	flipEvery       = 500 * time.Millisecond
)

// newDamaged fills the queue and begins to read it again and again.
func newDamaged(ctx context.Context, b *besideRun) (*damaged, error) {
	queue := queueName(1)
	p, err := b.other.Producer(ctx, queue, client.ProducerOptions{Want: wantOf(b.o.replicas)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	body := bytes.Repeat(mark(queue), damagedBytes/len(mark(queue)))
	for range damagedMessages {
		err = p.Send(ctx, client.Message{Bytes: body}, func(r client.Result) {
			if r.Outcome != client.OK {
				cancel(fmt.Errorf("fill %s: %s: %w", queue, r.Outcome, r.Err))
			}
		})
		if err != nil {
			break
		}
	}
	if err := errors.Join(err, p.Close(ctx), context.Cause(ctx)); err != nil {
		cancel(nil)
		return nil, err
	}
	seed := rand.Uint64()
	fmt.Fprintf(b.live, "bench: bits flip by seed %d\n", seed)
	t := &damaged{
		b: b, traffic: b.startTraffic(ctx, 1), cancel: func() { cancel(nil) }, rng: rand.New(rand.NewPCG(seed, 0)),
	}
	t.reader.Go(func() { t.read(ctx, queue) })
	return t, nil
}

// read looks at all messages, again and again. What is damaged ends a look, and the next begins behind it.
func (t *damaged) read(ctx context.Context, queue string) {
	const page, every = 256, 50 * time.Millisecond
	for from := uint64(0); ctx.Err() == nil; {
		n := 0
		for d, err := range t.b.other.Peek(ctx, queue, client.PeekOptions{From: from, Count: page}) {
			if err != nil {
				from++
				break
			}
			from = d.Offset + 1
			n++
		}
		if n == 0 && from > damagedMessages {
			from = 0
		}
		_ = pause(ctx, every) // ends with ctx, as the loop does
	}
}

func (t *damaged) play(ctx context.Context, _ int, d time.Duration) error {
	node, _, err := t.b.leads(queueName(0))
	if err != nil {
		return err
	}
	_, group, err := t.b.leads(queueName(1))
	if err != nil {
		return err
	}
	pattern := filepath.Join("groups", fmt.Sprint(group), "*.seg")
	for until := time.Now().Add(d); time.Now().Before(until); {
		if err := t.flip(pattern, t.b.nodes.data[node]); err != nil {
			return err
		}
		if err := pause(ctx, min(flipEvery, time.Until(until))); err != nil {
			return err
		}
	}
	return nil
}

// flip changes a bit of one of the files, which are in use.
func (t *damaged) flip(pattern, data string) (err error) {
	list, err := filepath.Glob(filepath.Join(data, pattern))
	if err != nil || len(list) == 0 {
		return errors.Join(fmt.Errorf("no files %s below %s", pattern, data), err)
	}
	path := list[t.rng.IntN(len(list))]
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was written anew
	}
	if b = bytes.TrimRight(b, "\x00"); err != nil || len(b) == 0 {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	at := t.rng.IntN(len(b))
	_, err = f.WriteAt([]byte{b[at] ^ 1<<t.rng.IntN(8)}, int64(at))
	t.flipped++
	return errors.Join(err, f.Close())
}

// over waits until no more is found and mended.
func (t *damaged) over(ctx context.Context) error {
	const still, most = 2 * time.Second, 30 * time.Second
	var last [2]float64
	for began, since := time.Now(), time.Now(); time.Since(since) < still && time.Since(began) < most; {
		var now [2]float64
		for i, name := range []string{"weida_damage_found_total", "weida_damage_mended_total"} {
			v, err := t.b.nodes.counted(name)
			if err != nil {
				return err
			}
			now[i] = v
		}
		if now != last {
			last, since = now, time.Now()
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if last[0] == 0 {
		return fmt.Errorf("%d bits flipped and no damage was found", t.flipped)
	}
	return nil
}

func (t *damaged) end() error {
	t.cancel()
	t.traffic.stop()
	t.reader.Wait()
	return nil
}
