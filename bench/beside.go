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

// besideOptions are the flags of `bench beside`.
type besideOptions struct {
	dir      string
	output   string
	what     string
	replicas int
	want     string
	bytes    int
	rate     float64
	pairs    int
	phase    time.Duration
	body     int64
	ownDisk  bool
	gate     bool

	wanted wire.Want
	warm   time.Duration // before the first phase
	probes int           // writes of the raw disk, before and after
}

// besideKinds are what can happen to the other queue.
var besideKinds = []string{"nothing", "damaged", "failing", "stalled", "large"}

// ratioMax is how much longer a queue's p99 may be while the other one is in trouble. With nothing there is none.
var ratioMax = map[string]float64{"damaged": 1.3, "failing": 1.3, "stalled": 1.3, "large": 2}

func besideCommand() *cobra.Command {
	o := besideOptions{warm: 2 * time.Second, probes: 200}
	c := &cobra.Command{
		Use:   "beside",
		Short: "One queue's latency while another queue on the same node is in trouble",
		Long: `Publishes to one queue and consumes from it at a fixed rate, and measures each message from the moment when
it was to be sent. Meanwhile the node has another queue, which is by turns well and in trouble; the report compares the
two.

  nothing   no trouble: how far the figures wander by themselves
  damaged   bits of its files flip all the time, while everything is scrubbed and the whole queue is read
  failing   what is written to its file cannot be written back: an I/O error (needs root, FUSE and loop devices)
  stalled   what is written to its file does not reach the disk, and its flush does not end (needs the same)
  large     one body of --body bytes is published and read back`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return runBeside(c, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.what, "what", "nothing", "what happens to the other queue: "+strings.Join(besideKinds, ", "))
	f.StringVar(&o.dir, "dir", ".", "directory on the disk to measure; the run's files lie in bench-data-* below")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	f.IntVar(&o.replicas, "replicas", 1, "replicas of each queue, on as many nodes, each a process: 1 or 3")
	f.StringVar(&o.want, "want", "", "evidence that is asked for (default stored:flushed, or replicated:2:flushed)")
	f.IntVar(&o.bytes, "bytes", 1024, "body size of the queue that is measured")
	f.Float64Var(&o.rate, "rate", 250, "its messages per second")
	f.IntVar(&o.pairs, "pairs", 6, "how often the other queue is in trouble")
	f.DurationVar(&o.phase, "phase", 8*time.Second,
		"how long it is well and how long in trouble; large takes its own time")
	f.Int64Var(&o.body, "body", 1<<30, "size of the large body in bytes")
	f.BoolVar(&o.ownDisk, "own-disk", false, "give each node a disk of its own, in memory if there is room: a file "+
		"system on a device that this command plays, so that no other program's writes are in the figures (failing and "+
		"stalled have one; needs root, FUSE and loop devices)")
	f.BoolVar(&o.gate, "gate", false, "end with status 1 if a target is missed")
	return c
}

// complete checks the options and fills in what depends on others.
func (o *besideOptions) complete() (err error) {
	o.ownDisk = o.ownDisk || o.what == "failing" || o.what == "stalled"
	if o.want == "" {
		o.want = "stored:flushed"
		if o.replicas > 1 {
			o.want = "replicated:2:flushed"
		}
	}
	if o.wanted, err = wire.ParseWant(o.want); err != nil {
		return err
	}
	switch {
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("--output %s: want text or json", o.output)
	case !slices.Contains(besideKinds, o.what):
		return fmt.Errorf("--what %s: want one of %s", o.what, strings.Join(besideKinds, ", "))
	case o.replicas != 1 && o.replicas != 3:
		return fmt.Errorf("--replicas %d: 1 or 3", o.replicas)
	case o.bytes < watchedMin || o.bytes > wire.InlineMax:
		return fmt.Errorf("--bytes %d: between %d and %d", o.bytes, watchedMin, wire.InlineMax)
	case o.rate <= 0 || o.pairs < 1 || o.phase <= 0 || o.body <= wire.InlineMax:
		return errors.New("--rate, --pairs and --phase are more than nothing, and --body is more than fits into a frame")
	}
	return nil
}

func runBeside(c *cobra.Command, o besideOptions) error {
	r, err := measure("beside", o.dir, o.pairs, o.probes, func(r *report, dir string) (err error) {
		b := &besideRun{o: o, live: c.ErrOrStderr()}
		if err := b.start(c.Context(), dir); err != nil {
			return errors.Join(err, b.end())
		}
		err = b.play(c.Context())
		if err == nil {
			r.Beside, err = b.summary()
		}
		return errors.Join(err, b.end())
	})
	if err != nil {
		return err
	}
	r.judgeBeside()
	return r.finish(c.OutOrStdout(), o.output, o.gate)
}
