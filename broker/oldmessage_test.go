package broker_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weida/broker/client"
	"weida/broker/wire"
)

// TestOldMessageUnderMany: one old message that nobody settles, and then many that are settled. The disk stays
// bounded, and the old message comes again, whole, after a restart. WEIDA_RUNS is how many thousand messages of 256
// bytes; a full run has 1000. Without it they are fewer and larger. (T-58)
func TestOldMessageUnderMany(t *testing.T) {
	t.Parallel()
	n, size := 12_000, 8<<10
	if s := os.Getenv("WEIDA_RUNS"); s != "" {
		k, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		n, size = 1000*k, 256
	}
	r := newRig(t)
	c := r.client()
	const old = "the old message"
	p := r.producer(c, wire.Stored(wire.Written))
	publish(t, p, old)
	hold, err := c.Consumer(t.Context(), "demo", client.ConsumerOptions{Subscription: "hold", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() {
		for _, err := range hold.Deliveries(t.Context()) {
			held <- err // it is never settled
		}
	}()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	most := settleMany(t, r, c, p, n, size)
	t.Logf("%d messages of %d bytes: at most %d MiB on the disk", n, size, most>>20)
	if limit := int64(72 << 20); most > limit {
		t.Errorf("at most %d bytes were on the disk, want at most %d", most, limit)
	}
	c.Close()
	r.stop()
	r.start()
	got := take(t, r.client(), "hold", 1, 1)
	if len(got) != 1 || !strings.HasSuffix(got[0], old) {
		t.Errorf("the old message came back as %v", got)
	}
}

// settleMany publishes n messages and settles them, at most 16 MiB of them at a time in the queue, and returns the most
// that was on the disk.
func settleMany(t *testing.T, r *rig, c *client.Client, p *client.Producer, n, size int) (most int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done sync.WaitGroup
	ahead := make(chan struct{}, 16<<20/size)
	done.Go(func() {
		body := make([]byte, size)
		for range n {
			ahead <- struct{}{}
			err := p.Send(ctx, client.Message{Bytes: body}, func(res client.Result) {
				if res.Outcome != client.OK {
					t.Errorf("%+v", res)
				}
			})
			if err != nil {
				t.Error(err)
				cancel() // the consumer would wait for it
				return
			}
		}
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	work, err := c.Consumer(t.Context(), "demo", client.ConsumerOptions{Subscription: "work", Limit: uint64(n)})
	if err != nil {
		t.Fatal(err)
	}
	defer work.Close()
	i := 0
	for d, err := range work.Deliveries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if k, err := io.Copy(io.Discard, d.Body()); err != nil || k != int64(size) {
			t.Fatalf("message %d: %d bytes, %v", i, k, err)
		}
		if err := d.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ahead
		if i++; i%2000 == 0 {
			most = max(most, onDisk(t, filepath.Join(r.dir, "n1")))
		}
	}
	if i != n {
		t.Errorf("%d of %d came", i, n)
	}
	if stale, err := work.Flush(t.Context()); err != nil || len(stale) > 0 {
		t.Error(stale, err)
	}
	done.Wait()
	return most
}

// onDisk adds up the sizes of the files below dir.
func onDisk(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return ignoreGone(err)
		}
		info, err := e.Info()
		if err == nil {
			sum += info.Size()
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// ignoreGone passes over a file that was removed meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
