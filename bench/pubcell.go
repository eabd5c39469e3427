package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"weida/broker/client"
	"weida/broker/wire"
)

// cellRun measures one number of queues with one size of bodies: a node for each level of evidence, a server for the
// QUIC probes, and the raw disk, all taking turns, so that a machine that changes its mood does so for all.
type cellRun struct {
	o    pubOptions
	sz   pubSizes
	dir  string
	cell pubCell
	quic *quicProbe
	raw  map[int][]float64 // by size of the writes
	rows []*rowRun
}

// rowRun is one level of evidence.
type rowRun struct {
	node    *nodeProcess
	clients []*client.Client
	want    wire.Want
	meter   meter
	rates   []float64
	closed  *hdrhistogram.Histogram
	row     pubRow
}

func (r *report) benchPub(ctx context.Context, dir string, o pubOptions, sz pubSizes, queues, size int) (err error) {
	connections := o.connections
	if connections == 0 {
		connections = (queues + streamsPerConnection - 1) / streamsPerConnection
	}
	connections = min(connections, queues)
	c := &cellRun{o: o, sz: sz, dir: filepath.Join(dir, fmt.Sprintf("pub-%d-%d", queues, size)), cell: pubCell{
		Queues: queues, Bytes: size, Replicas: o.replicas, Connections: connections, Window: max(1, o.inFlight/queues),
	}, raw: make(map[int][]float64)}
	c.cell.InFlight = c.cell.Window * queues
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := c.start(ctx); err != nil {
		return err
	}
	for turn := range sz.passes + 1 {
		if err := c.turn(ctx, turn > 0); err != nil { // the first is warm-up
			return err
		}
	}
	c.summarize()
	for _, w := range c.rows {
		if err := c.openLoop(ctx, w); err != nil {
			return fmt.Errorf("%v, open loop: %w", w.want, err)
		}
		if w.row.RSS, err = w.node.residentSize(); err != nil {
			return err
		}
		if o.profile != "" && profiled(o, queues, size, w.want.String()) {
			if r.Profile, err = c.profile(ctx, w); err != nil {
				return err
			}
		}
		c.cell.Rows = append(c.cell.Rows, w.row)
	}
	r.Publish = append(r.Publish, c.cell)
	return nil
}

// start brings up the server of the QUIC probes, and a node for each level.
func (c *cellRun) start(ctx context.Context) (err error) {
	c.quic, err = startQUIC(filepath.Join(c.dir, "quic"), c.cell.Bytes, c.cell.Connections, c.cell.Queues, c.cell.Window)
	if err != nil {
		return err
	}
	for i, name := range c.o.want {
		w := &rowRun{closed: newLatency(), row: pubRow{Want: name}}
		if w.want, err = wire.ParseWant(name); err != nil {
			return err
		}
		if w.node, err = startNodes(filepath.Join(c.dir, fmt.Sprint("node-", i)), c.cell.Queues, c.o.replicas); err != nil {
			return err
		}
		c.rows = append(c.rows, w)
		w.meter = meter{pids: w.node.pids(), dir: c.dir, rounds: w.node.rounds}
		for range c.cell.Connections {
			k, err := client.Dial(ctx, w.node.o)
			if err != nil {
				return err
			}
			w.clients = append(w.clients, k)
		}
	}
	return nil
}

func (c *cellRun) end() error {
	var errs []error
	if c.quic != nil {
		errs = append(errs, c.quic.end())
	}
	for _, w := range c.rows {
		for _, k := range w.clients {
			k.Close()
		}
		errs = append(errs, w.node.end())
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// rawSizes are the writes of the raw disk that rows are compared with.
var rawSizes = []int{probeBlock, 256}

// turn measures everything once; warm-up counts nowhere.
func (c *cellRun) turn(ctx context.Context, counts bool) error {
	for _, size := range rawSizes {
		p, err := probeWrites(c.dir, "probe", size, c.sz.turnWrites)
		if err != nil {
			return err
		}
		if counts {
			c.raw[size] = append(c.raw[size], p.Rate)
		}
	}
	if err := c.turnQUIC(ctx, counts); err != nil {
		return fmt.Errorf("QUIC probe: %w", err)
	}
	for _, w := range c.rows {
		f, err := c.load(w, 0).run(ctx, w.meter.read)
		if err != nil {
			return fmt.Errorf("%v: %w", w.want, err)
		}
		if counts {
			w.rates = append(w.rates, f.rate())
			w.closed.Merge(f.latency)
			w.meter.add(f.messages)
		}
	}
	return nil
}

func (c *cellRun) turnQUIC(ctx context.Context, counts bool) error {
	m := meter{pids: []int{c.quic.pid()}, dir: c.dir}
	f, err := c.quic.framed(ctx, c.sz.piece, m.read)
	if err != nil {
		return err
	}
	calls, err := c.quic.calls(ctx, c.sz.piece)
	if err != nil {
		return err
	}
	bulk, err := c.quic.bulk(ctx, c.sz.piece)
	if err != nil || !counts {
		return err
	}
	c.cell.framed = append(c.cell.framed, f.rate())
	c.cell.calls = append(c.cell.calls, calls)
	c.cell.bulk = append(c.cell.bulk, bulk/1e6)
	c.cell.framedUse.add(m.used(), f.messages)
	return nil
}

// load is a pass of a row; rate 0 is the closed loop.
func (c *cellRun) load(w *rowRun, rate float64) *loadSpec {
	s := &loadSpec{
		clients: w.clients, queues: c.cell.Queues, want: w.want, body: make([]byte, c.cell.Bytes),
		window: c.cell.Window, ramp: c.sz.ramp, measure: c.sz.measure,
	}
	for i := range s.body {
		s.body[i] = byte(i*7 + 1)
	}
	if rate > 0 {
		s.rate, s.window, s.measure = rate, 0, c.sz.open // as much in flight as node and client allow
	}
	return s
}

func (c *cellRun) summarize() {
	cell := &c.cell
	cell.Framed, cell.Calls, cell.Bulk = summarize(cell.framed), summarize(cell.calls), summarize(cell.bulk)
	cell.FramedServer, cell.FramedClient = cell.framedUse.perMessage()
	cell.Raw, cell.RawSmall = summarize(c.raw[probeBlock]), summarize(c.raw[256])
	for _, w := range c.rows {
		w.row.Rate = summarize(w.rates)
		w.row.MB = w.row.Rate.Median * float64(cell.Bytes) / 1e6
		w.row.Broker, w.row.Client = w.meter.total.perMessage()
		w.row.Nodes = w.meter.total.byNode()
		w.row.Others = w.meter.total.others()
		w.row.PerFlush, w.row.PerDeviceFlush = w.meter.total.perFlush()
		w.row.Framed = w.row.Rate.Median / cell.Framed.Median
		w.row.Calls = w.row.Rate.Median / cell.Calls.Median
		w.row.Bulk = w.row.MB / cell.Bulk.Median
		w.row.Raw = w.row.Rate.Median / cell.Raw.Median
		w.row.Closed = quantilesOf(w.closed)
	}
}

func (c *cellRun) openLoop(ctx context.Context, w *rowRun) error {
	rate := c.o.rate
	if rate == 0 {
		rate = w.row.Rate.Median / 2
	}
	m := meter{pids: w.node.pids(), dir: c.dir, rounds: w.node.rounds}
	f, err := c.load(w, rate).run(ctx, m.read)
	if err != nil {
		return err
	}
	m.add(f.messages)
	w.row.Open = openRow{
		Offered: rate, Reached: f.rate(), Latency: quantilesOf(f.latency),
		Late: float64(f.late) / max(1, float64(f.messages)), Others: m.total.others(),
	}
	w.row.Open.Broker, w.row.Open.Client = m.total.perMessage()
	w.row.Open.PerFlush, _ = m.total.perFlush()
	return nil
}

// profiled says whether the profile is of that row: the one of the first target if it is measured, else the last.
func profiled(o pubOptions, queues, size int, want string) bool {
	if slices.Contains(o.queues, 1) && slices.Contains(o.bytes, 256) && slices.Contains(o.want, "stored:flushed") {
		return queues == 1 && size == 256 && want == "stored:flushed"
	}
	return queues == o.queues[len(o.queues)-1] && size == o.bytes[len(o.bytes)-1] && want == o.want[len(o.want)-1]
}

func newLatency() *hdrhistogram.Histogram { return hdrhistogram.New(1, latencyMax, latencyDigits) }

// latencies are quantiles in milliseconds.
type latencies struct {
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p99_9_ms"`
	Max  float64 `json:"max_ms"`
	N    int64   `json:"n"`
}

func quantilesOf(h *hdrhistogram.Histogram) latencies {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e3 }
	return latencies{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1e3, N: h.TotalCount()}
}
