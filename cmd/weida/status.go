package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/admin"
	"weida/broker/endpoint"
)

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show how nodes and groups are, the worst first",
		Long: "Asks every node and shows each group as its leader sees it: how many voters are in step, and how far the\n" +
			"last one is behind, in entries and in time. A group that has something to commit and commits nothing is not\n" +
			"healthy, whatever else it says. Status 0 is healthy, 10 is not.",
		Example: "  weida status\n  weida status --watch\n  weida status --wait healthy --timeout 1m",
		Args:    cobra.NoArgs,
	}
	follow := cmd.Flags().Bool("watch", false, "show it again whenever it has changed")
	wait := cmd.Flags().String("wait", "", "return when everything is `STATE`, which is healthy")
	timeout := cmd.Flags().Duration("timeout", 0, "with --wait: give up after this `TIME`; 0s is never")
	all := cmd.Flags().Bool("all", false, "show all groups, not only the first 20 of those that are healthy")
	output := outputFlag(cmd)
	_ = cmd.RegisterFlagCompletionFunc("wait", completeFlag("healthy")) // the flag is there
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		asJSON, err := output()
		switch {
		case err != nil:
			return err
		case *wait != "" && *wait != string(admin.Healthy):
			return fmt.Errorf("--wait %q: the only state to wait for is healthy", *wait)
		case *timeout != 0 && *wait == "":
			return errors.New("--timeout goes with --wait healthy")
		}
		a, err := adminOf(cmd)
		if err != nil {
			return err
		}
		s := &statusCommand{api: a, json: asJSON, all: *all, out: os.Stdout}
		switch {
		case *follow:
			return s.watch(cmd.Context())
		case *wait != "":
			return s.wait(cmd.Context(), *timeout)
		}
		return s.once(cmd.Context())
	}
	return cmd
}

// statusCommand is one `status`.
type statusCommand struct {
	api  *api
	json bool
	all  bool
	out  io.Writer
}

func (s *statusCommand) ask(ctx context.Context) (raw []byte, c *admin.ClusterStatus, err error) {
	raw, _, err = s.api.do(ctx, http.MethodGet, "/v1/cluster", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	c = &admin.ClusterStatus{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, nil, s.api.strange(err)
	}
	return raw, c, nil
}

// once shows it and ends with its status.
func (s *statusCommand) once(ctx context.Context) error {
	raw, c, err := s.ask(ctx)
	if err != nil {
		return err
	}
	return errors.Join(s.print(raw, c), s.verdict(c))
}

func (s *statusCommand) verdict(c *admin.ClusterStatus) error {
	if c.Healthy {
		return nil
	}
	return &exitError{status: statusUnhealthy}
}

func (s *statusCommand) print(raw []byte, c *admin.ClusterStatus) error {
	if s.json {
		_, err := fmt.Fprintf(s.out, "%s\n", raw)
		return err
	}
	_, err := s.out.Write(statusText(c, s.all))
	return err
}

// wait returns when everything is healthy, or says what is not when the time is over.
func (s *statusCommand) wait(ctx context.Context, timeout time.Duration) error {
	patience := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var raw []byte
	var c *admin.ClusterStatus
	var last error
	err := poll(patience, func() (bool, error) {
		r, now, err := s.ask(ctx) // what is asked is waited for: a node that is away takes a moment to be told of
		if err != nil {
			last = err // the node may be coming up
			return false, nil
		}
		raw, c, last = r, now, nil
		return c.Healthy, nil
	})
	switch {
	case c != nil:
		if perr := s.print(raw, c); perr != nil {
			return perr
		}
	case last != nil && ctx.Err() == nil:
		return last
	}
	if err != nil && ctx.Err() == nil {
		return &exitError{statusUnhealthy, fmt.Errorf("not healthy within %v", timeout)}
	}
	if err != nil {
		return &exitError{statusUnhealthy, errors.New("interrupted before everything was healthy")}
	}
	return nil
}

// watch shows it whenever it has changed, until it is interrupted.
func (s *statusCommand) watch(ctx context.Context) error {
	clear := ""
	if terminal(os.Stdout) && !s.json {
		clear = "\x1b[H\x1b[2J"
	}
	var last []byte
	for {
		raw, c, err := s.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "weida: %v\n", err)
		} else if text := statusText(c, s.all); !bytes.Equal(text, last) {
			last = text
			if _, err := io.WriteString(s.out, clear); err != nil {
				return err
			}
			if err := s.print(raw, c); err != nil {
				return err
			}
		}
		select {
		case <-time.After(pollLast):
		case <-ctx.Done():
			return nil
		}
	}
}

// healthyShown is how many healthy groups are shown unless all are asked for.
const healthyShown = 20

// statusText is a cluster for people.
func statusText(c *admin.ClusterStatus, all bool) []byte {
	var b bytes.Buffer
	ill := len(c.Groups) - c.Counts[admin.Healthy]
	away := 0
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Live == nil || !n.Live.Reached {
			away++
		}
	}
	word := "healthy"
	if !c.Healthy {
		word = "not healthy"
	}
	fmt.Fprintf(&b, "%s: %d of %d groups are healthy, %d of %d nodes answer\n", word, len(c.Groups)-ill, len(c.Groups),
		len(c.Nodes)-away, len(c.Nodes))
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Live != nil && !n.Live.Reached {
			fmt.Fprintf(&b, "! %s does not answer: see whether it runs, and start it (%s)\n", n.Metadata.Name, n.Live.Why)
		} else if what, remedy := n.Trouble(); what != "" {
			fmt.Fprintf(&b, "! %s: %s; %s\n", n.Metadata.Name, what, remedy)
		}
	}
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "HEALTH\tGROUP\tLEADER\tIN STEP\tBEHIND\tTIME BEHIND\tTERM")
	shown, hidden := 0, 0
	for i := range c.Groups {
		g := &c.Groups[i]
		if g.Health == admin.Healthy {
			if shown++; shown > healthyShown && !all {
				hidden++
				continue
			}
		}
		term := int64(g.Term)
		if term == 0 {
			term = -1 // nobody told it
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\n", g.Health, g.Group, orDash(g.Leader), g.InStep, g.Factor,
			count(g.BehindEntries), span(g.BehindMS), count(term))
	}
	_ = w.Flush() // a buffer takes everything
	writeRemarks(&b, c)
	if hidden > 0 {
		fmt.Fprintf(&b, "and %d more that are healthy; --all shows them\n", hidden)
	}
	return b.Bytes()
}

// count is a number that may not be known.
func count(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// span is a time in milliseconds that may not be known.
func span(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

// whoAnswers adds to the error of a command that could not reach a queue how one learns why: of several nodes the one
// that leads the queue may be away alone.
func whoAnswers(cmd *cobra.Command, err error) error {
	var unreachable *endpoint.UnreachableError
	if cmd.Flags().Lookup("single") == nil || !errors.As(err, &unreachable) || unreachable.TurnedAway() {
		return err
	}
	c, _, unread := readContext(cmd)
	if unread != nil || len(c.Addresses) < 2 {
		return err // which is what there is to say
	}
	return fmt.Errorf("%w\nother nodes may answer: `%s status` says which do, and who leads the queue",
		err, self())
}
