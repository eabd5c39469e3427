package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completePatience is how long a shell may wait for names. Without an answer nothing is offered.
const completePatience = 500 * time.Millisecond

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeWords offers these words for the first argument.
func completeWords(words ...string) completer {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag offers these words for a flag.
func completeFlag(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeQueue offers the names of queues for the first argument.
func completeQueue(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return namesOf(cmd, kinds[0]), cobra.ShellCompDirectiveNoFileComp
}

// completeNode offers the names of nodes for the first argument.
func completeNode(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return namesOf(cmd, nodeKind), cobra.ShellCompDirectiveNoFileComp
}

// completeTarget offers kinds, then the names of what is there of the kind.
func completeTarget(lists bool) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			words := []string{"queue", "connector"}
			if lists {
				words = []string{"queues", "queue", "connectors", "connector", "nodes", "node", "all"}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		for _, k := range append([]kindInfo{nodeKind}, kinds...) {
			if args[0] == k.word || args[0] == k.plural {
				return namesOf(cmd, k), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func namesOf(cmd *cobra.Command, k kindInfo) (names []string) {
	a, err := adminOf(cmd)
	if err != nil {
		return nil // a shell has no use for the reason
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completePatience)
	defer cancel()
	items, err := a.list(ctx, k)
	if err != nil {
		return nil
	}
	for _, it := range items {
		names = append(names, it.Metadata.Name)
	}
	return names
}
