package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/wire"
)

// A queue is made with three replicas, brought to one and to three again, while a producer and a consumer never pause:
// nothing is lost, nothing comes twice, and nothing is refused that is not done when it is tried again (B-229.8, T-34).
func TestFactorFallsAndRisesInUse(t *testing.T) {
	r := newRig(t, 3)
	r.apply("q", control.QueueSpec{Replicas: 3})
	l := newLedger(t, "q")
	p := &producing{r: r, l: l, id: "p", want: wire.Stored(wire.Flushed), size: 200, every: time.Millisecond}
	k := &consuming{r: r, l: l, id: "k"}
	stopConsuming := r.background(k.run)
	stopProducing := r.background(p.run)
	sinceThen := func() {
		before, _ := l.tally()
		r.await(l, "some more are sent and settled", func(c tally) bool {
			return c.confirmed >= before.confirmed+100 && c.settled >= before.settled+100
		})
	}
	sinceThen()
	for range count(1, 10) {
		for _, factor := range []int{1, 3} {
			r.apply("q", control.QueueSpec{Replicas: factor})
			c, _ := l.tally()
			t.Logf("factor %d: %+v", factor, c)
			sinceThen()
		}
	}
	stopProducing()
	r.await(l, "all are accepted", func(c tally) bool { return c.accepted == c.sent })
	stopConsuming()
	if l.again > 0 {
		t.Logf("%d were delivered again, with a higher attempt", l.again)
	}
	r.finish(l)
	r.owned(l)
}

// owned checks a queue's own count: as many came in as were sent.
func (r *rig) owned(l *ledger) {
	r.t.Helper()
	r.within(hang, "the leader of "+l.queue+" counts as many messages as were sent", func() error {
		a, err := r.ask(r.leader(l.queue), http.MethodGet, queuePath(l.queue), nil)
		var q admin.Queue
		if err == nil {
			err = json.Unmarshal(a.Body, &q)
		}
		c, _ := l.tally()
		if err == nil && (q.Live == nil || q.Live.In != uint64(c.sent)) {
			err = fmt.Errorf("%d were sent, and it counts %+v", c.sent, q.Live)
		}
		return err
	})
}

// A queue is deleted and made again under its name while a node is down that has a replica of it. When that node
// returns, nothing of the old queue appears, and nothing of it is left there (T-19).
func TestNameIsTakenAgainWhileANodeIsDown(t *testing.T) {
	every(t)
	t.Parallel() // mostly it waits for elections and for what is silent
	r := newRig(t, 3)
	r.apply("q", control.QueueSpec{Replicas: 3})
	first, err := r.queue("q")
	if err != nil {
		t.Fatal(err)
	}
	old := newLedger(t, "q")
	(&producing{r: r, l: old, id: "old", want: wire.Replicated(3, wire.Flushed), size: 100, most: 100}).run(r.ctx)
	old.judge(r.peek(r.client(), old))
	down := r.others(r.leader("q"))[0]
	r.kill(down)
	r.change(http.MethodDelete, queuePath("q")+"?drainDeadline=0s", nil)
	r.within(hang, "the old queue is gone", func() error {
		a, err := r.ask(r.alive()[0], http.MethodGet, queuePath("q"), nil)
		if err == nil && a.Status != http.StatusNotFound {
			err = fmt.Errorf("it is there: %s", a.Body)
		}
		return err
	})
	r.apply("q", control.QueueSpec{Replicas: 3})
	second, err := r.queue("q")
	if err != nil || second.Metadata.UID == first.Metadata.UID {
		t.Fatalf("uid %d after %d, %v", second.Metadata.UID, first.Metadata.UID, err)
	}
	l := newLedger(t, "q")
	p := &producing{r: r, l: l, id: "new", want: wire.Stored(wire.Flushed), size: 100, most: 50}
	p.run(r.ctx)
	r.start(down)
	p.run(r.ctx)
	r.healthy(hang)
	r.within(hang, down.Name+" has nothing of the old queue", func() error {
		for _, x := range r.nodes {
			list, err := groupDirs(x.Dir)
			if err != nil {
				return err
			}
			if slices.Contains(list, first.Metadata.UID) {
				return fmt.Errorf("%s has its group %d", x.Name, first.Metadata.UID)
			}
		}
		return nil
	})
	r.finish(l)
	r.owned(l)
}

// groupDirs are the groups that a data directory has.
func groupDirs(dir string) (list []uint64, err error) {
	rows, err := os.ReadDir(filepath.Join(dir, "groups"))
	for _, row := range rows {
		if id, err := strconv.ParseUint(row.Name(), 10, 64); err == nil {
			list = append(list, id)
		}
	}
	return list, err
}

// Every node is killed at once, in the middle of publishes, and started again: what was confirmed is there (T-52, D-1).
func TestAllAreKilledAtOnce(t *testing.T) {
	every(t)
	r := newRig(t, 3)
	names := []string{"a", "b", "c", "d"}
	r.applyAll(control.QueueSpec{Replicas: 3}, names...)
	uids := make(map[string]uint64)
	var ledgers []*ledger
	var work []func(context.Context)
	for _, name := range names {
		q, err := r.queue(name)
		if err != nil {
			t.Fatal(err)
		}
		uids[name] = q.Metadata.UID
		l := newLedger(t, name)
		ledgers = append(ledgers, l)
		for i := range 2 {
			p := &producing{r: r, l: l, id: fmt.Sprintf("p%d", i), want: wire.Replicated(2, wire.Flushed), size: 300}
			p.every = 2 * time.Millisecond
			work = append(work, p.run)
		}
	}
	stop := r.background(work...)
	for round := range count(2, 10) {
		before := make(map[*ledger]tally)
		for _, l := range ledgers {
			before[l], _ = l.tally()
			r.await(l, "some are confirmed", func(c tally) bool { return c.confirmed > before[l].confirmed+50 })
		}
		r.kill(r.nodes...)
		if round == 0 { // what the disks have now is all that there is
			for _, l := range ledgers {
				r.disks(l, uids[l.queue])
			}
		}
		r.start(r.nodes...)
	}
	stop()
	for _, l := range ledgers {
		r.finish(l)
	}
}
