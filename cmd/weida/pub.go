package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/client"
	"weida/broker/wire"
)

// pubFlags are the flags of `pub`.
type pubFlags struct {
	file, lines, want string
	count             int
	rate              float64
	json              bool
}

func newPub() *cobra.Command {
	var f pubFlags
	cmd := &cobra.Command{
		Use:   "pub QUEUE [TEXT|-]",
		Short: "publish messages and print the evidence of each",
		Long: "Publishes TEXT, standard input (-), a file as one message (--file) or each line of a file as a message\n" +
			"(--lines; a line's end is not part of it). The answer is the evidence that was achieved, which covers\n" +
			"what was asked for, or the reason why not.",
		Example: "  weida pub demo hello --want stored:flushed\n  weida pub demo --lines orders.txt -o json",
		Args:    cobra.RangeArgs(1, 2),
	}
	cmd.Flags().StringVar(&f.file, "file", "", "publish the `FILE` as one message")
	cmd.Flags().StringVar(&f.lines, "lines", "", "publish each line of the `FILE`, - for standard input")
	cmd.Flags().StringVar(&f.want, "want", "stored:flushed",
		"`EVIDENCE`: accepted, stored:written, stored:flushed, replicated:N[:flushed]")
	cmd.Flags().IntVar(&f.count, "count", 1, "publish TEXT `N` times")
	cmd.Flags().Float64Var(&f.rate, "rate", 0, "messages per second at most; 0 is no limit")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if f.json, err = output(); err != nil {
			return err
		}
		return pub(cmd, args, f)
	}
	return cmd
}

func pub(cmd *cobra.Command, args []string, f pubFlags) error {
	want, err := wire.ParseWant(f.want)
	if err != nil {
		return &exitError{statusRefused, fmt.Errorf("--want: %w; nothing was sent", err)}
	}
	src, err := openSource(args[1:], f)
	if err != nil {
		return err
	}
	defer src.close()
	c, err := dial(cmd)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := c.Producer(cmd.Context(), args[0], client.ProducerOptions{Want: want})
	if err != nil {
		return err
	}
	r := newPubReport(args[0], f.json, src.total)
	err = send(cmd.Context(), p, src, f.rate, r)
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 60*time.Second)
	defer cancel()
	err = errors.Join(err, p.Close(closeCtx))
	return r.end(err)
}

// send gives every message of the source to the producer.
func send(ctx context.Context, p *client.Producer, src *source, rate float64, r *pubReport) error {
	start := time.Now()
	for n := 0; ; n++ {
		m, err := src.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if rate > 0 {
			due := start.Add(time.Duration(float64(n) / rate * float64(time.Second)))
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		m.Body = r.bar.count(m.Body)
		if err := p.Send(ctx, m, r.result); err != nil {
			return err
		}
	}
}

// source gives messages one after another.
type source struct {
	total int64 // bytes, 0 if unknown
	next  func() (client.Message, error)
	close func()
}

const lineMax = wire.InlineMax

func openSource(text []string, f pubFlags) (*source, error) {
	given := len(text)
	for _, s := range []string{f.file, f.lines} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return nil, errors.New("say what to publish in exactly one way: TEXT, -, --file FILE or --lines FILE")
	}
	switch {
	case f.file != "":
		return fileSource(f.file)
	case f.lines == "-":
		return lineSource(os.Stdin, 0, func() {}), nil
	case f.lines != "":
		file, size, err := openFile(f.lines)
		if err != nil {
			return nil, err
		}
		return lineSource(file, size, func() { _ = file.Close() }), nil // read only
	case text[0] == "-":
		return once(client.Message{Body: os.Stdin, Length: -1}), nil
	}
	left := f.count
	return &source{close: func() {}, next: func() (client.Message, error) {
		if left--; left < 0 {
			return client.Message{}, io.EOF
		}
		return client.Message{Body: strings.NewReader(text[0]), Length: int64(len(text[0]))}, nil
	}}, nil
}

func once(m client.Message) *source {
	done := false
	return &source{total: max(m.Length, 0), close: func() {}, next: func() (client.Message, error) {
		if done {
			return client.Message{}, io.EOF
		}
		done = true
		return m, nil
	}}
}

func openFile(path string) (*os.File, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func fileSource(path string) (*source, error) {
	file, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	s := once(client.Message{Body: file, Length: size})
	s.close = func() { _ = file.Close() } // read only
	return s, nil
}

func lineSource(r io.Reader, size int64, closer func()) *source {
	in := bufio.NewReaderSize(r, lineMax+1)
	return &source{total: size, close: closer, next: func() (client.Message, error) {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return client.Message{}, fmt.Errorf("a line has more than %d bytes; send such bodies with --file", lineMax)
		case errors.Is(err, io.EOF) && len(line) > 0:
		case err != nil:
			return client.Message{}, err
		}
		line = bytes.TrimSuffix(line, []byte{'\n'})
		return client.Message{Body: bytes.NewReader(line), Length: int64(len(line))}, nil
	}}
}

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
