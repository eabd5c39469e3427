package broker_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/faultfs"
)

// A settle, and a consumer that is opened, are answered in bounded time, too, where two of three have no room at all.
// With room again the settle has had its effect, and nobody who was turned away holds a subscription.
func TestConsumersWhereTheOthersAreFull(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	d.make("q", control.QueueSpec{Replicas: 3})
	w := d.writer("q", wire.Replicated(2, wire.Flushed))
	w.put(2)
	lead := d.home("q")
	o := client.ConsumerOptions{Subscription: "s", Patience: -1}
	c, err := d.client().Consumer(d.ctx, "q", o)
	if err != nil {
		t.Fatal(err)
	}
	first := d.next(c)
	group := fmt.Sprint(d.any().Registry().Queues[0].Metadata.UID)
	for i, f := range d.files {
		if segments := filepath.Join(d.configs[i].Dir, "groups", group, "*.seg"); i != lead {
			f.Fail(faultfs.Match{Op: faultfs.OpWrite, Path: segments}, 1, -1, fsync.ErrDiskFull)
		}
	}
	uncommitted := func(what string, err error) {
		t.Helper()
		var why *wire.Error
		if !errors.As(err, &why) || why.Code != wire.Uncommitted ||
			!strings.Contains(why.Detail, "2 of 3 voters have no room") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if err := first.Accept(d.ctx); err != nil {
		t.Fatal(err)
	}
	_, err = c.Flush(d.ctx)
	uncommitted("the settle", err)
	_, err = d.client().Consumer(d.ctx, "q", client.ConsumerOptions{})
	uncommitted("the consumer", err)
	for _, f := range d.files {
		f.Heal()
	}
	d.until("messages are taken", func() bool {
		n := len(w.kept)
		w.put(1)
		return len(w.kept) > n
	})
	uid := d.any().Registry().Queues[0].Metadata.UID
	d.until("who was turned away leaves no subscription", func() bool {
		live, serves := d.nodes[d.leader("q")].Live(uid)
		return serves && live.Subscriptions == 1
	})
	c, err = d.client().Consumer(d.ctx, "q", client.ConsumerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for d.next(c).Offset != first.Offset+1 { // what the first consumer had open is given back
	}
	c.Close()
	w.kept = w.kept[1:] // the first one was accepted
	w.check("q")
}

// next is the next delivery.
func (d *disks) next(c *client.Consumer) *client.Delivery {
	d.t.Helper()
	for m, err := range c.Deliveries(d.ctx) {
		if err != nil {
			d.t.Fatal(err)
		}
		return m
	}
	d.t.Fatal("no delivery came")
	return nil
}
