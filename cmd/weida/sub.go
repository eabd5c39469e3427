package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/client"
	"weida/broker/queue"
)

// subFlags are the flags of `sub`.
type subFlags struct {
	subscription, settle, out string
	count                     uint64
	credit                    int
	json                      bool
}

func newSub() *cobra.Command {
	var f subFlags
	cmd := &cobra.Command{
		Use:   "sub QUEUE",
		Short: "consume messages",
		Long: "Prints messages in the queue's order, each followed by a line end, and settles them.\n" +
			"Without --count it goes on until it is interrupted.",
		Example: "  weida sub demo --count 10\n  weida sub demo --subscription billing -o json\n" +
			"  weida sub demo --out bodies --settle none",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueue,
	}
	cmd.Flags().StringVar(&f.subscription, "subscription", "",
		"durable `ID` to resume with; without one the subscription ends with the command")
	cmd.Flags().StringVar(&f.settle, "settle", "accept",
		"`VERB`: accept, release, reject, or none to leave them unsettled")
	cmd.Flags().StringVar(&f.out, "out", "-", "`DIR` to write each body to a file DIR/OFFSET; - is standard output")
	cmd.Flags().Uint64Var(&f.count, "count", 0, "stop after `N` messages; 0 is never")
	cmd.Flags().IntVar(&f.credit, "credit", 256, "`N` deliveries may be under way")
	singleFlag(cmd)
	_ = cmd.RegisterFlagCompletionFunc("settle", completeFlag("accept", "release", "reject", "none")) // it is there
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if f.json, err = output(); err != nil {
			return err
		}
		return sub(cmd, args[0], f)
	}
	return cmd
}

type settler func(*client.Delivery, context.Context) error

var settlers = map[string]settler{
	"accept":  (*client.Delivery).Accept,
	"release": (*client.Delivery).Release,
	"reject":  (*client.Delivery).Reject,
	"none":    func(*client.Delivery, context.Context) error { return nil },
}

func sub(cmd *cobra.Command, name string, f subFlags) error {
	settle, ok := settlers[f.settle]
	if !ok {
		return fmt.Errorf("--settle %q: the verbs are accept, release, reject and none", f.settle)
	}
	if f.credit < 1 {
		return errors.New("--credit: without credit nothing is delivered")
	}
	if err := checkNames(name, "subscription", f.subscription); err != nil {
		return err
	}
	if f.out != "-" {
		if err := os.MkdirAll(f.out, 0o700); err != nil {
			return err
		}
	}
	opening := awaitQueue(cmd, name)
	c, err := dial(cmd)
	if err != nil {
		return opening.end(cmd.Context(), interruptedAs(cmd.Context(), err, "nothing was taken"))
	}
	defer c.Close()
	k, err := c.Consumer(cmd.Context(), name,
		client.ConsumerOptions{Subscription: f.subscription, Credit: f.credit, Limit: f.count})
	if err = opening.end(cmd.Context(), interruptedAs(cmd.Context(), err, "nothing was taken")); err != nil {
		return asRead(err)
	}
	defer k.Close()
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	err = consume(cmd.Context(), k, out, f, settle)
	stale, ferr := k.Flush(context.WithoutCancel(cmd.Context()))
	return consumerWords(distinct(err, out.Flush(), ferr, tellStale(os.Stderr, name, stale)))
}

// consume prints and settles until the deliveries end. Only what left this process is settled.
func consume(ctx context.Context, k *client.Consumer, out *bufio.Writer, f subFlags, settle settler) (err error) {
	t := newTaker(context.WithoutCancel(ctx), out, settle)
	defer func() { err = distinct(err, t.end()) }()
	open := 0
	waiting := time.AfterFunc(barDelay, func() {
		if terminal(os.Stderr) {
			fmt.Fprintln(os.Stderr, "waiting for messages; Ctrl-C ends")
		}
	})
	defer waiting.Stop()
	for d, err := range k.Deliveries(ctx) {
		if err != nil {
			return err
		}
		waiting.Stop()
		err = t.take(d, func(out *bufio.Writer) error { return write(d, out, f.out, f.json) })
		if err != nil {
			return err
		}
		if open++; f.settle == "none" && open == queue.UnsettledMax && f.count != uint64(open) {
			fmt.Fprintf(os.Stderr, "%s: %d deliveries are open, which is as many as a subscription may have: no more come. "+
				"Nothing was settled, all of them stay in the queue. End this command, and settle what it takes, or look "+
				"with `%s peek %s --from %d`\n", d.Queue, open, self(), d.Queue, d.Offset+1)
		}
	}
	return nil
}

// write prints a body, or its description, or puts it into a file.
func write(d *client.Delivery, out *bufio.Writer, dir string, asJSON bool) error {
	switch {
	case dir != "-":
		return writeFile(d, filepath.Join(dir, strconv.FormatUint(d.Offset, 10)), out, asJSON)
	case asJSON:
		return writeJSON(d, out, true)
	}
	if _, err := io.Copy(out, bodyOf{d}); err != nil {
		return err
	}
	return out.WriteByte('\n')
}

func writeFile(d *client.Delivery, path string, out *bufio.Writer, asJSON bool) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, bodyOf{d})
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if asJSON {
		return writeJSON(d, out, false)
	}
	_, err = fmt.Fprintf(out, "%s/%d  %d bytes · attempt %d · %s\n", d.Queue, d.Offset, d.Length, d.Attempt, path)
	return err
}

// writeJSON prints one object; the body is encoded as it arrives, so memory does not grow with it.
func writeJSON(d *client.Delivery, out *bufio.Writer, body bool) error {
	name, err := json.Marshal(d.Queue)
	if err != nil {
		return err
	}
	producer, err := json.Marshal(d.Producer)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `{"queue":%s,"offset":%d,"attempt":%d,"term":%d,"producer":%s,"seq":%d,"length":%d,"digest":"%x"`,
		name, d.Offset, d.Attempt, d.Term, producer, d.Seq, d.Length, d.Digest)
	if body {
		if _, err := out.WriteString(`,"body":"`); err != nil {
			return err
		}
		enc := base64.NewEncoder(base64.StdEncoding, out)
		if _, err := io.Copy(enc, bodyOf{d}); err != nil {
			return err
		}
		if err := enc.Close(); err != nil {
			return err
		}
		if err := out.WriteByte('"'); err != nil {
			return err
		}
	}
	_, err = out.WriteString("}\n")
	return err
}
