package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"weida/broker/control"
)

func newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get queues|queue NAME…|connectors|nodes|all",
		Short: "list resources",
		Long: "Lists resources as a table, or as they are: one object a line with -o json, one document each with\n" +
			"-o yaml. Both can be given back to `apply`; they carry the version that was seen, so that a change in\n" +
			"between is a conflict. READY and UNSETTLED count messages, BYTES those of their bodies; a limit of 0 is\n" +
			"the default. --watch goes on with every change, each once and in order, until it is interrupted.",
		Example: "  weida get queues\n  weida get queues -o wide\n  weida get queue orders -o yaml\n" +
			"  weida get all -o json | jq -r .metadata.name\n  weida get queues --watch",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeTarget(true),
	}
	format := formatFlag(cmd, "table", "wide", "json", "yaml")
	follow := cmd.Flags().BoolP("watch", "w", false, "go on with every change")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		form, err := format()
		if err != nil {
			return err
		}
		if *follow {
			return watch(cmd, args, form)
		}
		items, ferr := fetchAll(cmd, args)
		if ferr != nil && len(items) == 0 {
			return ferr
		}
		if len(items) == 0 && (form == "table" || form == "wide") {
			sayEmpty(args[0])
			return nil
		}
		return errors.Join(printItems(os.Stdout, items, form, time.Now()), ferr)
	}
	return cmd
}

// sayEmpty says that there is nothing of the kind that was asked for, and how one is made.
func sayEmpty(what string) {
	how := "create queue NAME"
	switch what {
	case "all":
		what = "resources"
	case "connector", "connectors":
		what, how = "connectors", "apply -f FILE"
	case "node", "nodes":
		what, how = "nodes", "node add NAME"
	default:
		what = "queues"
	}
	fmt.Fprintf(os.Stderr, "there are no %s; make one with `%s %s`\n", what, self(), how)
}

// formatFlag adds -o with these formats, the first of which is the default.
func formatFlag(cmd *cobra.Command, formats ...string) func() (string, error) {
	o := cmd.Flags().StringP("output", "o", formats[0], "`FORMAT` of what is printed: "+either(formats, "or"))
	_ = cmd.RegisterFlagCompletionFunc("output", completeFlag(formats...)) // the flag is there
	return func() (string, error) {
		if !slices.Contains(formats, *o) {
			return "", fmt.Errorf("-o %q: the formats are %s", *o, either(formats, "and"))
		}
		return *o, nil
	}
}

// either joins words as people do.
func either(words []string, last string) string {
	n := len(words) - 1
	if n == 0 {
		return words[0]
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// target is what a command is about.
type target struct {
	kind  kindInfo
	names []string // none: all of the kind
	all   bool     // of every kind
}

// kinds are those whose lists are meant. Nodes are no resources that could be applied, so they are not among all.
func (t target) kinds() []kindInfo {
	if t.all {
		return kinds
	}
	return []kindInfo{t.kind}
}

// parseTarget reads `queue NAME…`, `queues`, `queue/NAME…` and `all`.
func parseTarget(args []string) (target, error) {
	const forms = "say `queue NAME`, `queues`, `connector NAME`, `connectors`, `nodes` or `all`"
	if len(args) == 0 {
		return target{}, fmt.Errorf("nothing was named; %s", forms)
	}
	if args[0] == "all" && len(args) == 1 {
		return target{all: true}, nil
	}
	for _, k := range append([]kindInfo{nodeKind}, kinds...) {
		if args[0] == k.word || args[0] == k.plural {
			return target{kind: k, names: args[1:]}, nil
		}
		if !strings.HasPrefix(args[0], k.word+"/") {
			continue
		}
		t := target{kind: k}
		for _, arg := range args {
			name, ok := strings.CutPrefix(arg, k.word+"/")
			if !ok || name == "" {
				return target{}, fmt.Errorf("%q is not of the form %s/NAME, as the one before it", arg, k.word)
			}
			t.names = append(t.names, name)
		}
		return t, nil
	}
	return target{}, fmt.Errorf("%q is no kind of resource; %s", args[0], forms)
}

// fetchAll reads what args name. With an error there may be items, too: those that were found.
func fetchAll(cmd *cobra.Command, args []string) (items []*item, err error) {
	t, err := parseTarget(args)
	if err != nil {
		return nil, err
	}
	a, err := adminOf(cmd)
	if err != nil {
		return nil, err
	}
	if t.all || len(t.names) == 0 {
		for _, k := range t.kinds() {
			some, err := a.list(cmd.Context(), k)
			if err != nil {
				return nil, err
			}
			items = append(items, some...)
		}
		return items, nil
	}
	worst := 0
	for _, name := range t.names {
		it, err := a.get(cmd.Context(), t.kind, name)
		if err != nil {
			if len(t.names) == 1 || status(err) == statusUnreachable {
				return items, err
			}
			fmt.Fprintf(os.Stderr, "%s/%s: %v\n", t.kind.word, name, err)
			worst = worse(worst, status(err))
			continue
		}
		items = append(items, it)
	}
	if worst != 0 {
		return items, &exitError{status: worst}
	}
	return items, nil
}

// printItems prints resources in one of the formats of `get`.
func printItems(out io.Writer, items []*item, form string, now time.Time) error {
	switch form {
	case "json":
		for _, it := range items {
			if _, err := fmt.Fprintf(out, "%s\n", it.raw); err != nil {
				return err
			}
		}
		return nil
	case "yaml":
		for i, it := range items {
			if i > 0 {
				fmt.Fprintln(out, "---")
			}
			if err := printYAML(out, it.raw); err != nil {
				return err
			}
		}
		return nil
	}
	return printTables(out, items, form == "wide", now)
}

// printYAML prints a JSON object as YAML, in the same order.
func printYAML(out io.Writer, raw []byte) error {
	var v any
	if err := yaml.UnmarshalWithOptions(raw, &v, yaml.UseOrderedMap()); err != nil {
		return err
	}
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = out.Write(b)
	return err
}

// printTables prints a table for each kind that is there, and below it what is not as it should be.
func printTables(out io.Writer, items []*item, wide bool, now time.Time) error {
	for i, k := range append(slices.Clone(kinds), nodeKind) {
		var some []*item
		for _, it := range items {
			if it.Kind == k.kind {
				some = append(some, it)
			}
		}
		if len(some) == 0 {
			continue
		}
		if i > 0 && len(some) < len(items) {
			fmt.Fprintln(out)
		}
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		row := rowOf(k)
		fmt.Fprintln(w, strings.Join(row(nil, wide, now), "\t"))
		for _, it := range some {
			fmt.Fprintln(w, strings.Join(row(it, wide, now), "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		unseen := 0
		for _, it := range some {
			if it.Live != nil && it.Live.Trouble != "" {
				fmt.Fprintf(os.Stderr, "! %s/%s takes no messages: %s\n", k.word, it.Metadata.Name, it.Live.Trouble)
			}
			if k.kind == control.KindQueue && it.Live == nil && it.Status.Phase == control.Ready {
				unseen++
			}
			warn(k, it)
		}
		if unseen > 0 {
			fmt.Fprintf(os.Stderr, "! dashes: who leads or owns %d of these did not answer; `%s status` says what to do\n",
				unseen, self())
		}
	}
	return nil
}

// rowOf makes the rows of a kind's table.
func rowOf(k kindInfo) func(it *item, wide bool, now time.Time) []string {
	switch k.kind {
	case control.KindConnector:
		return connectorRow
	case control.KindNode:
		return nodeRow
	default:
		return queueRow
	}
}

// queueRow is a row of the table of queues, or its head if it is nil.
func queueRow(it *item, wide bool, now time.Time) []string {
	if it == nil {
		head := []string{"NAME", "PHASE", "REPLICAS", "DURABILITY", "READY", "UNSETTLED", "BYTES", "AGE"}
		if wide {
			head = append(head, "LEADER", "TERM", "UID", "GENERATION", "VERSION", "CONSUMERS", "ON DISK")
		}
		return head
	}
	var spec control.QueueSpec
	_ = json.Unmarshal(it.Spec, &spec) // what cannot be read of a later version's is left empty
	live := it.Live
	row := []string{
		it.Metadata.Name, string(it.Status.Phase), strconv.Itoa(spec.Replicas), string(spec.Durability),
		known(live, func() string { return strconv.FormatUint(live.Ready, 10) }),
		known(live, func() string { return strconv.FormatUint(live.Unsettled, 10) }),
		known(live, func() string { return size(live.Bytes) }), age(it.Metadata.CreationTimestamp, now),
	}
	if wide {
		row = append(row, orDash(it.Leader),
			known(live, func() string { return strconv.FormatUint(live.Term, 10) }),
			strconv.FormatUint(it.Metadata.UID, 10), strconv.FormatUint(it.Metadata.Generation, 10),
			strconv.FormatUint(it.Metadata.ResourceVersion, 10),
			known(live, func() string { return strconv.Itoa(live.Consumers) }),
			known(live, func() string { return size(live.DiskBytes) }))
	}
	return row
}

// known is a value of a running queue, or a dash where this node does not run it.
func known(live *liveItem, value func() string) string {
	if live == nil {
		return "-"
	}
	return value()
}

// connectorRow is a row of the table of connectors, or its head if it is nil.
func connectorRow(it *item, wide bool, now time.Time) []string {
	if it == nil {
		head := []string{"NAME", "PHASE", "PROTOCOL", "DIRECTION", "QUEUE", "EVIDENCE", "LOSS", "AGE"}
		if wide {
			head = append(head, "UID", "GENERATION", "VERSION", "ADDRESS")
		}
		return head
	}
	var spec control.ConnectorSpec
	_ = json.Unmarshal(it.Spec, &spec) // what cannot be read of a later version's is left empty
	row := []string{
		it.Metadata.Name, string(it.Status.Phase), spec.Protocol, spec.Direction, spec.Queue, spec.Evidence, spec.Loss,
		age(it.Metadata.CreationTimestamp, now),
	}
	if wide {
		row = append(row, strconv.FormatUint(it.Metadata.UID, 10), strconv.FormatUint(it.Metadata.Generation, 10),
			strconv.FormatUint(it.Metadata.ResourceVersion, 10), spec.Address)
	}
	return row
}

// size is a number of bytes for people.
func size(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v /= 1 << 10; v < 1<<10 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

// age is how long ago a time in milliseconds was, for people.
func age(ms int64, now time.Time) string {
	if ms == 0 {
		return "-"
	}
	d := max(now.Sub(time.UnixMilli(ms)), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// summary is a resource in one line, for a refusal.
func summary(it *item) string {
	m := it.Metadata
	phase := string(it.Status.Phase)
	if it.Kind == control.KindNode {
		var n nodeItem
		_ = json.Unmarshal(it.raw, &n) // what cannot be read of a later version's is left empty
		phase = string(n.Status.State)
	}
	s := fmt.Sprintf("%s %q · version %d · generation %d · %s", it.Kind, m.Name, m.ResourceVersion, m.Generation, phase)
	if m.DeletionTimestamp != 0 {
		s += " · drains until " + when(m.DrainUntil)
	}
	if len(it.Spec) > 0 {
		s += " · spec " + string(it.Spec)
	}
	return s
}

// when is a time in milliseconds since 1970 for people, in UTC.
func when(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05 MST") }
