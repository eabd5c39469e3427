package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/admin"
	"weida/broker/control"
)

func newNode() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node add|drain|undrain|remove",
		Short: "change the members of the cluster",
	}
	cmd.AddCommand(newNodeAdd(),
		newNodeVerb(control.NodeDrain, "move replicas and leaderships away from a node",
			"The node stays a member and serves what it still has. `get nodes` shows how much that is; --wait returns when\n"+
				"it has no replica of a queue any more.", "weida node drain n3 --wait"),
		newNodeVerb(control.NodeUndrain, "let a node have replicas again",
			"Nothing is moved back at once: placements that are decided from now on count the node in.",
			"weida node undrain n3"),
		newNodeVerb(control.NodeRemove, "take a node out of the cluster, for good",
			"Refused where a group would lose its majority of committed voters, or where the only copy of a queue is on the\n"+
				"node: drain it first. Its key is no member any more, and its number is never given again.",
			"weida node remove n3 --dry-run\n  weida node remove n3"))
	return cmd
}

// nodeFlags are those of every change of a node.
type nodeFlags struct {
	expected func() *uint64
	dry      *bool
	output   func() (bool, error)
}

func addNodeFlags(cmd *cobra.Command) nodeFlags {
	return nodeFlags{expectedFlag(cmd), dryFlag(cmd), outputFlag(cmd)}
}

func newNodeAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "let another node join the cluster",
		Long: "Makes a key a member. The node joins when it is started with a node file that names the cluster's seeds;\n" +
			"until then it is `joining`. A member is known by its key: another node under the same address is none.",
		Example: "  weida node add n4 --fingerprint sha256:4f1c… --address 10.0.0.4:7443",
		Args:    cobra.ExactArgs(1),
	}
	fingerprint := cmd.Flags().String("fingerprint", "", "the node's `KEY`, as `key show` prints it (required)")
	address := cmd.Flags().String("address", "", "`ADDRESS` of its messaging port, HOST:PORT; else it tells when it joins")
	f := addNodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *fingerprint == "" {
			return errors.New("node add needs --fingerprint: the key is the node's identity; nothing was changed")
		}
		body, err := json.Marshal(map[string]any{
			"kind": control.KindNode, "metadata": map[string]any{"name": args[0]},
			"spec": map[string]any{"fingerprint": *fingerprint, "address": *address},
		})
		if err != nil {
			return err
		}
		return f.change(cmd, control.NodeAdd, args[0], "/v1/nodes", body, nil)
	}
	return cmd
}

func newNodeVerb(verb control.Verb, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: string(verb) + " NAME", Short: short, Long: long, Example: "  " + example, Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeNode,
	}
	f := addNodeFlags(cmd)
	wait := new(bool)
	if verb == control.NodeDrain {
		wait = cmd.Flags().Bool("wait", false, "return when it has no replica of a queue any more")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var until func(*nodeItem) bool
		if *wait && !*f.dry {
			until = func(n *nodeItem) bool { return n.Live != nil && n.Live.Reached && n.Live.Replicas == 0 }
		}
		return f.change(cmd, verb, args[0], nodeKind.path(args[0])+"/"+string(verb), nil, until)
	}
	return cmd
}

// nodeAnswer is what the node answered to a change of the members.
type nodeAnswer struct {
	Node    json.RawMessage `json:"node"`
	Changed bool            `json:"changed"`
	DryRun  bool            `json:"dryRun"`
	Verdict admin.Verdict   `json:"verdict"`
}

// nodeResults says in a word what each verb did.
var nodeResults = map[control.Verb]string{
	control.NodeAdd: "added", control.NodeDrain: "draining", control.NodeUndrain: "undrained",
	control.NodeRemove: "removed",
}

// change asks for a change of a member and answers for it; until, if not nil, is waited for.
func (f nodeFlags) change(cmd *cobra.Command, verb control.Verb, name, path string, body []byte,
	until func(*nodeItem) bool,
) error {
	asJSON, err := f.output()
	if err != nil {
		return err
	}
	a, err := adminOf(cmd)
	if err != nil {
		return err
	}
	q := dryQuery(*f.dry)
	if v := f.expected(); v != nil {
		q.Set("expectedVersion", strconv.FormatUint(*v, 10))
	}
	answer, it, err := a.changeNode(cmd.Context(), path, q, body)
	r := &answers{out: os.Stdout, json: asJSON}
	result := nodeResults[verb]
	if err == nil && !answer.Changed {
		result = "unchanged"
	} else if *f.dry {
		result = "would be " + result
	}
	if err == nil && verb == control.NodeAdd && !asJSON && it.Metadata.UID != 0 {
		result += fmt.Sprintf(", number %d", it.Metadata.UID)
	}
	if !r.tell(nodeKind, name, result, it, err) || err != nil {
		return r.end(cmd.Context(), 1)
	}
	if *f.dry && !asJSON {
		pause := pauseAway
		if verb == control.NodeDrain {
			pause = "its only copy is there until another node has it"
		}
		tellVerdict(os.Stdout, &answer.Verdict, pause)
	}
	if until == nil {
		return r.end(cmd.Context(), 1)
	}
	err = poll(cmd.Context(), func() (bool, error) {
		n, err := a.node(cmd.Context(), name)
		return err == nil && until(n), err
	})
	if err != nil && cmd.Context().Err() != nil {
		return errors.New("interrupted; the change is committed, and the cluster goes on with it without this command")
	}
	r.follow(nodeKind, name, "drained", nil, err)
	return r.end(cmd.Context(), 1)
}

func (a *api) changeNode(ctx context.Context, path string, q url.Values, body []byte) (
	answer nodeAnswer, it *item, err error,
) {
	b, _, err := a.do(ctx, http.MethodPost, path, q, body)
	if err != nil {
		return answer, nil, err
	}
	if err = json.Unmarshal(b, &answer); err == nil {
		it, err = newItem(answer.Node)
	}
	if err != nil {
		return answer, nil, a.unsure(http.MethodPost, a.strange(err))
	}
	it.Changed = answer.Changed
	return answer, it, nil
}

// nodeItem is a member as a node answers with it, beside what every item has.
type nodeItem struct {
	Spec   control.NodeSpec   `json:"spec"`
	Status control.NodeStatus `json:"status"`
	Live   *admin.MemberLive  `json:"live"`
}

// node reads one member.
func (a *api) node(ctx context.Context, name string) (*nodeItem, error) {
	it, err := a.get(ctx, nodeKind, name)
	if err != nil {
		return nil, err
	}
	n := &nodeItem{}
	return n, json.Unmarshal(it.raw, n)
}

// nodeRow is a row of the table of nodes, or its head if it is nil.
func nodeRow(it *item, wide bool, now time.Time) []string {
	if it == nil {
		head := []string{"NAME", "NUMBER", "STATE", "CONTROL", "ADDRESS", "ANSWERS", "REPLICAS", "LEADS", "AGE"}
		if wide {
			head = append(head, "ADMIN", "FINGERPRINT", "DISK", "INCARNATION", "VERSION")
		}
		return head
	}
	var n nodeItem
	_ = json.Unmarshal(it.raw, &n) // what cannot be read of a later version's is left empty
	voter, answers, replicas, leads := "learner", "-", "-", "-"
	if n.Status.Voter {
		voter = "voter"
	}
	if n.Live != nil {
		answers = "no"
		if n.Live.Reached {
			answers, replicas, leads = "yes", strconv.Itoa(n.Live.Replicas), strconv.Itoa(n.Live.Leads)
		}
	}
	row := []string{
		it.Metadata.Name, strconv.FormatUint(it.Metadata.UID, 10), string(n.Status.State), voter, orDash(n.Spec.Address),
		answers, replicas, leads, age(it.Metadata.CreationTimestamp, now),
	}
	if wide {
		row = append(row, orDash(n.Spec.Admin), n.Spec.Fingerprint, orDash(n.Status.Disk),
			strconv.FormatUint(n.Status.Incarnation, 10), strconv.FormatUint(it.Metadata.ResourceVersion, 10))
	}
	return row
}

func orDash(v string) string {
	if v == "" {
		return "-"
	}
	return v
}

// pauseAway is what a node that is away means for a queue of one replica.
const pauseAway = "its only copy is there: nobody serves it while the node is away"

// tellVerdict says what a check found, and what the one-replica queues of the node have to expect.
func tellVerdict(out *os.File, v *admin.Verdict, pause string) {
	for _, f := range v.Findings {
		fmt.Fprintf(out, "  %s: %s; needed: %s\n", f.Group, f.Why, f.Needed)
	}
	for _, name := range v.Pauses {
		fmt.Fprintf(out, "  queue/%s: %s\n", name, pause)
	}
}
