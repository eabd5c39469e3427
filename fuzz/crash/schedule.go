package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// kind is what a fault is.
type kind string

// The kinds. Each is a word of --faults.
const (
	kill      kind = "kill"      // kill -9
	pause     kind = "pause"     // SIGSTOP, and SIGCONT when it is over
	restart   kind = "restart"   // an orderly stop, and a start
	powerOff  kind = "powercut"  // of the device below the data directory, and the process with it
	bitflip   kind = "bitflip"   // one bit of one file, of a running or a stopped node, or the file itself
	diskfull  kind = "diskfull"  // no room is left
	rollback  kind = "rollback"  // the data directory is put back to a copy; the own one comes back when it is over
	emptied   kind = "emptied"   // the data directory is empty, likewise
	limits    kind = "limits"    // hardly any descriptors, or little memory
	partition kind = "partition" // some are cut off from the others, in one or in both directions, or packets are lost
)

// kinds are all of them, in the order in which they are shown.
var kinds = []kind{kill, powerOff, restart, pause, partition, diskfull, bitflip, rollback, emptied, limits}

// fault is one row of a schedule.
type fault struct {
	At, For time.Duration // from the beginning of the load
	Kind    kind
	How     string // a variant of the kind
	Nodes   []int  // whom it hits
	Roll    uint64 // decides what is left to decide
	Percent int    // of packets that are lost
}

func (f fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8.3fs  %-9s", f.At.Seconds(), f.Kind)
	if f.How != "" {
		fmt.Fprintf(&b, " %s", f.How)
	}
	for _, i := range f.Nodes {
		fmt.Fprintf(&b, " n%d", i+1)
	}
	if f.Percent > 0 {
		fmt.Fprintf(&b, " %d %%", f.Percent)
	}
	fmt.Fprintf(&b, ", for %.3fs", f.For.Seconds())
	return b.String()
}

// The times of faults.
const (
	warmUp   = 4 * time.Second // load without faults, at the beginning
	coolDown = 3 * time.Second // and at the end
	shortest = 50 * time.Millisecond
	longest  = 8 * time.Second
)

// lane is a sequence of faults of which one ends before the next begins. Those of different lanes overlap: a node may
// be killed in a partition, with a full disk.
type lane struct {
	kinds     []kind
	breathing time.Duration // the longest time from one to the next
}

// lanes: the first has the processes.
var lanes = []lane{
	{[]kind{kill, pause, restart, powerOff, bitflip, rollback, emptied, limits}, 6 * time.Second},
	{[]kind{partition}, 12 * time.Second},
	{[]kind{diskfull}, 15 * time.Second},
}

// schedule is the faults of a run: a pure function of its arguments, sorted by time.
func schedule(seed uint64, nodes int, duration time.Duration, chosen []kind) (list []fault) {
	fragile := fragileOf(seed, nodes)
	for i, l := range lanes {
		var possible []kind
		for _, k := range l.kinds {
			if slices.Contains(chosen, k) {
				possible = append(possible, k)
			}
		}
		if len(possible) == 0 {
			continue
		}
		d := &drawer{rng: rand.New(rand.NewPCG(seed, 100+uint64(i))), nodes: nodes, fragile: fragile}
		for at := warmUp + d.span(0, l.breathing); ; {
			f := d.draw(possible[d.rng.IntN(len(possible))])
			if f.At = at; f.At+f.For > duration-coolDown {
				break
			}
			list = append(list, f)
			at += f.For + d.span(0, l.breathing)
		}
	}
	slices.SortStableFunc(list, func(a, b fault) int { return int(a.At - b.At) })
	return list
}

// fragileOf is the node whose bytes may be spoiled, and whose directory may be another one for a while.
func fragileOf(seed uint64, nodes int) int { return rand.New(rand.NewPCG(seed, 99)).IntN(nodes) }

// drawer draws faults.
type drawer struct {
	rng   *rand.Rand
	nodes int
	// fragile is the only node whose bytes are spoiled or whose directory is another one for a while: a queue of three
	// replicas must keep a majority of sound ones, and of five nodes any three may have one. Queues with one replica are
	// elsewhere: what such a queue confirms lasts as its disk does.
	fragile int
}

// span is a time between two bounds, most often nearer to the lower.
func (d *drawer) span(low, high time.Duration) time.Duration {
	x := d.rng.Float64()
	return low + time.Duration(x*x*float64(high-low))
}

// some are so many nodes.
func (d *drawer) some(n int) []int {
	list := d.rng.Perm(d.nodes)[:n]
	slices.Sort(list)
	return list
}

func (d *drawer) draw(k kind) fault {
	f := fault{Kind: k, For: d.span(shortest, longest), Roll: d.rng.Uint64()}
	minority, majority := (d.nodes-1)/2, d.nodes/2+1
	switch k {
	case kill, powerOff:
		switch v := d.rng.IntN(10); {
		case v < 5:
			f.Nodes = d.some(1)
		case v < 7:
			f.Nodes = d.some(majority)
		default:
			f.Nodes = d.some(d.nodes)
		}
		if k == powerOff {
			f.How = [...]string{"none", "some", "some", "all"}[d.rng.IntN(4)] // of what was not flushed is left
		}
	case pause:
		f.Nodes = d.some(1 + d.rng.IntN(majority))
	case rollback, emptied:
		f.For, f.Nodes = max(f.For, 3*time.Second), []int{d.fragile}
		if k == emptied {
			f.How = [...]string{withKey, withoutKey}[d.rng.IntN(2)]
		}
	case limits:
		f.For, f.Nodes = max(f.For, 3*time.Second), d.some(1)
		f.How = [...]string{descriptors, memory}[d.rng.IntN(2)]
	case restart, diskfull:
		f.Nodes = d.some(1 + d.rng.IntN(max(minority, 1)))
	case bitflip:
		f.Nodes = []int{d.fragile}
		f.How = [...]string{flipLive, flipStopped, flipLive, flipStopped, flipCut, flipGone}[d.rng.IntN(6)]
	case partition:
		d.split(&f)
	}
	return f
}

// split draws a partition. Of a side, of a way and of bridges, Nodes are those who are cut off from the others.
func (d *drawer) split(f *fault) {
	f.For = max(f.For, time.Second)
	part := 1 + d.rng.IntN(max(d.nodes/2, 1))
	switch v := d.rng.IntN(10); {
	case v < 4:
		// With their clients: those of the others do not reach them, or only they are reached.
		f.How, f.Nodes = [...]string{"split", "split-with-clients", "split-from-clients"}[d.rng.IntN(3)], d.some(part)
	case v < 6:
		f.How, f.Nodes = [...]string{"deaf", "mute"}[d.rng.IntN(2)], d.some(part)
	case v < 8 && d.nodes > 2:
		f.How, f.Nodes = "bridge", d.rng.Perm(d.nodes) // the first of them is reached by both halves of the rest
	default:
		f.How, f.Percent = "loss", 1+d.rng.IntN(30)
	}
}
