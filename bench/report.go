package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is everything one run measured.
type report struct {
	Bench      string      `json:"bench"`
	Commit     string      `json:"commit"`
	Go         string      `json:"go"`
	Kernel     string      `json:"kernel"`
	CPUs       int         `json:"cpus"`
	FileSystem string      `json:"file_system"`
	Samples    int         `json:"samples"`
	Before     probe       `json:"probe_before"`
	After      probe       `json:"probe_after"`
	Rounds     []roundRow  `json:"rounds,omitempty"`
	Appends    []appendRow `json:"appends,omitempty"`
	Memory     *memory     `json:"memory,omitempty"`
	Reopen     *reopen     `json:"reopen,omitempty"`
	Publish    []pubCell   `json:"publish,omitempty"`
	Beside     *beside     `json:"beside,omitempty"`
	Profile    *profile    `json:"profile,omitempty"`
	Gates      []gate      `json:"gates,omitempty"`
}

// gate is one target and what this run reached.
type gate struct {
	What string  `json:"what"`
	Want string  `json:"want"`
	Got  float64 `json:"got"`
	OK   bool    `json:"ok"`
}

func newReport(bench, kind string, samples int) *report {
	return &report{
		Bench: bench, Commit: commit(), Go: runtime.Version(), Kernel: kernel(), CPUs: runtime.NumCPU(),
		FileSystem: kind, Samples: samples,
	}
}

// commit is what git says about the sources, as far as it can be asked: go run leaves no trace of it in the binary.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// finish prints the report. With gate, a target that was missed is an error.
func (r *report) finish(w io.Writer, output string, gated bool) error {
	write := r.writeText
	if output == "json" {
		write = r.writeJSON
	}
	if err := write(w); err != nil {
		return err
	}
	if gated && slices.ContainsFunc(r.Gates, func(g gate) bool { return !g.OK }) {
		return errors.New("a target was missed")
	}
	return nil
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func (r *report) writeText(w io.Writer) error {
	fmt.Fprintf(w, "bench %s   %s, Linux %s, %d cores, %s, commit %s\n",
		r.Bench, r.FileSystem, r.Kernel, r.CPUs, r.Go, r.Commit)
	fmt.Fprintf(w, "raw disk, 4 KiB write + fdatasync, preallocated: before p50 %.0f µs p99 %.0f µs, "+
		"after p50 %.0f µs p99 %.0f µs\n", r.Before.P50, r.Before.P99, r.After.P50, r.After.P99)
	tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', tabwriter.AlignRight)
	r.roundTable(tw)
	r.appendTable(tw)
	r.pubTable(tw)
	r.besideTable(tw)
	if err := tw.Flush(); err != nil {
		return err
	}
	if m := r.Memory; m != nil {
		fmt.Fprintf(w, "\nmemory and disk\n")
		fmt.Fprintf(w, "  per stored message of %d B: %.1f B of heap, %.0f B on disk (%d messages)\n",
			m.MessageBytes, m.HeapPerMessage, m.DiskPerMessage, m.Messages)
		fmt.Fprintf(w, "  idle: 1 group %s RSS, %d groups %s RSS; %s more RSS, %s of disk\n", mib(m.RSSOne), m.Groups,
			mib(m.RSSMany), mib(m.RSSMany-m.RSSOne), mib(m.DiskMany))
		fmt.Fprintf(w, "  per idle group: %.0f B RSS, %.0f B of disk\n", m.RSSPerGroup, m.DiskPerGroup)
	}
	if o := r.Reopen; o != nil {
		fmt.Fprintf(w, "\nreopen after kill -9: %d groups of %d messages of %d B: median %.2f s (%.2f to %.2f)\n",
			o.Groups, o.Messages, o.MessageBytes, o.Seconds.Median, o.Seconds.Min, o.Seconds.Max)
	}
	if p := r.Profile; p != nil {
		p.write(w)
	}
	if len(r.Gates) > 0 {
		fmt.Fprintf(w, "\ntargets\n")
	}
	for _, g := range r.Gates {
		verdict := "reached"
		if !g.OK {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "  %-8s %s: %.2f, wanted %s\n", verdict, g.What, g.Got, g.Want)
	}
	return nil
}

func (r *report) roundTable(tw io.Writer) {
	last := [2]int{}
	for _, row := range r.Rounds {
		if key := [2]int{row.Groups, row.Bytes}; key != last {
			last = key
			fmt.Fprintf(tw, "\nflush rounds: %d dirty, %d B each\tmedian\tmin\tmax\t× one by one\t× 64 goroutines\t\n",
				row.Groups, row.Bytes)
		}
		fmt.Fprintf(tw, "%s\t%.0f µs\t%.0f\t%.0f\t%.2f\t%.2f\t\n", row.Strategy, row.Time.Median, row.Time.Min,
			row.Time.Max, row.Plain, row.Parallel)
	}
}

func (r *report) appendTable(tw io.Writer) {
	last := 0
	for _, row := range r.Appends {
		if row.Groups != last {
			last = row.Groups
			fmt.Fprintf(tw, "\nflushed appends: %d logs, one writer each, %d B\tper second\tmin\tmax\t"+
				"× growing\t× preallocated\t\n", row.Groups, row.Bytes)
		}
		fmt.Fprintf(tw, "%s\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t\n", row.Way, row.Rate.Median, row.Rate.Min,
			row.Rate.Max, row.Plain, row.Reserved)
	}
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
