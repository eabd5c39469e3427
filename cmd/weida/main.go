package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
)

// The exit statuses.
const (
	statusUsage         = 1
	statusUnreachable   = 2
	statusRefused       = 3
	statusIndeterminate = 4
	statusBelow         = 5
	statusUnhealthy     = 10
	statusStorage       = 12
	statusDisplaced     = 13
)

// exitError ends the process with a status of its own. A nil Err has been told already.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("status %d", e.status)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the process at once
	cmd, err := newRoot().ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	err = whoAnswers(cmd, ownKey(cmd, err))
	var exit *exitError
	if !errors.As(err, &exit) || exit.err != nil {
		fmt.Fprintln(os.Stderr, "weida: "+err.Error())
	}
	return status(err)
}

// status is the exit status that an error stands for.
func status(err error) int {
	var exit *exitError
	var unreachable *endpoint.UnreachableError
	var untrusted *endpoint.UntrustedError
	var refused *wire.Error
	var lost *client.LostError
	var protocol *client.ProtocolError
	var body *bodyError
	switch {
	case errors.As(err, &exit):
		return exit.status
	case errors.As(err, &unreachable), errors.As(err, &untrusted), errors.As(err, &lost), errors.As(err, &protocol),
		errors.As(err, &body):
		return statusUnreachable
	case errors.As(err, &refused) && refused.Code == wire.MutationIndeterminate:
		return statusIndeterminate
	case errors.As(err, &refused):
		return statusRefused
	}
	return statusUsage
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "weida",
		Short:         "a message broker whose acknowledgement is evidence",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().String("context", "", "context `FILE`; else WEIDA_CONTEXT, else ./weida-dev/context.yaml")
	root.SetFlagErrorFunc(flagSlip)
	dev, serve := newDev(), newServe()
	dev.Example = "  weida dev\n  weida dev --data /tmp/try --reset"
	serve.Example = "  weida serve --config weida-dev/n1.yaml"
	root.AddCommand(dev, serve, newApply(), newCreate(), newGet(), newDescribe(), newDelete(), newPub(),
		newSub(), newPeek(), newPurge(), newDiff(), newStatus(), newCheck(), newQuorum(), newNode(),
		newUnsubscribe(), newRetire(), newKey(), newLog(), newDoctor(), newExplain(), newVersion())
	plainArgs(root)
	return root
}

// self is how this process was called, to print lines that can be copied.
func self() string {
	exe, err := os.Executable()
	if err == nil && strings.Contains(exe, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/weida"
	}
	return os.Args[0]
}

// outputFlag adds -o and returns whether JSON was asked for, once flags are parsed.
func outputFlag(cmd *cobra.Command) func() (bool, error) {
	o := cmd.Flags().StringP("output", "o", "text", "`FORMAT` of what is printed: text or json")
	return func() (bool, error) {
		switch *o {
		case "text":
			return false, nil
		case "json":
			return true, nil
		}
		return false, fmt.Errorf("-o %q: the formats are text and json", *o)
	}
}

// dial connects with the context file.
func dial(cmd *cobra.Command) (*client.Client, error) {
	o, err := loadContext(cmd)
	if err != nil {
		return nil, err
	}
	o.Lost, o.Single = tellLost, isSingle(cmd)
	return client.Dial(cmd.Context(), o)
}
