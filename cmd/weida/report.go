package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

// pubReport prints results in order of sequence and remembers the worst.
type pubReport struct {
	queue string
	json  bool
	bar   *bar
	start time.Time
	out   *bufio.Writer

	mu      sync.Mutex
	next    uint64                   // guarded by mu; sequence to print next
	early   map[uint64]client.Result // guarded by mu
	counts  map[client.Outcome]int   // guarded by mu
	last    client.Result            // guarded by mu
	failure error                    // guarded by mu; of printing
}

func newPubReport(queue string, json bool, total int64) *pubReport {
	return &pubReport{
		queue: queue, json: json, bar: newBar("published", total), start: time.Now(),
		out: bufio.NewWriterSize(os.Stdout, 64<<10), next: 1,
		early: make(map[uint64]client.Result), counts: make(map[client.Outcome]int),
	}
}

func (r *pubReport) result(res client.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.early[res.Seq] = res
	for {
		res, ok := r.early[r.next]
		if !ok {
			return
		}
		delete(r.early, r.next)
		r.next++
		r.counts[res.Outcome]++
		r.last = res
		if err := r.print(res); err != nil && r.failure == nil {
			r.failure = err
		}
	}
}

type pubLine struct {
	Queue     string        `json:"queue"`
	Seq       uint64        `json:"seq"`
	Offset    *uint64       `json:"offset,omitempty"`
	Term      *uint64       `json:"term,omitempty"`
	Outcome   string        `json:"outcome"`
	Evidence  *evidenceLine `json:"evidence,omitempty"`
	Code      string        `json:"code,omitempty"`
	Detail    string        `json:"detail,omitempty"`
	LatencyMS float64       `json:"latency_ms"`
}

type evidenceLine struct {
	Level   string `json:"level"`
	Flushed *bool  `json:"flushed,omitempty"`
	N       uint32 `json:"n,omitempty"`
}

func (r *pubReport) print(res client.Result) error {
	if !r.json {
		if res.Outcome != client.OK {
			fmt.Fprintf(os.Stderr, "%s: message %d %s: %v\n", r.queue, res.Seq, res.Outcome, res.Err)
		}
		return nil
	}
	line := pubLine{
		Queue: r.queue, Seq: res.Seq, Outcome: string(res.Outcome),
		LatencyMS: float64(res.Latency.Microseconds()) / 1000,
	}
	if res.Committed {
		line.Offset, line.Term = &res.Offset, &res.Term
	}
	if !res.Evidence.IsZero() {
		line.Evidence = &evidenceLine{Level: res.Evidence.Level()}
		if res.Evidence.Replicas > 0 {
			flushed := res.Evidence.Persistence == wire.Flushed
			line.Evidence.Flushed = &flushed
		}
		if res.Evidence.Replicas > 1 {
			line.Evidence.N = res.Evidence.Replicas
		}
	}
	if res.Err != nil {
		line.Code, line.Detail = fmt.Sprintf("E%d", uint64(res.Err.Code)), res.Err.Error()
	}
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = r.out.Write(append(b, '\n'))
	return err
}

// end prints the sum and returns the status of the worst outcome.
func (r *pubReport) end(err error) error {
	r.bar.done()
	r.mu.Lock()
	defer r.mu.Unlock()
	total := 0
	for _, n := range r.counts {
		total += n
	}
	if !r.json && r.counts[client.OK] > 0 {
		fmt.Fprintln(r.out, r.sum(total))
	}
	err = errors.Join(err, r.failure, r.out.Flush())
	worst := 0
	switch {
	case r.counts[client.Indeterminate] > 0:
		worst = statusIndeterminate
	case r.counts[client.BelowRequest] > 0:
		worst = statusBelow
	case r.counts[client.Refused] > 0:
		worst = statusRefused
	}
	if worst > 0 {
		return &exitError{worst, err}
	}
	return err
}

func (r *pubReport) sum(total int) string {
	took := time.Since(r.start)
	if total == 1 {
		if !r.last.Committed {
			return fmt.Sprintf("%s  %s · %s", r.queue, words(r.last.Evidence), short(r.last.Latency))
		}
		return fmt.Sprintf("%s/%d  %s · term %d · %s", r.queue, r.last.Offset, words(r.last.Evidence),
			r.last.Term, short(r.last.Latency))
	}
	const form = "%s  %d messages: %d ok, %d refused, %d below request, %d indeterminate · " +
		"the last: %s · %s, %.0f/s"
	return fmt.Sprintf(form, r.queue, total, r.counts[client.OK], r.counts[client.Refused], r.counts[client.BelowRequest],
		r.counts[client.Indeterminate], words(r.last.Evidence), short(took), float64(total)/took.Seconds())
}

func words(e wire.Evidence) string { return strings.ReplaceAll(e.String(), ":", " ") }

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
