package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/admin"
	"weida/broker/wire"
)

func newQuorum() *cobra.Command {
	cmd := &cobra.Command{
		Use: "quorum describe|transfer-leader", Short: "look at consensus groups, and move their leaders",
	}
	cmd.AddCommand(newQuorumDescribe(), newQuorumTransfer())
	return cmd
}

// groupName is what a group is called in requests: the control group, or a queue's. A queue of that name is
// queue/control.
func groupName(arg string) string {
	if arg == admin.ControlName || strings.HasPrefix(arg, "queue/") {
		return arg
	}
	return admin.QueueGroup(arg)
}

func newQuorumDescribe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe QUEUE|control…",
		Short: "show who leads and who votes in groups",
		Long: "Shows what the leader of each group knows: with --status its term, its commit index and the voters, those\n" +
			"that count now and those that are committed; with --replication how far each replica is. A change of members\n" +
			"that is not committed is in the current voters only. A one-replica queue has no group, and says who owns it.",
		Example: "  weida quorum describe orders --status\n" +
			"  weida quorum describe control orders --replication --human-readable",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeGroup,
	}
	status := cmd.Flags().Bool("status", false, "show leader and voters; the default")
	replication := cmd.Flags().Bool("replication", false, "show each replica")
	human := cmd.Flags().Bool("human-readable", false, "with --replication: show times as how long ago they were")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := output()
		switch {
		case err != nil:
			return err
		case *status && *replication:
			return errors.New("--status and --replication are two different looks; say one")
		case *human && !*replication:
			return errors.New("--human-readable goes with --replication")
		}
		a, err := adminOf(cmd)
		if err != nil {
			return err
		}
		var groups []string
		for _, arg := range args {
			groups = append(groups, groupName(arg))
		}
		raw, r, err := a.describeQuorum(cmd, groups)
		if err != nil {
			return err
		}
		if asJSON {
			if _, err := fmt.Fprintf(os.Stdout, "%s\n", raw); err != nil {
				return err
			}
		}
		return tellQuorum(os.Stdout, r, asJSON, func(out io.Writer, g *admin.GroupQuorum) {
			if *replication {
				tellReplication(out, g, *human, time.Now())
			} else {
				tellVoters(out, g, r)
			}
		})
	}
	return cmd
}

func (a *api) describeQuorum(cmd *cobra.Command, groups []string) ([]byte, *admin.QuorumResponse, error) {
	body, err := json.Marshal(admin.QuorumRequest{Groups: groups})
	if err != nil {
		return nil, nil, err
	}
	raw, _, err := a.do(cmd.Context(), asking, "/v1/quorum/describe", url.Values{"relay": {"1"}}, body)
	if err != nil {
		return nil, nil, err
	}
	r := &admin.QuorumResponse{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, nil, a.strange(err)
	}
	return raw, r, nil
}

// tellQuorum prints each group, or why it cannot; that a queue has no group is an answer and no refusal.
func tellQuorum(out io.Writer, r *admin.QuorumResponse, quiet bool, tell func(io.Writer, *admin.GroupQuorum)) error {
	worst := 0
	for i := range r.Groups {
		g := &r.Groups[i]
		_, err := r.Info(g.Group)
		if i > 0 && !quiet {
			fmt.Fprintln(out)
		}
		switch {
		case g.ErrorCode == int16(wire.NoGroup) && !quiet:
			fmt.Fprintf(out, "%s: %s\n", g.Group, *g.ErrorMessage)
		case g.ErrorCode == int16(wire.NoGroup):
		case err != nil:
			if !quiet {
				fmt.Fprintf(os.Stderr, "%s: %s\n", g.Group, undescribed(g, err))
			}
			worst = statusRefused
		case !quiet:
			tell(out, g)
		}
	}
	if worst != 0 {
		return &exitError{status: worst}
	}
	return nil
}

// undescribed is why a group cannot be described. All nodes were asked, so that nobody is sent to ask another one.
func undescribed(g *admin.GroupQuorum, err error) string {
	if g.ErrorCode != int16(wire.NotLeader) || g.ErrorMessage == nil {
		return err.Error()
	}
	return fmt.Sprintf("nobody who answers leads it: %s. Nothing was changed. `%s status` says what to do. "+
		"[E%d: weida explain E%d]", *g.ErrorMessage, self(), g.ErrorCode, g.ErrorCode)
}

// tellVoters prints a group's leader and voters.
func tellVoters(out io.Writer, g *admin.GroupQuorum, r *admin.QuorumResponse) {
	lag, lagMS := maxLag(g)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s:\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("Group", "%s", g.Group)
	row("LeaderId", "%d", g.LeaderID)
	row("LeaderEpoch", "%d", g.LeaderEpoch)
	row("HighWatermark", "%d", g.HighWatermark)
	row("MaxFollowerLag", "%s", count(lag))
	row("MaxFollowerLagTimeMs", "%s", count(lagMS))
	row("CurrentVoters", "%s", voterList(g.CurrentVoters, r))
	row("CommittedVoters", "%s", voterList(g.CommittedVoters, r))
	row("CurrentObservers", "%s", voterList(g.Observers, r))
	_ = w.Flush() // what it goes to is told by the next line, or at the end
}

// maxLag is how far the last follower is behind the leader, in entries and in time; -1 is not known.
// One that was given up is no follower any more.
func maxLag(g *admin.GroupQuorum) (entries, ms int64) {
	var leader, last *admin.ReplicaState
	for _, list := range [][]admin.ReplicaState{g.CurrentVoters, g.Observers} {
		for i := range list {
			s := &list[i]
			if s.ReplicaID == g.LeaderID {
				leader = s
			}
			if s.Lost == "" && (last == nil || s.LogEndOffset < last.LogEndOffset) {
				last = s
			}
		}
	}
	if leader == nil || last == nil {
		return -1, -1
	}
	entries = leader.LogEndOffset - last.LogEndOffset
	switch {
	case entries == 0:
		return 0, longestSilence(g, leader)
	case last.LogEndOffset < 0:
		return -1, -1
	case last.LastCaughtUpTimestamp < 0:
		return entries, -1
	}
	return entries, leader.LastCaughtUpTimestamp - last.LastCaughtUpTimestamp
}

// longestSilence is for how long the replica that was heard least lately has said nothing, in milliseconds; 0 while
// all answer. One that stands still has everything up to then, and is not in step.
func longestSilence(g *admin.GroupQuorum, leader *admin.ReplicaState) (ms int64) {
	for _, list := range [][]admin.ReplicaState{g.CurrentVoters, g.Observers} {
		for i := range list {
			if silent(&list[i], leader) {
				ms = max(ms, leader.LastCaughtUpTimestamp-list[i].LastFetchTimestamp)
			}
		}
	}
	return ms
}

// silent says whether a replica has said nothing for longer than an election takes. The leader's own time is now.
func silent(s, leader *admin.ReplicaState) bool {
	return leader != nil && s.Lost == "" && s.ReplicaID != leader.ReplicaID && s.LastFetchTimestamp >= 0 &&
		leader.LastCaughtUpTimestamp-s.LastFetchTimestamp > admin.HeardMaxMS
}

// voterList is replicas as other tools of the kind print them.
func voterList(list []admin.ReplicaState, r *admin.QuorumResponse) string {
	type voter struct {
		ID        int32    `json:"id"`
		Directory string   `json:"directoryId"`
		Endpoints []string `json:"endpoints"`
	}
	voters := make([]voter, len(list))
	for i, s := range list {
		voters[i] = voter{s.ReplicaID, s.ReplicaDirectoryID, []string{}}
		for _, n := range r.Nodes {
			for _, l := range n.Listeners {
				if n.NodeID == s.ReplicaID {
					voters[i].Endpoints = append(voters[i].Endpoints,
						l.Name+"://"+net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))))
				}
			}
		}
	}
	b, err := json.Marshal(voters)
	if err != nil {
		panic("bug: weida: voters have no JSON: " + err.Error())
	}
	return string(b)
}

// tellReplication prints how far each replica is.
func tellReplication(out io.Writer, g *admin.GroupQuorum, human bool, now time.Time) {
	fmt.Fprintf(out, "%s\n", g.Group)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NodeId\tDirectoryId\tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus")
	end := int64(0)
	for _, s := range g.CurrentVoters {
		end = max(end, s.LogEndOffset)
	}
	at := func(ms int64) string {
		switch {
		case !human || ms < 0:
			return count(ms)
		default:
			return fmt.Sprintf("%d ms ago", max(now.UnixMilli()-ms, 0))
		}
	}
	var leader *admin.ReplicaState
	for i := range g.CurrentVoters {
		if s := &g.CurrentVoters[i]; s.ReplicaID == g.LeaderID {
			leader = s
		}
	}
	row := func(s *admin.ReplicaState, status string) {
		if s.Disk != "" && s.Disk != "ok" {
			status += ", disk " + s.Disk
		}
		if s.Lost != "" {
			status = lostStatus(s)
		} else if silent(s, leader) {
			status += fmt.Sprintf(" (silent for %d s)", (leader.LastCaughtUpTimestamp-s.LastFetchTimestamp)/1000)
		}
		lag := int64(-1)
		if s.LogEndOffset >= 0 {
			lag = end - s.LogEndOffset
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ReplicaID, s.ReplicaDirectoryID, count(s.LogEndOffset), count(lag),
			at(s.LastFetchTimestamp), at(s.LastCaughtUpTimestamp), status)
	}
	for i := range g.CurrentVoters {
		status := "Follower"
		if g.CurrentVoters[i].ReplicaID == g.LeaderID {
			status = "Leader"
		}
		row(&g.CurrentVoters[i], status)
	}
	for i := range g.Observers {
		row(&g.Observers[i], "Observer")
	}
	_ = w.Flush() // what it goes to is told by the next line, or at the end
}

// lostStatus says that a replica was given up, why, and since when it has said nothing.
func lostStatus(s *admin.ReplicaState) string {
	since := "of which its leader never heard"
	if s.LastFetchTimestamp >= 0 {
		since = "silent since " + time.UnixMilli(s.LastFetchTimestamp).UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("Lost (%s), %s; another one takes its place", s.Lost, since)
}

func newQuorumTransfer() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transfer-leader QUEUE|control NODE",
		Short: "let another voter lead a group",
		Long: "Asks the leader to step back for another voter that is in step. Messages go on: producers and consumers\n" +
			"are sent to the new leader. --wait returns when it leads.",
		Example: "  weida quorum transfer-leader orders n2 --wait",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: completeGroup,
	}
	dry := dryFlag(cmd)
	wait := cmd.Flags().Bool("wait", false, "return when the node leads")
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
		body, err := json.Marshal(admin.TransferRequest{Group: groupName(args[0]), To: args[1]})
		if err != nil {
			return err
		}
		b, _, err := a.do(cmd.Context(), http.MethodPost, "/v1/quorum/transfer-leader", dryQuery(*dry), body)
		if err != nil {
			return err
		}
		var t admin.TransferResponse
		if err := json.Unmarshal(b, &t); err != nil {
			return a.unsure(http.MethodPost, a.strange(err))
		}
		if *wait && !*dry {
			if err := leads(cmd, a, t.Group, args[1]); err != nil {
				return err
			}
		}
		if asJSON {
			_, err = fmt.Fprintf(os.Stdout, "%s\n", b)
			return err
		}
		fmt.Println(transferText(&t, *wait))
		return nil
	}
	return cmd
}

func transferText(t *admin.TransferResponse, waited bool) string {
	switch {
	case !t.Begun:
		return fmt.Sprintf("%s is led by %s already", t.Group, t.To)
	case t.DryRun:
		return fmt.Sprintf("%s would go from %s to %s", t.Group, t.From, t.To)
	case waited:
		return fmt.Sprintf("%s went from %s to %s", t.Group, t.From, t.To)
	}
	return fmt.Sprintf("%s goes from %s to %s", t.Group, t.From, t.To)
}

// leads waits until a node leads a group.
func leads(cmd *cobra.Command, a *api, group, node string) error {
	s := &statusCommand{api: a}
	return poll(cmd.Context(), func() (bool, error) {
		_, c, err := s.ask(cmd.Context())
		if err != nil {
			return false, err
		}
		for i := range c.Groups {
			if g := &c.Groups[i]; g.Group == group {
				return g.Leader == node, nil
			}
		}
		return false, fmt.Errorf("%s is gone", group)
	})
}

// completeGroup offers the control group and the queues, then, for a transfer, the nodes.
func completeGroup(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 && strings.HasPrefix(cmd.Use, "transfer-leader") {
		return namesOf(cmd, nodeKind), cobra.ShellCompDirectiveNoFileComp
	}
	return append([]string{admin.ControlName}, namesOf(cmd, kinds[0])...), cobra.ShellCompDirectiveNoFileComp
}
