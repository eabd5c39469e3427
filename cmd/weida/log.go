package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weida/fsync"
	"weida/segment"
	"weida/wal"
)

func newLog() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "look at a data directory, changing nothing",
		Long: "Reads the files of a node, running or stopped, without its lock and without changing anything. While a\n" +
			"node runs, the end of a log is what a start after a power cut would find at that moment.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLogStat(), newLogVerify(), newLogDump())
	return cmd
}

func newLogStat() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stat DIR", Short: "count what each group holds",
		Example: "  weida log stat weida-dev/n1",
		Args:    cobra.ExactArgs(1),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		s, err := wal.StatStore(fsync.OS(), args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(os.Stdout).Encode(statJSON(s))
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "group\tterm\tfirst\tlast\tsegments\tsealed\tbodies\tbytes\ton disk\t")
		for _, g := range s.Groups {
			if g.Err != nil {
				fmt.Fprintf(w, "%d\t  damaged: %v\n", uint64(g.Group), g.Err)
				continue
			}
			fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", uint64(g.Group), uint64(g.HardState.Term),
				uint64(g.First), uint64(g.Last), g.Segments, g.Sealed, g.Bodies, g.Bytes, g.Allocated)
		}
		return w.Flush()
	}
	return cmd
}

// statJSON is a StoreStat with its errors as text.
func statJSON(s wal.StoreStat) any {
	type group struct {
		wal.GroupStat
		Err string `json:",omitempty"`
	}
	out := struct {
		Disk        string
		Incarnation uint64
		CleanStop   bool
		Groups      []group
	}{fmt.Sprintf("%x", s.Identity.Disk), s.Identity.Incarnation, s.Identity.CleanStop, []group{}}
	for _, g := range s.Groups {
		one := group{GroupStat: g}
		if g.Err != nil {
			one.Err = g.Err.Error()
		}
		out.Groups = append(out.Groups, one)
	}
	return out
}

// findingLine is a finding as JSON.
type findingLine struct {
	Result  string `json:"result"` // damaged or survived
	Group   uint64 `json:"group"`  // 0 for a file of the node
	Path    string `json:"path"`
	Pos     int64  `json:"pos"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
}

func newLogVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify DIR", Short: "read everything and judge it", Args: cobra.ExactArgs(1),
		Example: "  weida log verify weida-dev/n1",
		Long:    "Reads every byte, payloads included. Exit status 10 if anything is damaged.",
	}
	output := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		findings := []findingLine{}
		sum, err := wal.VerifyStore(fsync.OS(), args[0], func(f wal.Finding) {
			word := "damaged"
			if f.Survived {
				word = "survived"
			}
			if asJSON {
				findings = append(findings, findingLine{
					word, uint64(f.Group), f.Path, f.Pos, fmt.Sprint(f.Verdict), fmt.Sprint(f.Err),
				})
				return
			}
			fmt.Printf("%s  group %d  %s: %v\n", word, uint64(f.Group), f.Verdict, f.Err)
		})
		if err != nil {
			return err
		}
		if asJSON {
			err = printJSON("groups", sum.Groups, "files", sum.Files, "records", sum.Records, "bytes", sum.Bytes,
				"damaged", sum.Damaged, "survived", sum.Survived, "findings", findings)
		} else {
			fmt.Printf("%d groups, %d files, %d records, %d bytes read: %d damaged, %d survived\n",
				sum.Groups, sum.Files, sum.Records, sum.Bytes, sum.Damaged, sum.Survived)
		}
		if err == nil && sum.Damaged > 0 {
			err = &exitError{status: statusUnhealthy}
		}
		return err
	}
	return cmd
}

func newLogDump() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dump DIR", Short: "print every record's fields, as STORE.md names them",
		Example: "  weida log dump weida-dev/n1 --group 1",
		Args:    cobra.ExactArgs(1),
	}
	only := cmd.Flags().Uint64("group", 0, "only group `N`; 0 is all")
	output := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		in, err := wal.InspectStore(fsync.OS(), args[0])
		if err != nil {
			return err
		}
		if *only != 0 && !slices.Contains(in.Groups, segment.GroupID(*only)) {
			return fmt.Errorf("%s has no group %d; nothing was printed; it has %s", args[0], *only, groupWords(in.Groups))
		}
		w := bufio.NewWriter(os.Stdout)
		for _, g := range in.Groups {
			if *only != 0 && g != segment.GroupID(*only) {
				continue
			}
			err := wal.DumpGroup(fsync.OS(), args[0], g, func(l wal.DumpLine) error { return dumpLine(w, g, l, asJSON) })
			if err != nil {
				return err
			}
		}
		return w.Flush()
	}
	return cmd
}

// groupWords name the groups that there are.
func groupWords(groups []segment.GroupID) string {
	if len(groups) == 0 {
		return "none"
	}
	var names []string
	for _, g := range groups {
		names = append(names, strconv.FormatUint(uint64(g), 10))
	}
	return either(names, "and")
}

func dumpLine(w *bufio.Writer, g segment.GroupID, l wal.DumpLine, asJSON bool) error {
	if asJSON {
		m := map[string]any{"group": uint64(g), "file": l.File, "pos": l.Pos, "size": l.Size, "kind": l.Kind}
		for _, f := range l.Fields {
			m[f.Name] = f.Value
		}
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = w.Write(append(b, '\n'))
		return err
	}
	fmt.Fprintf(w, "%d/%s@%d  %s", uint64(g), l.File, l.Pos, l.Kind)
	for _, f := range l.Fields {
		fmt.Fprintf(w, "  %s=%v", f.Name, f.Value)
	}
	return w.WriteByte('\n')
}
