package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
)

// walOptions are the flags of `bench wal`.
type walOptions struct {
	dir    string
	output string
	only   []string
	quick  bool
	gate   bool
}

// sizes are how much a run does; quick shows that everything works, full gives figures.
type sizes struct {
	groups, bytes  []int
	samples        int
	probeWrites    int
	appendMillis   int
	heapMessages   int
	idleGroups     int
	reopenGroups   int
	reopenMessages int
}

var (
	full = sizes{
		groups: []int{1, 16, 128, 1000}, bytes: []int{256, 4096}, samples: 5, probeWrites: 1000, appendMillis: 1000,
		heapMessages: 500_000, idleGroups: 1000, reopenGroups: 1000, reopenMessages: 1000,
	}
	quick = sizes{
		groups: []int{1, 16, 128}, bytes: []int{256, 4096}, samples: 3, probeWrites: 100, appendMillis: 200,
		heapMessages: 20_000, idleGroups: 100, reopenGroups: 50, reopenMessages: 100,
	}
	walParts = []string{"rounds", "appends", "memory", "reopen"}
)

func walCommand() *cobra.Command {
	var o walOptions
	c := &cobra.Command{
		Use:   "wal",
		Short: "The store: flush rounds, appends, memory, reopening after kill -9",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return runWAL(c, o) },
	}
	c.Flags().StringVar(&o.dir, "dir", ".", "directory on the disk to measure; the run's files lie in bench-data-* below")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	c.Flags().StringSliceVar(&o.only, "only", walParts, "parts to run")
	c.Flags().BoolVar(&o.quick, "quick", false, "small sizes: shows that it works, not how fast")
	c.Flags().BoolVar(&o.gate, "gate", false, "end with status 1 if a target is missed; not with --quick")
	return c
}

func (o walOptions) validate() error {
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("--output %s: want text or json", o.output)
	}
	for _, p := range o.only {
		if !slices.Contains(walParts, p) {
			return fmt.Errorf("--only %s: want some of %v", p, walParts)
		}
	}
	if o.gate && o.quick {
		return errors.New("--gate needs the sizes that the targets are stated for; leave --quick out")
	}
	return nil
}

func runWAL(c *cobra.Command, o walOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	sz := full
	if o.quick {
		sz = quick
	}
	return measureWAL(c, o, sz)
}

func measureWAL(c *cobra.Command, o walOptions, sz sizes) error {
	r, err := measure("wal", o.dir, sz.samples, sz.probeWrites, func(r *report, dir string) error {
		for _, part := range walParts {
			if !slices.Contains(o.only, part) {
				continue
			}
			fmt.Fprintf(c.ErrOrStderr(), "bench: %s\n", part)
			if err := r.runPart(part, dir, sz); err != nil {
				return fmt.Errorf("%s: %w", part, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !o.quick {
		r.judge()
	}
	return r.finish(c.OutOrStdout(), o.output, o.gate)
}

// measure does work in an empty directory below parent, with a probe of the raw disk before and after.
func measure(bench, parent string, samples, writes int, work func(*report, string) error) (
	r *report, err error,
) {
	dir, kind, err := makeDir(parent)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	defer removeOnSignal(dir)()
	r = newReport(bench, kind, samples)
	if r.Before, err = probeDisk(dir, "probe", writes); err != nil {
		return nil, err
	}
	if err := work(r, dir); err != nil {
		return nil, err
	}
	r.After, err = probeDisk(dir, "probe", writes)
	return r, err
}

func (r *report) runPart(part, dir string, sz sizes) (err error) {
	switch part {
	case "rounds":
		for _, n := range sz.groups {
			for _, b := range sz.bytes {
				rows, err := benchRounds(dir, n, b, sz.samples)
				if err != nil {
					return err
				}
				r.Rounds = append(r.Rounds, rows...)
			}
		}
	case "appends":
		for _, n := range sz.groups {
			rows, err := benchAppends(dir, n, sz)
			if err != nil {
				return err
			}
			r.Appends = append(r.Appends, rows...)
		}
	case "memory":
		r.Memory, err = benchMemory(dir, sz)
	case "reopen":
		r.Reopen, err = benchReopen(dir, sz)
	}
	return err
}
