package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/control"
)

func newDescribe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe queue NAME…|connector NAME…|node NAME…",
		Short: "show all that is known of a resource",
		Long: "Shows what is wanted of a resource, what was done and why it is not done, where it is, and what is in it:\n" +
			"every message that came in is ready, unsettled, or went out for a reason.",
		Example:           "  weida describe queue orders\n  weida describe queue orders -o json",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeTarget(false),
	}
	format := formatFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		form, err := format()
		if err != nil {
			return err
		}
		items, ferr := fetchAll(cmd, args)
		if ferr != nil && len(items) == 0 {
			return ferr
		}
		if form != "text" {
			return errors.Join(printItems(os.Stdout, items, form, time.Now()), ferr)
		}
		members := membersOf(cmd, items)
		for i, it := range items {
			if i > 0 {
				fmt.Println()
			}
			if err := describe(os.Stdout, it, members, time.Now()); err != nil {
				return err
			}
		}
		return ferr
	}
	return cmd
}

// sheet is a list of names and values in two columns.
type sheet struct{ w *tabwriter.Writer }

func (s sheet) row(name, format string, args ...any) {
	fmt.Fprintf(s.w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
}

// membersOf is what the nodes are called, by their keys, and which of them do not answer. Where it cannot be had the
// keys stand for them.
func membersOf(cmd *cobra.Command, items []*item) map[string]string {
	if !slices.ContainsFunc(items, func(it *item) bool { return len(it.Status.Placement) > 0 }) {
		return nil
	}
	a, err := adminOf(cmd)
	if err != nil {
		return nil
	}
	nodes, err := a.list(cmd.Context(), nodeKind)
	if err != nil {
		return nil
	}
	return namesByKey(nodes)
}

// describe prints a resource for people. members are the names of nodes by their keys.
func describe(out io.Writer, it *item, members map[string]string, now time.Time) error {
	s := sheet{tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
	if it.Kind == control.KindNode {
		if err := s.node(it, now); err != nil {
			return err
		}
		return s.w.Flush()
	}
	m := it.Metadata
	fmt.Fprintf(s.w, "%s %s\n", it.Kind, m.Name)
	done := "done"
	if it.Status.ObservedGeneration < m.Generation {
		done = fmt.Sprintf("under way, generation %d is done", it.Status.ObservedGeneration)
	}
	s.row("phase", "%s · generation %d, %s", it.Status.Phase, m.Generation, done)
	s.row("version", "%d · uid %d · made %s (%s ago)", m.ResourceVersion, m.UID, when(m.CreationTimestamp),
		age(m.CreationTimestamp, now))
	if m.DeletionTimestamp != 0 {
		s.row("deletion", "asked for %s · drains until %s at the latest", when(m.DeletionTimestamp), when(m.DrainUntil))
	}
	if it.Kind == control.KindConnector {
		if err := s.connector(it); err != nil {
			return err
		}
	} else if err := s.queue(it); err != nil {
		return err
	}
	for i, r := range it.Status.Placement {
		name := members[r.Node]
		if name == "" {
			name = "node " + r.Node
		}
		s.row(onlyFirst(i, "placement"), "%s · disk %s · %s", name, r.Disk, roleOf(&r))
	}
	if it.Status.Step != control.Steady {
		s.row("", "its members are being changed: %s", it.Status.Step)
	}
	if len(it.Status.Placement) == 0 {
		s.row("placement", "none yet")
	}
	for i, c := range it.Status.Conditions {
		s.row(onlyFirst(i, "conditions"), "%s (%s): %s", c.Type, c.Reason, c.Message)
	}
	if len(it.Status.Conditions) == 0 {
		s.row("conditions", "none")
	}
	if it.Kind == control.KindQueue {
		s.live(it)
	}
	return s.w.Flush()
}

// roleOf is a replica's part, and what becomes of it.
func roleOf(r *control.Replica) string {
	role := "replica"
	switch {
	case r.Owner:
		role = "owner"
	case r.Learner:
		role = "learner"
	}
	if r.Replica != 0 && !r.Owner {
		role += fmt.Sprintf(" %d", r.Replica)
	}
	switch {
	case r.Lost != "":
		role += ", lost: " + r.Lost
	case r.Next == control.Leaves:
		role += ", leaves"
	case r.Next == control.Rises:
		role += ", to be a voter"
	}
	return role
}

func onlyFirst(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}

func (s sheet) queue(it *item) error {
	var spec control.QueueSpec
	if err := json.Unmarshal(it.Spec, &spec); err != nil {
		return fmt.Errorf("the spec cannot be read by this version: %w; -o json shows it", err)
	}
	s.row("spec", "replicas %d · durability %s · drain deadline %v", spec.Replicas, spec.Durability,
		time.Duration(spec.DrainDeadline))
	l := spec.Limits
	s.row("limits", "messages %s · bytes %s · bytes of a message %s",
		limit(l.Messages, func(n uint64) string { return fmt.Sprint(n) }), limit(l.Bytes, size), limit(l.MessageBytes, size))
	if p := spec.Placement; len(p.Nodes) > 0 || p.PreferredLeader != "" {
		s.row("pinned to", "%s · preferred leader %s", strings.Join(p.Nodes, ", "), orNone(p.PreferredLeader))
	}
	return nil
}

func orNone(v string) string {
	if v == "" {
		return "none"
	}
	return v
}

func limit(n uint64, text func(uint64) string) string {
	if n == 0 {
		return "default"
	}
	return text(n)
}

func (s sheet) connector(it *item) error {
	var spec control.ConnectorSpec
	if err := json.Unmarshal(it.Spec, &spec); err != nil {
		return fmt.Errorf("the spec cannot be read by this version: %w; -o json shows it", err)
	}
	s.row("spec", "%s %s · address %s · queue %s", spec.Protocol, spec.Direction, spec.Address, spec.Queue)
	s.row("evidence", "%s · loss %s", spec.Evidence, spec.Loss)
	var names []string
	for name := range spec.Policy {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		s.row(onlyFirst(i, "policy"), "%s: %s", name, spec.Policy[name])
	}
	return nil
}

// node shows a member of the cluster.
func (s sheet) node(it *item, now time.Time) error {
	var n nodeItem
	if err := json.Unmarshal(it.raw, &n); err != nil {
		return fmt.Errorf("the node cannot be read by this version: %w; -o json shows it", err)
	}
	m, part := it.Metadata, "learner"
	if n.Status.Voter {
		part = "voter"
	}
	fmt.Fprintf(s.w, "%s %s\n", it.Kind, m.Name)
	s.row("number", "%d · version %d · added %s ago", m.UID, m.ResourceVersion, age(m.CreationTimestamp, now))
	s.row("state", "%s · %s of the control group", n.Status.State, part)
	s.row("key", "%s", n.Spec.Fingerprint)
	s.row("address", "%s · admin %s", orDash(n.Spec.Address), orDash(n.Spec.Admin))
	s.row("disk", "%s · incarnation %d", orDash(n.Status.Disk), n.Status.Incarnation)
	switch {
	case n.Live == nil:
		s.row("groups", "not known")
	case !n.Live.Reached:
		s.row("groups", "not known: it does not answer: %s", n.Live.Why)
	default:
		s.row("groups", "%d replicas of queues · leads or owns %d groups", n.Live.Replicas, n.Live.Leads)
	}
	for i, c := range n.Status.Conditions {
		s.row(onlyFirst(i, "conditions"), "%s (%s): %s", c.Type, c.Reason, c.Message)
	}
	return nil
}

// live shows what the node that answered knows of a running queue.
func (s sheet) live(it *item) {
	l := it.Live
	if l == nil {
		s.row("leader", "%s", cmp.Or(it.Leader, "none that answers"))
		s.row("messages", "not known: whoever leads or owns this queue did not answer; `%s status` says what to do", self())
		return
	}
	s.row("leader", "%s · term %d", l.Leader, l.Term)
	s.row("messages", "%d in = %d ready + %d unsettled + out: %d accepted, %d rejected, %d purged", l.In, l.Ready,
		l.Unsettled, l.Accepted, l.Rejected, l.Purged)
	if sum := l.Ready + l.Unsettled + l.Accepted + l.Rejected + l.Purged; sum != l.In {
		s.row("", "! these are %d, not %d: counts that do not agree are a defect of weida, please report it", sum, l.In)
	}
	s.row("returned", "%d times a message was released", l.Released)
	s.row("bytes", "%s of bodies · %s on disk", size(l.Bytes), size(l.DiskBytes))
	s.row("used by", "%d subscriptions · %d consumers now · %d producers with an id", l.Subscriptions, l.Consumers,
		l.Producers)
	if l.Trouble != "" {
		s.row("trouble", "! it takes no messages: %s", l.Trouble)
	}
}
