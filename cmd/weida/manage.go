package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weida/broker/client"
)

func newPurge() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "take all messages out of a queue that are not under delivery",
		Long: "Takes out every message that no consumer has, for good, and counts it as purged. What is under delivery\n" +
			"stays. It asks before it does so; where nobody can be asked it needs --yes.",
		Example:           "  weida purge demo\n  weida purge demo --yes -o json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueue,
	}
	yes := cmd.Flags().Bool("yes", false, "do not ask")
	singleFlag(cmd)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		if err := checkNames(args[0], "", ""); err != nil {
			return err
		}
		err = confirm(*yes, fmt.Sprintf("Take every message that is not under delivery out of %q, for good?", args[0]))
		if err != nil {
			return err
		}
		var p client.Purged
		err = request(cmd, args[0], func(ctx context.Context, c *client.Client) (err error) {
			p, err = c.Purge(ctx, args[0])
			return err
		})
		switch {
		case err != nil:
			return err
		case asJSON:
			return printJSON("queue", args[0], "purged", p.Count, "left", p.Left)
		}
		fmt.Printf("queue/%s purged: %d messages taken out, %d left under delivery\n", args[0], p.Count, p.Left)
		return nil
	}
	return cmd
}

func newUnsubscribe() *cobra.Command {
	return manageCommand(&cobra.Command{
		Use:   "unsubscribe QUEUE ID",
		Short: "end a subscription for good",
		Long: "Ends a durable subscription: what it has not settled goes back to its place in the queue, and a consumer\n" +
			"that holds it is told. Ending one that is not there is no error.",
		Example: "  weida unsubscribe demo billing",
	}, "subscription", "unsubscribed", (*client.Client).Unsubscribe)
}

func newRetire() *cobra.Command {
	return manageCommand(&cobra.Command{
		Use:   "retire QUEUE PRODUCER",
		Short: "forget a producer id",
		Long: "Forgets a producer id and its sequences, which makes room for another. What was under way with it is not\n" +
			"recognized any more when it is sent again. Retiring one that is not there is no error.",
		Example: "  weida retire demo till-7",
	}, "producer", "retired", (*client.Client).Retire)
}

// manageCommand is a command that ends something of a queue by its id.
func manageCommand(cmd *cobra.Command, what, result string,
	do func(*client.Client, context.Context, string, string) error,
) *cobra.Command {
	cmd.Args = cobra.ExactArgs(2)
	cmd.ValidArgsFunction = completeQueue
	singleFlag(cmd)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		if err := checkNames(args[0], what, args[1]); err != nil {
			return err
		}
		err = request(cmd, args[0], func(ctx context.Context, c *client.Client) error { return do(c, ctx, args[0], args[1]) })
		switch {
		case err != nil:
			return err
		case asJSON:
			return printJSON("queue", args[0], what, args[1], "result", result)
		}
		fmt.Printf("queue/%s %s %s %s\n", args[0], what, args[1], result)
		return nil
	}
	return cmd
}

// printJSON prints an object of names and values, in this order.
func printJSON(pairs ...any) error {
	line := []byte{'{'}
	for i, v := range pairs {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		line = append(append(line, b...), ":,"[i%2])
	}
	line[len(line)-1] = '}'
	_, err := os.Stdout.Write(append(line, '\n'))
	return err
}

// request makes one change over the messaging port. When its answer does not come it is indeterminate.
func request(cmd *cobra.Command, queue string, do func(context.Context, *client.Client) error) error {
	waits := awaitQueue(cmd, queue)
	c, err := dial(cmd)
	if err != nil {
		return waits.end(cmd.Context(), err)
	}
	defer c.Close()
	err = asRead(waits.end(cmd.Context(), do(cmd.Context(), c)))
	var lost *client.LostError
	var protocol *client.ProtocolError
	switch {
	case err == nil:
		return nil
	case cmd.Context().Err() != nil:
		return &exitError{statusIndeterminate, errors.New("interrupted before the answer came; it may or may not have been " +
			"done; look at the queue, or ask for the same again, which is safe")}
	case errors.As(err, &lost), errors.As(err, &protocol):
		return &exitError{statusIndeterminate, err}
	}
	return err
}

// confirm asks on a terminal.
func confirm(yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !terminal(os.Stdin):
		return errors.New("there is nobody to ask whether this is meant; nothing was changed; say --yes")
	}
	ask := os.Stderr
	if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil { // standard error may go elsewhere
		defer func() { _ = tty.Close() }() // a terminal keeps nothing back
		ask = tty
	}
	fmt.Fprintf(ask, "%s [y/N] ", question)
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		return errors.New("not confirmed; nothing was changed")
	}
	return nil
}
