package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
)

// pubCell is one number of queues with one size of bodies.
type pubCell struct {
	Queues      int      `json:"queues"`
	Bytes       int      `json:"bytes"`
	Replicas    int      `json:"replicas"` // of each queue, on as many nodes
	InFlight    int      `json:"in_flight"`
	Window      int      `json:"in_flight_per_queue"`
	Connections int      `json:"connections"`
	Rows        []pubRow `json:"rows"`
	// Framed is exchanges per second over QUIC with frames of these sizes and nothing behind, Calls the same by callers
	// that wait for their answers one by one; Bulk is MB/s of one stream.
	Framed       sample  `json:"quic_framed_per_second"`
	FramedServer float64 `json:"quic_framed_server_us"`
	FramedClient float64 `json:"quic_framed_client_us"`
	Calls        sample  `json:"quic_calls_per_second"`
	Bulk         sample  `json:"quic_bulk_mb_per_second"`
	// Raw and RawSmall are fdatasync calls per second of one file: 4 KiB each, and 256 bytes.
	Raw      sample `json:"fdatasync_per_second"`
	RawSmall sample `json:"fdatasync_256_per_second"`

	framed, calls, bulk []float64
	framedUse           totals
}

// pubRow is one level of evidence.
type pubRow struct {
	Want   string  `json:"want"`
	Rate   sample  `json:"per_second"`
	MB     float64 `json:"mb_per_second"`
	Broker float64 `json:"broker_cpu_us"` // per message
	// Nodes is Broker by node, where there are several.
	Nodes  []float64 `json:"node_cpu_us,omitempty"`
	Client float64   `json:"client_cpu_us"` // per message
	Others float64   `json:"others_cpu"`    // the share of the machine's CPU time that other programs had
	// PerFlush is messages per flush round of the node; PerDeviceFlush per flush of the device, whoever caused it.
	PerFlush       *float64 `json:"messages_per_flush"`
	PerDeviceFlush *float64 `json:"messages_per_device_flush"`
	// Framed, Calls, Bulk and Raw are the rate as a share of the probes of the same turns.
	Framed float64   `json:"times_quic_framed"`
	Calls  float64   `json:"times_quic_calls"`
	Bulk   float64   `json:"times_quic_bulk"`
	Raw    float64   `json:"times_fdatasync"`
	RSS    int64     `json:"broker_rss_bytes"`
	Closed latencies `json:"closed_loop"`
	Open   openRow   `json:"open_loop"`
}

// openRow is a row's open loop. Latency is measured from the time when a message was to be sent.
type openRow struct {
	Offered  float64   `json:"offered_per_second"`
	Reached  float64   `json:"per_second"`
	PerFlush *float64  `json:"messages_per_flush"`
	Broker   float64   `json:"broker_cpu_us"` // per message
	Client   float64   `json:"client_cpu_us"` // per message
	Others   float64   `json:"others_cpu"`
	Late     float64   `json:"sent_late"` // the share that was sent more than a millisecond after its time
	Latency  latencies `json:"latency"`
}

func (r *report) pubTable(tw io.Writer) {
	for _, c := range r.Publish {
		fmt.Fprintf(tw, "\n%s%s, %d B, %d in flight, %s\tmsgs/s\tmin\tmax\tMB/s\tmsgs/flush\t/device flush\tbroker µs\t"+
			"client µs\tothers\t× framed\t× calls\t× bulk\t× fdatasync\tRSS\t\n", plural(c.Queues, "queue"), c.factor(), c.Bytes,
			c.InFlight,
			plural(c.Connections, "connection"))
		for _, row := range c.Rows {
			fmt.Fprintf(tw, "%s\t%.0f\t%.0f\t%.0f\t%.1f\t%s\t%s\t%.1f\t%.1f\t%.0f %%\t%.2f\t%.2f\t%.2f\t%.1f\t%s\t\n", row.Want,
				row.Rate.Median, row.Rate.Min, row.Rate.Max, row.MB, maybe(row.PerFlush), maybe(row.PerDeviceFlush),
				row.Broker, row.Client, 100*row.Others, row.Framed, row.Calls, row.Bulk, row.Raw, mib(row.RSS))
		}
		probeLine(tw, "QUIC framed", c.Framed, c.Framed.Median*float64(c.Bytes)/1e6,
			fmt.Sprintf("%.1f\t%.1f", c.FramedServer, c.FramedClient))
		probeLine(tw, "QUIC calls", c.Calls, c.Calls.Median*float64(c.Bytes)/1e6, "\t")
		fmt.Fprintf(tw, "QUIC bulk\t\t\t\t%.1f\t%s\t\t\t\t\t\t\t\t\t\t\n", c.Bulk.Median, spread(c.Bulk))
		probeLine(tw, "fdatasync, 4 KiB", c.Raw, c.Raw.Median*probeBlock/1e6, "\t")
		probeLine(tw, "fdatasync, 256 B", c.RawSmall, c.RawSmall.Median*256/1e6, "\t")
		fmt.Fprintf(tw, "\nlatency in ms\toffered/s\treached/s\tp50\tp90\tp99\tp99.9\tmax\tlate\tmsgs/flush\t"+
			"broker µs\tclient µs\tothers\t\n")
		for _, row := range c.Rows {
			o := &row.Open
			latencyLine(tw, row.Want+", open loop", fmt.Sprintf("%.0f", o.Offered), o.Reached, o.Latency,
				fmt.Sprintf("%.1f %%\t%s\t%.1f\t%.1f\t%.0f %%", 100*o.Late, maybe(o.PerFlush), o.Broker, o.Client,
					100*o.Others))
		}
		for _, row := range c.Rows {
			latencyLine(tw, row.Want+", closed loop", "", row.Rate.Median, row.Closed, "\t\t\t\t")
		}
		c.processorTable(tw)
	}
}

// processorTable says what a message of the closed loop costs each process, where the broker is several.
func (c *pubCell) processorTable(tw io.Writer) {
	if c.Replicas <= 1 {
		return
	}
	fmt.Fprint(tw, "\nCPU µs a message\tall")
	for i := range c.Replicas {
		fmt.Fprintf(tw, "\t%s", nodeKey(i))
	}
	fmt.Fprint(tw, "\tclient\t\n")
	for _, row := range c.Rows {
		fmt.Fprintf(tw, "%s\t%.1f", row.Want, row.Broker+row.Client)
		for _, us := range row.Nodes {
			fmt.Fprintf(tw, "\t%.1f", us)
		}
		fmt.Fprintf(tw, "\t%.1f\t\n", row.Client)
	}
}

func probeLine(tw io.Writer, name string, s sample, mb float64, micros string) {
	fmt.Fprintf(tw, "%s\t%.0f\t%.0f\t%.0f\t%.1f\t\t\t%s\t\t\t\t\t\t\t\n", name, s.Median, s.Min, s.Max, mb, micros)
}

func latencyLine(tw io.Writer, name, offered string, reached float64, l latencies, late string) {
	fmt.Fprintf(tw, "%s\t%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t\n", name, offered, reached, l.P50, l.P90, l.P99,
		l.P999, l.Max, late)
}

func maybe(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *v)
}

func spread(s sample) string { return fmt.Sprintf("%.0f to %.0f", s.Min, s.Max) }

// factor says how many replicas there are, if there are several.
func (c *pubCell) factor() string {
	if c.Replicas <= 1 {
		return ""
	}
	return fmt.Sprintf(" at factor %d", c.Replicas)
}

// replicatedAims are messages per fdatasync call of the raw disk, by number of queues.
var replicatedAims = map[int]float64{1: 25, 16: 13, 128: 8, 1000: 5}

// judgeReplicated compares the rows of factor 3 with what they aim at.
func (r *report) judgeReplicated() {
	for i := range r.Publish {
		c := &r.Publish[i]
		aim, ok := replicatedAims[c.Queues]
		if !ok || c.Replicas != 3 || c.Bytes != 256 || c.InFlight < inFlight {
			continue
		}
		for k := range c.Rows {
			r.atLeast(fmt.Sprintf("%s, factor 3, 256 B, %s: messages per raw fdatasync", plural(c.Queues, "queue"),
				c.Rows[k].Want), c.Rows[k].Raw, aim)
		}
	}
}

// judgePub compares the run with the targets that the broker is built to.
func (r *report) judgePub() {
	row := func(queues, bytes int) *pubRow {
		for i := range r.Publish {
			c := &r.Publish[i]
			if c.Replicas > 1 {
				continue
			}
			for k := range c.Rows {
				if c.Queues == queues && c.Bytes == bytes && c.InFlight == inFlight && c.Rows[k].Want == "stored:flushed" {
					return &c.Rows[k]
				}
			}
		}
		return nil
	}
	one := row(1, 256)
	if one != nil {
		r.atLeast("1 queue, 256 B, stored:flushed: messages per raw fdatasync", one.Raw, 30)
		r.atLeast("1 queue, 256 B, stored:flushed: share of QUIC calls", one.Calls, 0.4)
	}
	if large := row(1, 16<<10); large != nil {
		r.atLeast("1 queue, 16 KiB, stored:flushed: share of QUIC bulk", large.Bulk, 0.75)
	}
	if many := row(128, 256); one != nil && many != nil {
		r.atLeast("128 queues, 256 B, stored:flushed: share of 1 queue", many.Rate.Median/one.Rate.Median, 0.5)
	}
}

// profile is where the two processes spent their time, in a closed pass of its own.
type profile struct {
	Row    string   `json:"row"`
	Rate   float64  `json:"per_second"`
	Broker []string `json:"broker"`
	Client []string `json:"client"`
}

// profile runs one more closed pass of a row with profiles on, and reads their first lines.
func (c *cellRun) profile(ctx context.Context, w *rowRun) (_ *profile, err error) {
	clientFile := c.o.profile + ".client"
	f, err := os.Create(clientFile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	files, err := w.node.profile(c.o.profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	load := c.load(w, 0)
	load.measure = c.sz.open
	figures, err := load.run(ctx, func() error { return nil })
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	if err := w.node.profiled(); err != nil {
		return nil, err
	}
	p := &profile{
		Row:  fmt.Sprintf("%s, %d B, %v", plural(c.cell.Queues, "queue"), c.cell.Bytes, w.want),
		Rate: figures.rate(),
	}
	if p.Broker, err = topTen(files...); err != nil {
		return nil, err
	}
	p.Client, err = topTen(clientFile)
	return p, err
}

// topTen is the beginning of what `go tool pprof -top` prints of the files together.
func topTen(files ...string) ([]string, error) {
	out, err := exec.Command("go", append([]string{"tool", "pprof", "-top", "-nodecount=10"}, files...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go tool pprof -top %s: %w", strings.Join(files, " "), err)
	}
	var lines []string
	for l := range strings.Lines(string(out)) {
		if !strings.HasPrefix(l, "File:") && !strings.HasPrefix(l, "Build ID:") && !strings.HasPrefix(l, "Type:") {
			lines = append(lines, strings.TrimRight(l, "\n"))
		}
	}
	return lines, nil
}

func (p *profile) write(w io.Writer) {
	fmt.Fprintf(w, "\nprofile of %s (%.0f msgs/s while it was taken)\n", p.Row, p.Rate)
	for _, side := range []struct {
		name  string
		lines []string
	}{{"broker", p.Broker}, {"client", p.Client}} {
		fmt.Fprintf(w, "  %s\n", side.name)
		for _, l := range side.lines {
			fmt.Fprintf(w, "    %s\n", l)
		}
	}
}
