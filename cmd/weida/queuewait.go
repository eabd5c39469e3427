package main

import (
	"cmp"
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
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
)

const (
	// waitQuiet is how long a command may wait for a queue without a word.
	waitQuiet = 2 * time.Second
	// waitAgain is the pause between two looks at why it still waits.
	waitAgain = time.Second
	// waitLook bounds one such look.
	waitLook = 2 * time.Second
)

// queueWait tells why a command waits for a queue: after waitQuiet, and whenever the reason changes. It only looks, at
// the admin addresses of the context file, and only then.
type queueWait struct {
	queue string
	talk  io.Writer
	why   func(context.Context) string // "" where the queue is well
	quiet time.Duration
	again time.Duration
	begun bool // the queue was opened, its answers are waited for

	stop  context.CancelFunc
	ended sync.WaitGroup
	told  string // what was told last; read once ended
}

// awaitQueue starts to wait; end has to be called.
func awaitQueue(cmd *cobra.Command, queue string) *queueWait {
	why := func(ctx context.Context) string { return whyNot(ctx, cmd, queue) }
	w := &queueWait{queue: queue, talk: os.Stderr, why: why, quiet: waitQuiet, again: waitAgain}
	w.begin(cmd.Context())
	return w
}

// awaitAnswers waits for the answers of a queue that took what it is to answer for.
func awaitAnswers(cmd *cobra.Command, queue string) *queueWait {
	why := func(ctx context.Context) string { return whyNot(ctx, cmd, queue) }
	w := &queueWait{queue: queue, talk: os.Stderr, why: why, quiet: waitQuiet, again: waitAgain, begun: true}
	w.begin(context.WithoutCancel(cmd.Context()))
	return w
}

func (w *queueWait) begin(ctx context.Context) {
	ctx, w.stop = context.WithCancel(ctx)
	w.ended.Go(func() { w.run(ctx) })
}

func (w *queueWait) run(ctx context.Context) {
	for pause := w.quiet; ; pause = w.again {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		look, cancel := context.WithTimeout(ctx, waitLook)
		why := w.why(look)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case why == "" || why == w.told:
		case w.begun:
			fmt.Fprintf(w.talk, "queue/%s: still waiting for answers: %s\n", w.queue, why)
		default:
			fmt.Fprintf(w.talk, "queue/%s: still trying for %v: %s\n", w.queue, patienceWords, why)
		}
		w.told = cmp.Or(why, w.told)
	}
}

// patienceWords is for how long a client tries.
const patienceWords = 30 * time.Second

// end is the end of the wait. An error is told with what is known of the queue, unless it says that itself.
func (w *queueWait) end(ctx context.Context, err error) error {
	w.stop()
	w.ended.Wait()
	if err == nil {
		return nil
	}
	why := w.told
	if why == "" && ctx.Err() == nil && unanswering(err) {
		look, cancel := context.WithTimeout(ctx, waitLook)
		defer cancel()
		why = w.why(look)
	}
	if why == "" || why == noAnswer || strings.Contains(err.Error(), why) {
		return err
	}
	return fmt.Errorf("%w\nqueue/%s: %s", err, w.queue, why)
}

// unanswering says that an error leaves open what is wrong with the queue.
func unanswering(err error) bool {
	var lost *client.LostError
	var unreachable *endpoint.UnreachableError
	var refused *wire.Error
	if errors.As(err, &refused) {
		return refused.Code == wire.NoQuorum || refused.Code == wire.NotReady
	}
	return errors.As(err, &lost) || errors.As(err, &unreachable)
}

// noAnswer is what there is to say where nobody can be asked.
const noAnswer = "no answer yet"

// whyNot says why a queue may not answer, as the nodes see it; "" where it is well.
func whyNot(ctx context.Context, cmd *cobra.Command, queue string) string {
	a, err := adminOf(cmd)
	if err != nil {
		return noAnswer
	}
	it, err := a.get(ctx, kinds[0], queue)
	var refused *apiError
	switch {
	case errors.As(err, &refused) && refused.code() == wire.NoSuchResource:
		return "there is no such queue"
	case errors.As(err, &refused):
		return refused.Message
	case err != nil && nothingThere(err):
		return "no node answers at " + strings.Join(a.bases, ", ")
	case err != nil:
		return noAnswer
	}
	nodes, err := a.list(ctx, nodeKind)
	if err != nil {
		nodes = nil // their keys stand for them
	}
	return whyOf(it, namesByKey(nodes))
}

// namesByKey are the names of nodes by their keys, with a remark where one does not answer.
func namesByKey(nodes []*item) map[string]string {
	names := make(map[string]string)
	for _, it := range nodes {
		var n nodeItem
		if err := json.Unmarshal(it.raw, &n); err != nil {
			continue
		}
		name := it.Metadata.Name
		if n.Live != nil && !n.Live.Reached {
			name += ", which does not answer"
		}
		names[n.Spec.Fingerprint] = name
	}
	return names
}

// whyOf is whyNot of a queue as a node shows it.
func whyOf(it *item, members map[string]string) string {
	var parts []string
	if it.Live != nil && it.Live.Trouble != "" {
		parts = append(parts, it.Live.Trouble)
	}
	for _, c := range it.Status.Conditions {
		parts = append(parts, fmt.Sprintf("%s (%s): %s", c.Type, c.Reason, c.Message))
	}
	var where []string
	for _, r := range it.Status.Placement {
		name := members[r.Node]
		if name == "" {
			name = "node " + r.Node
		}
		where = append(where, name)
	}
	switch {
	case it.Status.Phase == control.Pending && len(where) == 0:
		parts = append(parts, "it is not placed on any node yet")
	case it.Leader != "":
		if len(parts) > 0 {
			parts = append(parts, it.Leader+" has it")
		}
	case len(where) == 1:
		parts = append(parts, "nobody serves it; its only copy is on "+where[0])
	case len(where) > 1:
		parts = append(parts, "nobody leads it, which takes most of its replicas: "+strings.Join(where, "; "))
	}
	return strings.Join(parts, "; ")
}

// interruptedAs says in a person's words that a wait was ended from outside, and what that means.
func interruptedAs(ctx context.Context, err error, means string) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return errors.New("interrupted before the queue was opened; " + means)
}

// asked is an error of a command that publishes nothing: that a message was not stored says nothing there.
type asked struct{ err error }

func asRead(err error) error {
	if err == nil {
		return nil
	}
	return &asked{err}
}

func (e *asked) Error() string {
	return strings.ReplaceAll(e.err.Error(), "The message was not stored.", "Nothing was changed.")
}

func (e *asked) Unwrap() error { return e.err }
