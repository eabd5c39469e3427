package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// window is a stretch of time, from including to excluding.
type window struct{ from, to time.Time }

// watched is what was seen of the node in a window.
type watched struct {
	window
	most   levels  // the highest
	used   float64 // processors that the node took
	others float64 // processors that neither the node nor this command nor its attacker took
}

// othersMax is how many processors others may take in a window whose times count.
const othersMax = 0.4

func (w *watched) quiet() bool { return w.others <= othersMax }

// watch looks at the node for a while, while newcomers come. With p, the node is under attack by f: what cannot be had
// is counted there.
func (r *run) watch(ctx context.Context, d time.Duration, p *played, f *attacker) (w watched, _ error) {
	first, err := r.node.look(ctx)
	if err != nil && p == nil {
		return w, err
	}
	w.from, w.most = time.Now(), first
	elsewhere, err := r.elsewhere(f)
	if err != nil {
		return w, err
	}
	seen := 0
	for time.Since(w.from) < d {
		select {
		case <-time.After(min(d/4, 250*time.Millisecond)):
		case <-ctx.Done():
			return w, ctx.Err()
		}
		m, err := r.node.look(ctx)
		if err != nil && (p == nil || !r.node.Alive()) {
			return w, err
		}
		if err == nil { // a scrape more than the admin side takes at a time is refused
			w.most.over(m)
			seen++
		}
		err = r.good.newcomer(ctx, p == nil || !p.attack.fills)
		switch {
		case p == nil && err != nil:
			return w, err
		case p == nil:
		case err != nil:
			p.refused++
			fallthrough
		default:
			p.newcomers++
		}
	}
	w.to = time.Now()
	if seen == 0 && p != nil {
		p.problems = append(p.problems, errors.New("the admin side answered nobody else"))
	}
	after, err := r.elsewhere(f)
	took := w.to.Sub(w.from).Seconds()
	w.used = (w.most.CPU - first.CPU).Seconds() / took
	w.others = (after - elsewhere).Seconds() / took
	return w, err
}

// elsewhere is the processor time of this machine that went to others than the node, this command and its attacker.
func (r *run) elsewhere(f *attacker) (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var sum time.Duration
	for i, s := range fields[1:9] { // user, nice, system, idle, waiting, interrupts, soft interrupts, stolen
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, err
		}
		if i != 3 && i != 4 {
			sum += time.Duration(v) * tick
		}
	}
	ours := []int{os.Getpid(), r.node.Pid()}
	if f != nil {
		ours = append(ours, f.cmd.Process.Pid)
	}
	for _, pid := range ours {
		t, err := processorTime(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		sum -= t
	}
	return sum, nil
}

// awaitQuiet waits until others leave the machine alone, but no longer than the run's patience.
func (r *run) awaitQuiet(ctx context.Context) error {
	const glance = 250 * time.Millisecond
	for until := time.Now().Add(r.o.patience); time.Now().Before(until); {
		before, err := r.elsewhere(nil)
		if err != nil {
			return err
		}
		select {
		case <-time.After(glance):
		case <-ctx.Done():
			return ctx.Err()
		}
		after, err := r.elsewhere(nil)
		if err != nil || float64(after-before) <= othersMax/2*float64(glance) {
			return err
		}
	}
	return nil
}
