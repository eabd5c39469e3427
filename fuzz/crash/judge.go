package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"weida/fuzz/internal/history"
)

// result is what a run showed.
type result struct {
	o        options
	dir      string
	counts   counts
	begun    map[kind]int
	turned   int // processes on a directory that is not their own that found out
	cuts     int // nodes whose power was cut
	elected  int
	changes  int64
	noticed  time.Duration // when the first violation was seen, from the beginning of the load
	healed   time.Duration // from the last fault until everything was drained
	report   *history.Report
	wrong    []string
	late     []string // what did not come in time after the heal
	out      []string // nodes with flipped bits that take no part
	ill      []string // what the cluster said of itself in the end, though that is not judged: bits were flipped
	troubles []string
}

// late notes what did not happen in time after everything was healed.
func (r *run) late(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lates = append(r.lates, fmt.Sprintf(format, args...))
}

// judge heals, drains, stops and reads everything.
func (r *run) judge() (*result, error) {
	began := time.Now()
	r.recover()
	var ill []string
	if r.o.broken == "" || r.noticed == 0 { // else it is known that something is wrong
		r.history.Note(&history.Healed{})
		r.drainAll(context.Background())
		ill = r.healthy(context.Background())
	} else {
		r.over()
	}
	stop := time.AfterFunc(r.o.heal-min(time.Since(began), r.o.heal), r.over)
	r.moves.Wait()
	stop.Stop()
	r.over()
	healed := time.Since(began)
	total := r.now()
	r.depart()
	var work sync.WaitGroup
	for _, s := range r.seats {
		work.Go(func() {
			if err := r.stop(s); err != nil {
				r.wrong("%v", err)
			}
		})
	}
	work.Wait()
	r.look(history.AtStop, history.Now())
	if err := r.history.Flush(); err != nil {
		return nil, err
	}
	res := r.result(healed)
	res.ill = ill
	res.report = r.history.judge.Finish()
	if res.noticed = r.noticed; res.noticed == 0 {
		res.noticed = r.now() // only the end showed it, if anything did
	}
	return res, r.paint(res, total)
}

// spoiled says whether a bit was flipped.
func (r *run) spoiled() bool {
	for _, s := range r.seats {
		s.mu.Lock()
		flipped := s.flipped
		s.mu.Unlock()
		if flipped {
			return true
		}
	}
	return false
}

func (r *run) result(healed time.Duration) *result {
	c := r.history.counts()
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &result{
		o: r.o, dir: r.dir, counts: c, begun: r.begun, elected: len(r.elected), changes: r.changes.Load(), healed: healed,
		turned: r.turned, wrong: r.problems, late: r.lates, troubles: r.troubles,
	}
	for _, b := range r.bars {
		if b.Kind == powerOff {
			res.cuts += len(b.Nodes)
		}
	}
	for _, s := range r.seats {
		s.mu.Lock()
		if s.out != "" {
			res.out = append(res.out, s.Name+": "+s.out)
		}
		s.mu.Unlock()
	}
	return res
}

// paint writes the picture, and in words what was done when.
func (r *run) paint(res *result, total time.Duration) (err error) {
	var text strings.Builder
	for _, b := range r.bars {
		fmt.Fprintf(&text, "%8.3fs to %8.3fs, scheduled %v %s\n", b.began.Seconds(), b.ended.Seconds(), b.fault,
			b.detail)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "faults"), []byte(text.String()), 0o600); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.dir, "run.svg"))
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	title := fmt.Sprintf("seed %d: %d acknowledged, %d delivered, %s, %d leader changes, %d violations", r.o.seed,
		res.counts.acked, res.counts.delivered, faultsOf(res.begun), res.elected, res.violations())
	return draw(f, title, total, r.names, r.samples, r.elected, r.bars)
}

// failed says that something is wrong.
func (res *result) failed() bool { return res.violations()+len(res.late) > 0 }

// violations counts what contradicts what was acknowledged.
func (res *result) violations() int {
	return len(res.wrong) + len(res.report.Safety) + len(res.report.Liveness)
}

// table says what a run did.
func (res *result) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	c := res.counts
	row("seed, nodes, queues, file system\t%d, %d, %d, %s", res.o.seed, res.o.nodes, res.o.queues, res.o.fs)
	row("messages sent\t%d", c.sent)
	row("acknowledged, of these below request\t%d, %d", c.acked, c.below)
	row("refused, no answer\t%d, %d", c.refused, c.unknown)
	row("delivered, settled\t%d, %d", c.delivered, c.settled)
	row("faults\t%s", faultsOf(res.begun))
	row("nodes whose power was cut\t%d", res.cuts)
	if res.begun[rollback]+res.begun[emptied] > 0 {
		row("processes turned away from a directory not their own\t%d", res.turned)
	}
	row("leader changes, changes by the administrator\t%d, %d", res.elected, res.changes)
	row("healed and drained after\t%v", res.healed.Round(10*time.Millisecond))
	for _, out := range res.out {
		row("out with a flipped bit\t%.200s", out)
	}
	for _, what := range res.ill {
		row("not well again after a flipped bit\t%.200s", what)
	}
	row("nodes that ended or started wrongly\t%d", len(res.wrong))
	row("not in time after the heal\t%d", len(res.late)+len(res.report.Liveness))
	row("violations\t%d", res.violations())
	_ = w.Flush() // memory takes everything
	return b.String() + "\n" + res.report.Table()
}
