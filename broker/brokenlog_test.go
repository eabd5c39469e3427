package broker

import (
	"syscall"
	"testing"

	"weida/broker/client"
	"weida/broker/wire"
	"weida/fsync/faultfs"
)

// The leader's log fails under messages that are under way, in a write or in a flush: a producer with an id is told
// what came of each by the next leader, as when a leader dies.
func TestLeaderWhoseLogFails(t *testing.T) {
	t.Parallel()
	for _, op := range []faultfs.Op{faultfs.OpWrite, faultfs.OpSync, faultfs.OpSyncFS} {
		t.Run(string(op), func(t *testing.T) {
			tr := newTrio(t)
			p, err := tr.client().Producer(tr.ctx, "far", client.ProducerOptions{
				ID: "p", Want: wire.Replicated(2, wire.Flushed),
			})
			if err != nil {
				t.Fatal(err)
			}
			const n = 400
			results := make(chan client.Result, n)
			for i := range n {
				if i == n/4 {
					m := faultfs.Match{Op: op, Path: "*.seg"}
					if op == faultfs.OpSyncFS {
						m.Path = ""
					}
					s := tr.seats[tr.leader()]
					s.spoilt = true
					s.files.Fail(m, 1, 1, syscall.EIO)
				}
				if err := p.Send(tr.ctx, client.Message{Bytes: []byte("x")}, func(r client.Result) { results <- r }); err != nil {
					t.Fatal(err)
				}
			}
			for i := range n {
				if r := <-results; r.Outcome != client.OK {
					t.Fatalf("result %d, of message %d: %s, %v", i, r.Seq, r.Outcome, r.Err)
				}
			}
		})
	}
}
