package main

import "github.com/spf13/cobra"

// singleFlag adds --single, which dial heeds.
func singleFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("single", false, "have the node that answers ask the others, instead of going to them")
}

// isSingle says whether --single was given.
func isSingle(cmd *cobra.Command) bool {
	single, err := cmd.Flags().GetBool("single")
	return err == nil && single // a command without the flag is not
}
