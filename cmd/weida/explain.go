package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"weida/broker/admin"
	"weida/broker/wire"
	"weida/segment"
)

func newExplain() *cobra.Command {
	return &cobra.Command{
		Use:     "explain [CODE]",
		Short:   "say what an error code means, for your data too, and what to do",
		Example: "  weida explain E1003\n  weida explain not_offered\n  weida explain",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, i := range wire.Codes {
					fmt.Printf("E%d  %-20s %s\n", uint64(i.Code), i.Name, i.Meaning)
				}
				return nil
			}
			i, ok := lookup(args[0])
			if near := nearestCode(args[0]); !ok && near != "" {
				return fmt.Errorf("%q is no code of this version; did you mean `%s explain %s`?", args[0], self(), near)
			}
			if !ok {
				return fmt.Errorf("%q is no code of this version; `%s explain` alone lists them", args[0], self())
			}
			fmt.Printf("E%d %s\n\nWhat happened:  %s\nYour data:      %s\nWhat to do:     %s\nRetry:          %s\n",
				uint64(i.Code), i.Name, i.Meaning, i.Effect, i.Remedy, i.Retry)
			return nil
		},
	}
}

// lookup finds a code by its number, with or without the E, or by its name.
func lookup(s string) (wire.Info, bool) {
	if n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToUpper(s), "E"), 10, 64); err == nil {
		return wire.Lookup(wire.Code(n))
	}
	for _, i := range wire.Codes {
		if i.Name == s {
			return i, true
		}
	}
	return wire.Info{}, false
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "print version, commit and format version",
		Example: "  weida version -o json",
		Args:    cobra.NoArgs,
	}
	output := outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		v := buildVersion()
		if asJSON {
			return json.NewEncoder(os.Stdout).Encode(v)
		}
		fmt.Printf("weida %s, commit %s, %s, store format %d\n", v.Version, v.Commit, v.Go, v.StoreFormat)
		return nil
	}
	return cmd
}

// buildVersion is what this binary was built from.
func buildVersion() admin.Version {
	v := admin.Version{Version: "devel", Commit: "unknown", StoreFormat: segment.Version}
	if b, ok := debug.ReadBuildInfo(); ok {
		v.Version, v.Go = b.Main.Version, b.GoVersion
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}
