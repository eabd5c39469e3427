package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// levels is what a node holds at one moment.
type levels struct {
	RSS        int64         `json:"rss"`  // bytes
	Live       int64         `json:"live"` // bytes of the heap that the last collection found in use
	Goroutines int64         `json:"goroutines"`
	Files      int64         `json:"files"` // descriptors
	Conns      int64         `json:"connections"`
	CPU        time.Duration `json:"cpu_ns"` // of the process since its start

	collections int64
}

// over takes what is higher of each; of processor time, the later.
func (l *levels) over(m levels) {
	l.RSS, l.Live = max(l.RSS, m.RSS), max(l.Live, m.Live)
	l.Goroutines, l.Files = max(l.Goroutines, m.Goroutines), max(l.Files, m.Files)
	l.Conns, l.CPU = max(l.Conns, m.Conns), max(l.CPU, m.CPU)
}

// tick is the unit of processor time in /proc: Linux says 100 a second to every process.
const tick = 10 * time.Millisecond

// look reads the levels from the node's metrics and from the system.
func (n *node) look(ctx context.Context) (levels, error) {
	var l levels
	ctx, cancel := context.WithTimeout(ctx, n.answer)
	defer cancel()
	m, err := n.metrics(ctx)
	if err != nil {
		return l, err
	}
	l.Goroutines, l.Conns = int64(m["go_goroutines"]), int64(m["weida_connections_open"])
	l.collections = int64(m["go_gc_duration_seconds_count"])
	// The next collection is due when the heap is twice what the last one left.
	l.Live = int64(m["go_memstats_next_gc_bytes"]) / 2
	proc := filepath.Join("/proc", strconv.Itoa(n.Pid()))
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		return l, err
	}
	l.Files = int64(len(files))
	if l.RSS, err = residentBytes(filepath.Join(proc, "statm")); err != nil {
		return l, err
	}
	l.CPU, err = processorTime(filepath.Join(proc, "stat"))
	return l, err
}

func residentBytes(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0, fmt.Errorf("%s holds %q", path, b)
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

func processorTime(path string) (time.Duration, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name may hold anything
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("%s holds %q", path, b)
	}
	var sum time.Duration
	for _, s := range f[11:13] { // user and system
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(v) * tick
	}
	return sum, nil
}

// metrics reads the series without labels.
func (n *node) metrics(ctx context.Context) (map[string]float64, error) {
	resp, err := n.ask(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read only
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics answered %s", resp.Status)
	}
	m := make(map[string]float64)
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		name, text, ok := strings.Cut(in.Text(), " ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			m[name] = v
		}
	}
	return m, in.Err()
}

// ask sends one request on a connection of its own, so that none is kept that counts as a file of the node.
func (n *node) ask(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, n.admin+path, body)
	if err != nil {
		return nil, err
	}
	req.Close = true
	req.Header.Set("X-Weida", "1")
	return http.DefaultClient.Do(req)
}

// collect makes the node collect its garbage, by requests that it refuses once they are read: it collects by itself
// when its heap has doubled, which on a node with little to do may be minutes after an attack.
func (n *node) collect(ctx context.Context) error {
	from, err := n.look(ctx)
	if err != nil {
		return err
	}
	waste := strings.Repeat(" ", 1<<20)
	for {
		for range 8 {
			resp, err := n.ask(ctx, http.MethodPut, "/v1/queues/waste", strings.NewReader(waste))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			if err := resp.Body.Close(); err != nil {
				return err
			}
			if err != nil {
				return err
			}
		}
		l, err := n.look(ctx)
		if err != nil {
			return err
		}
		if l.collections >= from.collections+2 { // what was in use when the first began is gone after the second
			return nil
		}
	}
}

// healthy asks whether the node is alive and ready.
func (n *node) healthy(ctx context.Context) error {
	if !n.Alive() {
		return fmt.Errorf("the node ended by itself with status %d", n.ExitStatus())
	}
	ctx, cancel := context.WithTimeout(ctx, 2*n.answer)
	defer cancel()
	for _, path := range []string{"/livez", "/readyz"} {
		resp, err := n.ask(ctx, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // read only
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answered %s: %s", path, resp.Status, b)
		}
	}
	return nil
}
