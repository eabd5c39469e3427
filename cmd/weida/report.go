package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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
	first uint64 // sequence of the first message
	// number is what a sequence is called: with a producer id it goes on from one `pub` to the next, without it
	// counts the messages of this one.
	number string
	bar    *bar
	now    func() time.Time
	start  time.Time
	out    *bufio.Writer // of standard output
	talk   io.Writer     // standard error

	mu     sync.Mutex
	next   uint64                   // guarded by mu; sequence to print next
	early  map[uint64]client.Result // guarded by mu
	counts map[client.Outcome]int   // guarded by mu
	last   client.Result            // guarded by mu
	// evidence of the last message that has some; guarded by mu
	evidence wire.Evidence
	alike    alike           // guarded by mu; text only
	told     map[string]bool // guarded by mu; the texts of errors that were told, at most toldMax
	failure  error           // guarded by mu; of printing

	stop  chan struct{}
	ended sync.WaitGroup
}

// alike are messages one after another that ended in the same way.
type alike struct {
	first, last uint64
	outcome     client.Outcome
	text        string // "" is none
	since       time.Time
}

// toldMax bounds the memory of what was told.
const toldMax = 64

// alikeMax is how long a line may be held back to count what is like it.
const alikeMax = time.Second

func newPubReport(queue string, json bool, total int64, first uint64) *pubReport {
	return &pubReport{
		queue: queue, json: json, first: first, number: "message",
		bar: newBar("published", total), now: time.Now, start: time.Now(),
		out: bufio.NewWriterSize(os.Stdout, 64<<10), talk: os.Stderr, next: first,
		early: make(map[uint64]client.Result), counts: make(map[client.Outcome]int), told: make(map[string]bool),
		stop: make(chan struct{}),
	}
}

// numbered says by which producer id, or none, the messages are numbered.
func (r *pubReport) numbered(producer string) {
	if producer != "" {
		r.number = "sequence"
	}
}

// begin shows what comes as it comes, until end.
func (r *pubReport) begin() { r.ended.Go(r.run) }

// reportDelay is how long an answer may wait for others to share a write with.
const reportDelay = 50 * time.Millisecond

func (r *pubReport) run() {
	tick := time.NewTicker(reportDelay)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.show()
		case <-r.stop:
			return
		}
	}
}

func (r *pubReport) show() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alike.text != "" && r.now().Sub(r.alike.since) >= alikeMax {
		r.flushAlike()
	}
	if err := r.out.Flush(); err != nil && r.failure == nil {
		r.failure = err
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
		if !res.Evidence.IsZero() {
			r.evidence = res.Evidence
		}
		if err := r.print(res); err != nil && r.failure == nil {
			r.failure = err
		}
	}
}

// pubLine is one result as JSON. All fields stand always, but for the offset, which is there once it is committed.
type pubLine struct {
	Queue     string        `json:"queue"`
	Seq       uint64        `json:"seq"`
	Offset    *uint64       `json:"offset,omitempty"`
	Term      uint64        `json:"term"` // 0 until committed
	Outcome   string        `json:"outcome"`
	Evidence  *evidenceLine `json:"evidence"`
	Code      string        `json:"code"`
	Detail    string        `json:"detail"`
	LatencyMS float64       `json:"latency_ms"`
}

type evidenceLine struct {
	Level   string `json:"level"`
	Flushed *bool  `json:"flushed,omitempty"`
	N       uint32 `json:"n,omitempty"`
}

func (r *pubReport) print(res client.Result) error {
	if res.Err != nil && len(r.told) < toldMax {
		r.told[res.Err.Error()] = true
	}
	if !r.json {
		r.printText(res)
		return nil
	}
	line := pubLine{
		Queue: r.queue, Seq: res.Seq, Outcome: string(res.Outcome),
		LatencyMS: float64(res.Latency.Microseconds()) / 1000,
	}
	if res.Committed {
		line.Offset, line.Term = &res.Offset, res.Term
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

// printText tells what did not end well; what ends alike is told once, with a count.
func (r *pubReport) printText(res client.Result) {
	if res.Outcome == client.OK {
		r.flushAlike()
		return
	}
	a, text, now := &r.alike, res.Err.Error(), r.now()
	if a.text != text || a.outcome != res.Outcome {
		r.flushAlike()
		*a = alike{first: res.Seq, outcome: res.Outcome, text: text, since: now}
	}
	a.last = res.Seq
	if now.Sub(a.since) >= alikeMax {
		r.flushAlike()
	}
}

func (r *pubReport) flushAlike() {
	a := r.alike
	r.alike = alike{}
	switch {
	case a.text == "":
	case a.first == a.last:
		fmt.Fprintf(r.talk, "%s: %s %d %s: %s\n", r.queue, r.number, a.first, a.outcome, a.text)
	default:
		of := ""
		if r.number != "message" {
			of = r.number + "s "
		}
		fmt.Fprintf(r.talk, "%s: %d messages, %s%d to %d, %s: %s\n", r.queue, a.last-a.first+1, of, a.first, a.last,
			a.outcome, a.text)
	}
}

// end prints the sum and returns the status of the worst outcome.
func (r *pubReport) end(err error) error {
	r.bar.done()
	close(r.stop)
	r.ended.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushAlike()
	total := 0
	for _, n := range r.counts {
		total += n
	}
	if !r.json && r.counts[client.OK] > 0 {
		fmt.Fprintln(r.out, r.sum(total))
	}
	err = errors.Join(r.untold(err), r.failure, r.out.Flush())
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

// untold is what of err no line has said yet, each thing once.
func (r *pubReport) untold(err error) error {
	var left []error
	for _, e := range flat(err) {
		cause := e
		var unsent *unsentError
		if errors.As(e, &unsent) {
			cause = unsent.err
		}
		if r.known(cause) {
			if unsent == nil {
				continue
			}
			e = errors.New(unsent.what())
		}
		r.told[cause.Error()] = true
		left = append(left, e)
	}
	return errors.Join(left...)
}

// known says whether a line spoke of err: as it is, or as the reason why messages are indeterminate.
func (r *pubReport) known(err error) bool {
	for text := range r.told {
		if strings.Contains(text, err.Error()) {
			return true
		}
	}
	return false
}

// distinct joins errors, each text once.
func distinct(errs ...error) error {
	var left []error
	for _, e := range flat(errors.Join(errs...)) {
		if !slices.ContainsFunc(left, func(l error) bool { return l.Error() == e.Error() }) {
			left = append(left, e)
		}
	}
	return errors.Join(left...)
}

// flat takes joined errors apart.
func flat(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flat(e)...)
	}
	return all
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
		r.counts[client.Indeterminate], words(r.evidence), short(took), float64(total)/took.Seconds())
}

func words(e wire.Evidence) string { return strings.ReplaceAll(e.String(), ":", " ") }

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
