package broker

import (
	"strings"
	"testing"
	"time"
)

// One setting per node: defaults, and a named refusal for what cannot be (T-55, B-231.1, B-231.2).
func TestConsensusSettings(t *testing.T) {
	c, err := Consensus{}.withDefaults()
	if err != nil || c != (Consensus{1500 * time.Millisecond, 200 * time.Millisecond, 1024}) {
		t.Errorf("%+v, %v", c, err)
	}
	for want, c := range map[string]Consensus{
		"three heartbeats": {Election: 500 * time.Millisecond},
		"not a multiple":   {Heartbeat: 150 * time.Millisecond},
		"at most 1m0s":     {Election: 2 * time.Minute},
		"from 16 to 65536": {Streams: 8},
		"-100ms is not":    {Heartbeat: -100 * time.Millisecond},
	} {
		if _, err := c.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
