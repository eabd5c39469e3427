package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weida/broker/admin"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
)

// electionMax is how long a group may be without a leader after a node was started again. It is a promise, and judged
// in a long run: a machine that is slow breaks it.
const electionMax = 10 * time.Second

// Three nodes are stopped and started, one after the other, under load: every group has a leader soon after each, no
// message that was confirmed is lost, and in the end the leaders are spread evenly (T-52, X-10).
func TestRollingRestart(t *testing.T) {
	every(t)
	r := newRig(t, 3)
	names := queueNames(count(20, 200))
	r.applyMany(control.QueueSpec{Replicas: 3}, names)
	var ledgers []*ledger
	var work []func(context.Context)
	for _, name := range names[:count(4, 20)] {
		l := newLedger(t, name)
		ledgers = append(ledgers, l)
		p := &producing{r: r, l: l, id: "p", want: wire.Replicated(2, wire.Flushed), size: 256, every: 10 * time.Millisecond}
		work = append(work, p.run)
	}
	stop := r.background(work...)
	for _, l := range ledgers {
		r.await(l, "some are confirmed", func(c tally) bool { return c.confirmed > 10 })
	}
	for _, x := range r.nodes {
		r.stop(x)
		r.start(x)
		began, most := time.Now(), hang
		if long {
			most = electionMax
		}
		r.within(most, "every group has a leader after the restart of "+x.Name, r.led)
		t.Logf("%s is back, and every group has a leader %v later", x.Name, time.Since(began).Round(time.Millisecond))
		r.healthy(hang)
	}
	r.within(hang, "the leaders are spread", func() error { return r.spread(names) })
	stop()
	for _, l := range ledgers {
		r.finish(l)
	}
}

func queueNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("q%04d", i))
	}
	return names
}

// applyMany makes many queues, several at a time, and waits for all.
func (r *rig) applyMany(spec control.QueueSpec, names []string) {
	r.t.Helper()
	spec.Durability = control.Flushed
	next := make(chan string)
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for name := range next {
				r.change("PUT", queuePath(name), map[string]any{"spec": spec})
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	work.Wait()
	r.healthy(hang)
}

// led says which group has no leader that runs.
func (r *rig) led() error {
	s, err := r.status()
	if err != nil {
		return err
	}
	for _, g := range s.Groups {
		if g.Leader == "" || !r.named(g.Leader).Alive() {
			return fmt.Errorf("%s has leader %q: %s", g.Group, g.Leader, g.Why)
		}
	}
	return nil
}

// spread says whether some node leads more queues than it should: a tenth more than its share, or one.
func (r *rig) spread(names []string) error {
	s, err := r.status()
	if err != nil {
		return err
	}
	leads := make(map[string]int)
	for _, g := range s.Groups {
		if g.Group != admin.ControlName {
			leads[g.Leader]++
		}
	}
	share := float64(len(names)) / float64(len(r.nodes))
	for _, x := range r.nodes {
		if off := float64(leads[x.Name]) - share; max(off, -off) > max(share/10, 1) {
			return fmt.Errorf("%v of %d queues", leads, len(names))
		}
	}
	return nil
}

// A large message goes to three nodes beside small ones: nobody is elected meanwhile, and memory stays flat.
func TestLargeBesideSmall(t *testing.T) {
	every(t)
	r := newRig(t, 3)
	r.applyAll(control.QueueSpec{Replicas: 3}, "large", "small")
	small := newLedger(t, "small")
	p := &producing{r: r, l: small, id: "p", want: wire.Replicated(2, wire.Flushed), size: 1024, every: time.Millisecond}
	stop := r.background(p.run)
	r.await(small, "some are confirmed", func(c tally) bool { return c.confirmed > 100 })
	before := r.terms()
	c, size := r.client(), int64(count(64<<20, 1<<30))
	prod, err := c.Producer(r.ctx, "large", client.ProducerOptions{ID: "p", Want: wire.Replicated(3, wire.Flushed)})
	if err != nil {
		t.Fatal(err)
	}
	began, had := time.Now(), small.answers()
	res, err := prod.Publish(r.ctx, client.Message{Body: &pattern{size: size}, Length: size, Within: hang})
	if err != nil || res.Outcome != client.OK || res.Evidence != wire.Replicated(3, wire.Flushed) {
		t.Fatalf("%+v, %v", res, err)
	}
	took := time.Since(began)
	sub, err := c.Consumer(r.ctx, "large", client.ConsumerOptions{Subscription: "s", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for d, err := range sub.Deliveries(r.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if err := (&pattern{size: size}).same(d.Body()); err != nil {
			t.Fatal(err)
		}
		if err := d.Accept(r.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if stale, err := sub.Flush(r.ctx); err != nil || len(stale) > 0 {
		t.Fatal(stale, err)
	}
	if after := r.terms(); after != before {
		t.Errorf("somebody was elected: terms %s, and then %s", before, after)
	}
	t.Logf("%d MiB on three nodes after %v, and back after %v; %d small messages were answered meanwhile", size>>20,
		took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), small.answers()-had)
	for _, x := range r.nodes {
		peak := r.memory(x, "VmHWM")
		t.Logf("%s: at most %d MiB of memory", x.Name, peak>>20)
		if limit := int64(count(256, 512)) << 20; peak > limit { // the bound that is stated elsewhere is judged by people
			t.Errorf("%s used %d MiB of memory", x.Name, peak>>20)
		}
	}
	stop()
	r.finish(small)
}

func (l *ledger) answers() int {
	c, _ := l.tally()
	return c.answered
}

// terms are those of all groups, in words.
func (r *rig) terms() string {
	r.t.Helper()
	var b strings.Builder
	r.within(hang, "every group has a leader", func() error {
		b.Reset()
		s, err := r.status()
		if err != nil {
			return err
		}
		terms := make(map[string]uint64)
		for _, g := range s.Groups {
			terms[g.Group] = g.Term
			if g.Leader == "" {
				return fmt.Errorf("%s has none", g.Group)
			}
		}
		fmt.Fprint(&b, terms)
		return nil
	})
	return b.String()
}

// pattern is a body of any size: every eight bytes say where they are.
type pattern struct {
	size, at int64
}

// Read implements io.Reader.
func (p *pattern) Read(b []byte) (n int, err error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	var word [8]byte
	for n < len(b) && p.at < p.size {
		binary.LittleEndian.PutUint64(word[:], uint64(p.at/8)*0x9e3779b97f4a7c15)
		k := copy(b[n:min(len(b), n+int(p.size-p.at))], word[p.at%8:])
		n, p.at = n+k, p.at+int64(k)
	}
	return n, nil
}

// same reads another body and compares.
func (p *pattern) same(body io.Reader) error {
	got, want := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(body, got)
		if _, short := io.ReadFull(p, want[:n]); short != nil && n > 0 {
			return fmt.Errorf("it is longer than %d bytes", p.size)
		}
		switch {
		case !bytes.Equal(got[:n], want[:n]):
			return fmt.Errorf("it differs before byte %d", p.at)
		case err == nil:
		case p.at < p.size:
			return fmt.Errorf("it ends after %d bytes: %w", p.at, err)
		default:
			return nil
		}
	}
}

// memory is a figure of a node's process, in bytes.
func (r *rig) memory(x *node, field string) int64 {
	r.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.Pid()))
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == field+":" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			return n << 10
		}
	}
	r.t.Fatalf("there is no %s of %s", field, x.Name)
	return 0
}

// processor is the processor time that a node's process has used.
func (r *rig) processor(x *node) time.Duration {
	r.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", x.Pid()))
	if err != nil {
		r.t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	ticks := int64(0)
	for _, text := range f[11:13] { // user and system time, in hundredths of a second
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// Many queues with three replicas that nobody uses cost little. The figures are printed; what they should be is judged
// by people, and only what would be a mistake fails.
func TestIdleQueuesCostLittle(t *testing.T) {
	every(t)
	r := newRig(t, 3)
	names := queueNames(count(100, 1_000))
	began := time.Now()
	r.applyMany(control.QueueSpec{Replicas: 3}, names)
	t.Logf("%d queues are made and healthy after %v", len(names), time.Since(began).Round(time.Millisecond))
	wait := time.Duration(count(3, 10)) * time.Second
	for round := range count(2, 4) {
		before := time.Duration(0)
		for _, x := range r.nodes {
			before -= r.processor(x)
		}
		// What is measured is a span of time: there is nothing to wait for.
		time.Sleep(wait)
		var rss []int64
		for _, x := range r.nodes {
			before += r.processor(x)
			rss = append(rss, r.memory(x, "VmRSS")>>20)
		}
		t.Logf("round %d: all three use %.1f %% of a core in %v; memory in MiB: %v", round,
			100*before.Seconds()/wait.Seconds(), wait, rss)
		if before > wait*3/2 {
			t.Errorf("idle nodes used %v of processor time in %v", before, wait)
		}
	}
}
