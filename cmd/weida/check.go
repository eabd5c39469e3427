package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"weida/broker/admin"
)

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check can-stop NODE|leaderless|under-replicated",
		Short: "ask whether something holds of all groups, before it matters",
	}
	stop := newCheckOf(admin.CheckCanStop, "NODE", "whether every group keeps a majority without a node",
		"Judged by the committed voters. While a change of a group's members is under way, or where a group's leader does\n"+
			"not answer, it cannot be shown, and the answer is no. One-replica queues that the node owns are named, and are\n"+
			"no reason: they have no majority to lose.", "weida check can-stop n2")
	stop.ValidArgsFunction = completeNode
	cmd.AddCommand(stop,
		newCheckOf(admin.CheckLeaderless, "", "which groups nobody leads", "A group whose leader did not answer counts, too.",
			"weida check leaderless"),
		newCheckOf(admin.CheckUnderReplicated, "", "which groups have fewer voters in step than are wanted",
			"A voter is in step if it answers its leader and is not being brought up.", "weida check under-replicated"))
	return cmd
}

// newCheckOf is one check; arg is what it is about, "" for all groups.
func newCheckOf(name, arg, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long + " Status 0 is yes or none, 10 is no or some.", Example: "  " + example,
		Args: cobra.NoArgs,
	}
	if arg != "" {
		cmd.Use, cmd.Args = name+" "+arg, cobra.ExactArgs(1)
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		a, err := adminOf(cmd)
		if err != nil {
			return err
		}
		path := "/v1/check/" + name
		for _, node := range args {
			path += "/" + url.PathEscape(node)
		}
		b, _, err := a.do(cmd.Context(), http.MethodGet, path, nil, nil)
		if err != nil {
			return err
		}
		var v admin.Verdict
		if err := json.Unmarshal(b, &v); err != nil {
			return a.strange(err)
		}
		if asJSON {
			_, err = fmt.Fprintf(os.Stdout, "%s\n", b)
		} else {
			word := "yes"
			if !v.OK {
				word = "no"
			}
			if arg == "" {
				if word = "1 group"; len(v.Findings) != 1 {
					word = fmt.Sprintf("%d groups", len(v.Findings))
				}
			}
			fmt.Println(v.Check + ": " + word)
			tellVerdict(os.Stdout, &v, pauseAway)
		}
		if err == nil && !v.OK {
			return &exitError{status: statusUnhealthy}
		}
		return err
	}
	return cmd
}
