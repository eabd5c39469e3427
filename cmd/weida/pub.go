package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/client"
	"weida/broker/wire"
)

// pubFlags are the flags of `pub`.
type pubFlags struct {
	file, lines, want string
	producer          string
	seq               uint64 // 0: what follows on what the queue knows
	count             int
	rate              float64
	within            time.Duration // 0: the node's own
	json              bool
}

func newPub() *cobra.Command {
	var f pubFlags
	cmd := &cobra.Command{
		Use:   "pub QUEUE [TEXT|-]",
		Short: "publish messages and print the evidence of each",
		Long: "Publishes TEXT, standard input (-), a file as one message (--file) or each line of a file as a message\n" +
			"(--lines; a line's end is not part of it). The answer is the evidence that was achieved, which covers\n" +
			"what was asked for, or the reason why not.\n\n" +
			"With --producer the queue knows the messages by their sequences: they go on from the highest it has, and\n" +
			"one that is sent again under its --seq is answered for and not stored twice.",
		Example: "  weida pub demo hello --want stored:flushed\n  weida pub demo --lines orders.txt -o json\n" +
			"  weida pub demo hello --producer till-7\n  weida pub demo hello --producer till-7 --seq 1   # the same again",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeQueue,
	}
	cmd.Flags().StringVar(&f.file, "file", "", "publish the `FILE` as one message")
	cmd.Flags().StringVar(&f.lines, "lines", "", "publish each line of the `FILE`, - for standard input")
	cmd.Flags().StringVar(&f.want, "want", "stored:flushed",
		"`EVIDENCE`: accepted, stored:written, stored:flushed, replicated:N[:flushed]")
	cmd.Flags().IntVar(&f.count, "count", 1, "publish TEXT `N` times")
	cmd.Flags().Float64Var(&f.rate, "rate", 0, "`R` messages per second at most; 0 is no limit")
	cmd.Flags().StringVar(&f.producer, "producer", "", "durable `ID`, yours from its first use on, which makes sending "+
		"again safe")
	cmd.Flags().Uint64Var(&f.seq, "seq", 0,
		"sequence `N` of the first message, from 1; else what follows on what the queue knows")
	cmd.Flags().DurationVar(&f.within, "within", 0, "how long `D`, up to 1m, a message that is committed waits for the "+
		"replicas that --want asks for; 0 is 5s")
	singleFlag(cmd)
	_ = cmd.RegisterFlagCompletionFunc("want", completeFlag("accepted", "stored:written", "stored:flushed")) // it is there
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if f.json, err = output(); err != nil {
			return err
		}
		if f.seq != 0 && f.producer == "" || cmd.Flags().Changed("seq") && f.seq == 0 {
			return errors.New("--seq counts from 1 and goes with --producer: without an id the queue keeps no sequences; " +
				"nothing was sent")
		}
		if f.within < 0 || f.within > time.Minute {
			return fmt.Errorf("--within %v: it is between 1ms and 1m; nothing was sent", f.within)
		}
		if err := checkNames(args[0], "producer", f.producer); err != nil {
			return err
		}
		return pub(cmd, args, f)
	}
	return cmd
}

func pub(cmd *cobra.Command, args []string, f pubFlags) error {
	want, err := parseWant(f)
	if err != nil {
		return refusedAtOnce(args[0], f, err)
	}
	src, err := openSource(args[1:], f)
	if err != nil {
		return err
	}
	defer src.close()
	opening := awaitQueue(cmd, args[0])
	c, err := dial(cmd)
	if err != nil {
		return opening.end(cmd.Context(), interruptedAs(cmd.Context(), err, "nothing was sent"))
	}
	defer c.Close()
	p, err := c.Producer(cmd.Context(), args[0], client.ProducerOptions{Want: want, ID: f.producer})
	if err = opening.end(cmd.Context(), interruptedAs(cmd.Context(), err, "nothing was sent")); err != nil {
		return refusedAtOnce(args[0], f, err)
	}
	first := f.seq
	if first == 0 {
		first = p.Next()
	}
	r := newPubReport(args[0], f.json, src.total, first)
	r.numbered(f.producer)
	r.begin()
	err = send(cmd.Context(), p, src, f, r)
	if cmd.Context().Err() != nil {
		err = errors.New("interrupted; what had been sent is answered, the rest was not sent")
	}
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 60*time.Second)
	defer cancel()
	answers := awaitAnswers(cmd, args[0])
	closed := answers.end(cmd.Context(), p.Close(closeCtx))
	return r.end(errors.Join(err, closed))
}

// parseWant tells evidence that no broker may report, which is refused, from a slip of the pen.
func parseWant(f pubFlags) (wire.Want, error) {
	want, err := wire.ParseWant(f.want)
	switch {
	case err == nil:
		return want, nil
	case f.want == "stored":
		return want, &wire.Error{Code: wire.NoLevel}
	case f.want == "replicated:1" || f.want == "replicated:1:flushed":
		return want, &wire.Error{Code: wire.NotOffered, Detail: "One replica is stored, not replicated"}
	}
	return want, fmt.Errorf("--want: %w; nothing was sent", err)
}

// refusedAtOnce tells why nothing was sent. With JSON it stands for the first message, too; its sequence is
// 0 where only the queue would know it.
func refusedAtOnce(queue string, f pubFlags, err error) error {
	var refused *wire.Error
	if !f.json || !errors.As(err, &refused) {
		return err
	}
	seq := f.seq
	if f.producer == "" {
		seq = 1
	}
	r := newPubReport(queue, true, 0, seq)
	r.result(client.Result{Seq: seq, Outcome: client.Refused, Err: refused})
	return r.end(nil)
}

// send gives every message of the source to the producer.
func send(ctx context.Context, p *client.Producer, src *source, f pubFlags, r *pubReport) error {
	start := time.Now()
	for seq := r.first; ; seq++ {
		m, err := src.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.rate > 0 {
			due := start.Add(time.Duration(float64(seq-r.first) / f.rate * float64(time.Second)))
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		m.Seq, m.Within = seq, f.within
		m.Body = r.bar.count(m.Body)
		if err := p.Send(ctx, m, r.result); err != nil {
			return &unsentError{r.number, seq, err}
		}
	}
}

// unsentError is the first message that was not sent, and why.
type unsentError struct {
	number string // what seq is called
	seq    uint64
	err    error
}

func (e *unsentError) Error() string {
	return fmt.Sprintf("%s: %v", e.what(), e.err)
}

func (e *unsentError) what() string {
	return fmt.Sprintf("%s %d, and what follows it, was not sent", e.number, e.seq)
}

func (e *unsentError) Unwrap() error { return e.err }
