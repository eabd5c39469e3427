package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/wire"
)

// pubOptions are the flags of `bench pub`.
type pubOptions struct {
	dir         string
	output      string
	queues      []int
	replicas    int
	bytes       []int
	want        []string
	inFlight    int
	connections int
	rate        float64
	profile     string
	quick       bool
	gate        bool
}

// pubSizes are how much a run does.
type pubSizes struct {
	queues, bytes []int
	passes        int
	ramp, measure time.Duration // of one closed pass
	open          time.Duration // of the open loop
	piece         time.Duration // of one pass of a QUIC probe
	probeWrites   int           // before and after the run
	turnWrites    int           // in each turn
}

var (
	pubFull = pubSizes{
		queues: []int{1, 16, 128}, bytes: []int{256, 16 << 10}, passes: 5, ramp: 300 * time.Millisecond,
		measure: 2 * time.Second, open: 5 * time.Second, piece: time.Second, probeWrites: 1000, turnWrites: 500,
	}
	pubQuick = pubSizes{
		queues: []int{1, 16}, bytes: []int{256, 16 << 10}, passes: 1, ramp: 100 * time.Millisecond,
		measure: 300 * time.Millisecond, open: 300 * time.Millisecond, piece: 200 * time.Millisecond,
		probeWrites: 100, turnWrites: 50,
	}
	pubWants = []string{"accepted", "stored:written", "stored:flushed"}
	// replicatedWants are for queues with several replicas, whose commit is flushed on a majority.
	replicatedWants = []string{"replicated:2:flushed", "replicated:3:flushed"}
)

// inFlight is the number of unanswered messages that targets are stated for.
const inFlight = 256

// streamsPerConnection is how many queues share a connection unless --connections says otherwise; a node lets a
// connection have 64 streams.
const streamsPerConnection = 64

func pubCommand() *cobra.Command {
	var o pubOptions
	c := &cobra.Command{
		Use:   "pub",
		Short: "The broker: messages confirmed per second and their latency, beside the raw disk and QUIC alone",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return runPub(c, o) },
	}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", ".", "directory on the disk to measure; the run's files lie in bench-data-* below")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	f.IntSliceVar(&o.queues, "queues", nil, "numbers of queues (default 1,16,128)")
	f.IntVar(&o.replicas, "replicas", 1, "replicas of each queue, on as many nodes, each a process: 1 or 3; with 3, the "+
		"defaults are 1,16,128,1000 queues, 256 bytes and "+strings.Join(replicatedWants, ","))
	f.IntSliceVar(&o.bytes, "bytes", nil, "body sizes (default 256,16384)")
	f.StringSliceVar(&o.want, "want", pubWants, "levels of evidence")
	f.IntVar(&o.inFlight, "in-flight", inFlight, "unanswered messages of the closed loop, over all queues")
	f.IntVar(&o.connections, "connections", 0, "client connections (default one for each 64 queues)")
	f.Float64Var(&o.rate, "rate", 0, "messages per second of the open loop, over all queues "+
		"(default half the closed loop's)")
	f.StringVar(&o.profile, "profile", "",
		"write CPU profiles to this `FILE`, the broker's (of the other nodes FILE.node2, …), and FILE.client, the "+
			"client's, from a pass of its own")
	f.BoolVar(&o.quick, "quick", false, "short passes and fewer rows: shows that it works, not how fast")
	f.BoolVar(&o.gate, "gate", false, "end with status 1 if a target is missed; not with --quick")
	return c
}

func (o pubOptions) validate() error {
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("--output %s: want text or json", o.output)
	}
	known := pubWants
	if o.replicas > 1 {
		known = slices.Concat(pubWants, replicatedWants)
	}
	if o.replicas != 1 && o.replicas != 3 {
		return fmt.Errorf("--replicas %d: 1 or 3", o.replicas)
	}
	for _, w := range o.want {
		if !slices.Contains(known, w) {
			return fmt.Errorf("--want %s: want some of %v", w, known)
		}
	}
	for _, n := range o.queues {
		if n < 1 || n > 1000 {
			return fmt.Errorf("--queues %d: between 1 and 1000", n)
		}
		if o.connections > 0 && (n+o.connections-1)/o.connections > streamsPerConnection {
			return fmt.Errorf("--connections %d: a connection has at most %d of %d queues", o.connections,
				streamsPerConnection, n)
		}
	}
	for _, n := range o.bytes {
		if n < 1 || n > wire.InlineMax {
			return fmt.Errorf("--bytes %d: between 1 and %d, which is what travels in a frame", n, wire.InlineMax)
		}
	}
	if o.inFlight < 1 || o.rate < 0 || o.connections < 0 {
		return errors.New("--in-flight, --rate and --connections are not negative, and something has to be in flight")
	}
	return nil
}

func runPub(c *cobra.Command, o pubOptions) error {
	other := o.quick || len(o.queues)+len(o.bytes) > 0 || len(o.want) != len(pubWants) || o.inFlight != inFlight
	if o.gate && o.replicas == 1 && other {
		return errors.New("--gate needs the rows and sizes that the targets are stated for; " +
			"leave --quick, --queues, --bytes, --want and --in-flight out")
	}
	sz := pubFull
	if o.quick {
		sz = pubQuick
	}
	if o.replicas > 1 {
		sz.replicated(&o, c.Flags().Changed("want"))
	}
	if len(o.queues) > 0 {
		sz.queues = o.queues
	}
	if len(o.bytes) > 0 {
		sz.bytes = o.bytes
	}
	o.queues, o.bytes = sz.queues, sz.bytes
	if err := o.validate(); err != nil {
		return err
	}
	return measurePub(c, o, sz)
}

// replicated makes the sizes those of queues with several replicas.
func (sz *pubSizes) replicated(o *pubOptions, wants bool) {
	sz.bytes = []int{256}
	if !o.quick {
		sz.queues = []int{1, 16, 128, 1000}
	}
	if !wants {
		o.want = replicatedWants
	}
}

func measurePub(c *cobra.Command, o pubOptions, sz pubSizes) error {
	r, err := measure("pub", o.dir, sz.passes, sz.probeWrites, func(r *report, dir string) error {
		for _, bytes := range sz.bytes {
			for _, queues := range sz.queues {
				fmt.Fprintf(c.ErrOrStderr(), "bench: %s, %d B\n", plural(queues, "queue"), bytes)
				if err := r.benchPub(c.Context(), dir, o, sz, queues, bytes); err != nil {
					return fmt.Errorf("%s, %d B: %w", plural(queues, "queue"), bytes, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !o.quick && o.replicas == 1 {
		r.judgePub()
	}
	if !o.quick && o.replicas > 1 {
		r.judgeReplicated()
	}
	return r.finish(c.OutOrStdout(), o.output, o.gate)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
