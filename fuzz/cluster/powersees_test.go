package cluster

import (
	"testing"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/fuzz/internal/process"
)

// Nodes that confirm before the flush are found out by a few cuts: what the tests of this file's neighbours find to be
// there is not there by itself.
func TestPowerSeesWhatIsNotFlushed(t *testing.T) {
	powered(t)
	bin, err := process.BuildSwitched(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		rule  string
		nodes int
		want  wire.Want
	}{
		{"wal.advanceEarly", 1, wire.Stored(wire.Flushed)},
		{"raftstore.answersWait", 3, wire.Replicated(2, wire.Flushed)},
	} {
		t.Run(s.rule, func(t *testing.T) {
			t.Setenv(process.OffVariable, s.rule)
			rng := seeded(t)
			r := poweredRigOf(t, bin, s.nodes, "ext4", rng)
			c := newCuts(r, rng, control.QueueSpec{Replicas: s.nodes}, s.want, "a", "b")
			for c.done < 10 {
				if list := c.strike(); len(list) > 0 { // who still publishes ends with the test: there is nobody to answer
					t.Logf("after %d cuts %d messages are missing: %s", c.done, len(list), list[0])
					return
				}
				c.serve()
			}
			t.Errorf("%d cuts found nothing", c.done)
		})
	}
}
