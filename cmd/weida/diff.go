package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weida/broker/control"
	"weida/broker/wire"
)

func newDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff -f FILE|DIR|-",
		Short: "show what apply would change, and change nothing",
		Long: "Has the node judge each resource as apply would, and shows line by line how the spec that stands differs\n" +
			"from the one that would. Status 0 is no difference, 10 is some.",
		Example: "  weida diff -f orders.yaml\n  weida get queue orders -o yaml | weida diff -f -",
		Args:    cobra.NoArgs,
	}
	files := cmd.Flags().StringArrayP("file", "f", nil,
		"`FILE`, directory, or - for standard input; may stand more than once")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(*files) == 0 {
			return errors.New("diff needs -f FILE; nothing was changed")
		}
		all, err := readManifests(*files)
		if err != nil {
			return err
		}
		a, err := adminOf(cmd)
		if err != nil {
			return err
		}
		worst, differ := 0, false
		for _, m := range all {
			changed, err := diff(cmd, a, m, os.Stdout)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%v %s: %v\n", m, failed(err), err)
				worst = worse(worst, status(err))
				if status(err) == statusUnreachable {
					break
				}
			}
			differ = differ || changed
		}
		if worst == 0 && differ {
			worst = statusUnhealthy
		}
		if worst != 0 {
			return &exitError{status: worst}
		}
		return nil
	}
	return cmd
}

// diff prints how one resource would change, and says whether it would.
func diff(cmd *cobra.Command, a *api, m *manifest, out io.Writer) (bool, error) {
	now, err := a.get(cmd.Context(), m.kind, m.name)
	var refused *wire.Error
	if errors.As(err, &refused) && refused.Code == wire.NoSuchResource {
		err = nil
	}
	if err != nil {
		return false, err
	}
	would, err := a.put(cmd.Context(), m, control.Apply, nil, true)
	if err != nil {
		return false, addVersions(err, nil, m.version)
	}
	var was, will []string
	if now != nil {
		was, err = specLines(now)
	}
	if err == nil {
		will, err = specLines(would)
	}
	if err != nil || !would.Changed {
		return false, err
	}
	head := "there is none"
	if now != nil {
		head = fmt.Sprintf("version %d, generation %d", now.Metadata.ResourceVersion, now.Metadata.Generation)
	}
	fmt.Fprintf(out, "--- %v, %s\n+++ %v, as it would be\n", m, head, m)
	for _, line := range lineDiff(was, will) {
		fmt.Fprintln(out, line)
	}
	return true, nil
}

// specLines is a resource's spec as lines of YAML.
func specLines(it *item) ([]string, error) {
	var b bytes.Buffer
	raw, err := json.Marshal(map[string]json.RawMessage{"spec": it.Spec})
	if err == nil {
		err = printYAML(&b, raw)
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), err
}

// lineDiff marks the lines that only one of the two has; the others stand as they are. Of several ways it shows one
// with the fewest marks.
func lineDiff(a, b []string) (lines []string) {
	// common[i][j] is how many lines a[i:] and b[j:] can have in common.
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			lines = append(lines, "  "+a[i])
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			lines = append(lines, "- "+a[i])
			i++
		default:
			lines = append(lines, "+ "+b[j])
			j++
		}
	}
	return lines
}
