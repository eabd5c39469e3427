package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"weida/raftstore"
)

// stats count what happened in one run, or in many.
type stats struct {
	events, packets, commits, acks, unknown, refused uint64
	deliveries, settles, proofs, looks, streams      uint64
	healed                                           micros // from the end of the faults until all is in order
	faults                                           map[string]uint64
	told                                             map[raftstore.EventKind]uint64
}

func newStats() stats {
	return stats{faults: map[string]uint64{}, told: map[raftstore.EventKind]uint64{}}
}

func (s *stats) fault(kind string) { s.faults[kind]++ }

// add adds up runs.
func (s *stats) add(o *stats) {
	s.events += o.events
	s.packets += o.packets
	s.commits += o.commits
	s.acks += o.acks
	s.unknown += o.unknown
	s.refused += o.refused
	s.deliveries += o.deliveries
	s.settles += o.settles
	s.proofs += o.proofs
	s.looks += o.looks
	s.streams += o.streams
	s.healed = max(s.healed, o.healed)
	for k, v := range o.faults {
		s.faults[k] += v
	}
	for k, v := range o.told {
		s.told[k] += v
	}
}

// table prints them.
func (s *stats) table(out io.Writer, seeds int, took time.Duration) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, v any) { fmt.Fprintf(w, "%s\t%v\t\n", name, v) }
	row("seeds", seeds)
	row("events", s.events)
	row("packets", s.packets)
	row("commits", s.commits)
	row("acknowledged", s.acks)
	row("unknown", s.unknown)
	row("refused", s.refused)
	row("deliveries", s.deliveries)
	row("settles", s.settles)
	row("proofs", s.proofs)
	row("disks opened", s.looks)
	row("transfers", s.streams)
	row("longest healing, s", s.healed)
	for _, k := range sortedKeys(s.faults) {
		row(k, s.faults[k])
	}
	for _, k := range sortedKeys(s.told) {
		row(string(k), s.told[k])
	}
	row("wall time", took.Round(time.Millisecond))
	_ = w.Flush() // a table on the screen
}
