package main

import (
	"bufio"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"weida/broker/client"
)

// peekCount is how many messages are shown where nothing is said.
const peekCount = 10

func newPeek() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "look at messages without taking them",
		Long: "Shows messages in the queue's order and changes nothing: they are nobody's delivery and are not settled.\n" +
			"What is printed is what `sub` prints; attempt is the number of deliveries made so far.",
		Example: "  weida peek demo\n  weida peek demo --from 4211 --count 1 -o json\n" +
			"  weida peek demo --count 0 --out bodies",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueue,
	}
	from := cmd.Flags().Uint64("from", 0, "lowest `OFFSET` to look at")
	count := cmd.Flags().Uint64("count", peekCount, "at most `N` messages; 0 is all")
	dir := cmd.Flags().String("out", "-", "`DIR` to write each body to a file DIR/OFFSET; - is standard output")
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
		if *dir != "-" {
			if err := os.MkdirAll(*dir, 0o700); err != nil {
				return err
			}
		}
		waits := awaitQueue(cmd, args[0])
		c, err := dial(cmd)
		if err != nil {
			return waits.end(cmd.Context(), err)
		}
		defer c.Close()
		out := bufio.NewWriterSize(os.Stdout, 64<<10)
		for d, perr := range c.Peek(cmd.Context(), args[0], client.PeekOptions{From: *from, Count: *count}) {
			if err = asRead(waits.end(cmd.Context(), perr)); err == nil {
				err = write(d, out, *dir, asJSON)
			}
			if err != nil {
				break
			}
		}
		_ = waits.end(cmd.Context(), nil) // there was nothing to look at
		if cmd.Context().Err() != nil {
			err = errors.New("interrupted; nothing was changed")
		}
		return errors.Join(err, out.Flush())
	}
	return cmd
}
