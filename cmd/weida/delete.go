package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/wire"
)

func newDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete queue NAME…|connector NAME…",
		Short: "delete resources, with a time to drain",
		Long: "Asks for a deletion, which survives every crash: the queue takes no more messages, consumers may drain it\n" +
			"until the deadline, then it goes with what is left in it. The answer says that the deletion is committed;\n" +
			"--wait goes on until the resource is gone. Asked again, it may only bring the deadline nearer.",
		Example: "  weida delete queue orders --drain-deadline 10m\n" +
			"  weida delete queue orders --drain-deadline 0s --wait\n  weida delete queue orders --expected-version 12",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeTarget(false),
	}
	drain := cmd.Flags().Duration("drain-deadline", 0, "`TIME` that consumers may go on for, as 30s; else the spec's")
	wait := cmd.Flags().Bool("wait", false, "return when the resources are gone")
	expected := expectedFlag(cmd)
	dry := dryFlag(cmd)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		d := deletion{expected: expected(), wait: *wait && !*dry, dry: *dry}
		if cmd.Flags().Changed("drain-deadline") {
			d.drain = drain
		}
		return d.run(cmd, args, asJSON)
	}
	return cmd
}

// deletion is what `delete` asks for.
type deletion struct {
	drain    *time.Duration
	expected *uint64
	wait     bool
	dry      bool
}

func (d deletion) run(cmd *cobra.Command, args []string, asJSON bool) error {
	t, err := parseTarget(args)
	switch {
	case err != nil:
		return err
	case t.kind == nodeKind:
		return errors.New("a node is no resource that can be deleted; nothing was changed; say `node remove NAME`")
	case len(t.names) == 0:
		return errors.New("nothing was named, and everything of a kind is never deleted at once; nothing was changed; " +
			"say `delete queue NAME`")
	case d.expected != nil && len(t.names) > 1:
		return fmt.Errorf("--expected-version is of one resource, and %d were named; nothing was changed", len(t.names))
	case d.drain != nil && *d.drain < 0:
		return errors.New("--drain-deadline is 0s or more; nothing was changed")
	}
	a, err := adminOf(cmd)
	if err != nil {
		return err
	}
	r := &answers{out: os.Stdout, json: asJSON}
	var under []*item
	for _, name := range t.names {
		if cmd.Context().Err() != nil {
			break
		}
		it, err := a.remove(cmd.Context(), t.kind, name, d.drain, d.expected, d.dry)
		if err != nil {
			err = addVersions(err, d.expected, 0)
		}
		result := "deleting"
		if d.dry {
			result = "would be deleted"
		}
		if it != nil && !asJSON && it.Metadata.DrainUntil != 0 {
			result += ", drains until " + when(it.Metadata.DrainUntil) + " at the latest"
		}
		if !r.tell(t.kind, name, result, it, err) {
			break
		}
		if it != nil {
			under = append(under, it)
		}
	}
	if d.wait {
		for _, it := range under {
			err := gone(cmd.Context(), a, t.kind, it)
			if err != nil && cmd.Context().Err() != nil {
				return errors.New("interrupted; the deletion is committed and goes on without this command")
			}
			r.follow(t.kind, it.Metadata.Name, "deleted", nil, err)
		}
	}
	return r.end(cmd.Context(), len(t.names))
}

// gone waits until the resource, not another of its name, is no more.
func gone(ctx context.Context, a *api, k kindInfo, it *item) error {
	return poll(ctx, func() (bool, error) {
		now, err := a.get(ctx, k, it.Metadata.Name)
		var refused *wire.Error
		if errors.As(err, &refused) && refused.Code == wire.NoSuchResource {
			return true, nil
		}
		return err == nil && now.Metadata.UID != it.Metadata.UID, err
	})
}
