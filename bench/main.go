package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use:           "bench",
		Short:         "Measure weida beside the plain way of doing the same",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(walCommand(), pubCommand(), besideCommand())
	root.AddCommand(childCommands()...)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
