package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"weida/broker/admin"
	"weida/broker/control"
)

// The majority of the control group is killed: a connector that runs goes on with what it was told last, and so it does
// after its node was killed and started again with nobody to ask (B-230.2, T-49).
func TestConnectorGoesOnWithoutControl(t *testing.T) {
	every(t)
	t.Parallel() // mostly it waits for elections and for what is silent
	r := newRig(t, 5)
	r.apply("lines", pinned("n1", "n2", "n3"))
	r.voters(5)
	r.change(http.MethodPut, "/v1/connectors/c", map[string]any{"spec": control.ConnectorSpec{
		Protocol: "file", Direction: "source", Address: "in", Queue: "lines", Evidence: "stored:flushed", Loss: "none",
	}})
	written := uint64(0)
	more := func(when string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(r.dir, "files", "in"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			written++
			if _, err := fmt.Fprintf(f, "line %d\n", written); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		r.within(hang, fmt.Sprintf("%d lines are in the queue %s", written, when), func() error {
			return r.holds("lines", written)
		})
	}
	more("at first")
	r.within(hang, "the connector is ready on n1", func() error {
		a, err := r.ask(r.nodes[0], http.MethodGet, "/v1/connectors/c", nil)
		var c admin.Connector
		if err == nil {
			err = json.Unmarshal(a.Body, &c)
		}
		if err == nil && (c.Status.Phase != control.Ready || len(c.Status.Placement) != 1 ||
			c.Status.Placement[0].Number != 1) {
			err = fmt.Errorf("%s", a.Body)
		}
		return err
	})
	r.kill(r.nodes[2:]...)
	more("without the control group's majority")
	r.kill(r.nodes[0])
	r.start(r.nodes[0])
	more("after a start without it")
	r.start(r.nodes[2:]...)
	more("when all are back")
}

// holds says whether as many messages came into a queue as given, as its leader counts.
func (r *rig) holds(name string, n uint64) error {
	for _, x := range r.alive() {
		a, err := r.ask(x, http.MethodGet, queuePath(name), nil)
		var q admin.Queue
		if err == nil {
			err = json.Unmarshal(a.Body, &q)
		}
		if err == nil && q.Live != nil && q.Live.In == n {
			return nil
		}
		if err == nil && q.Live != nil && q.Live.In > n {
			r.t.Fatalf("queue %s took %d messages, and %d were there to be sent", name, q.Live.In, n)
		}
	}
	return fmt.Errorf("nobody counts %d messages", n)
}
