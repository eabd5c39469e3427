package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/control"
)

func newCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create queue NAME | create -f FILE|DIR|-",
		Short: "make resources, refused where the name is taken",
		Long: "Makes a queue from flags, or resources from files as apply reads them. What is not given is the default.\n" +
			"Where there is one of that name it is refused and nothing changes.",
		Example: "  weida create queue orders\n" +
			"  weida create queue audit --durability written --messages 100000 --bytes 1GiB\n" +
			"  weida create -f orders.yaml",
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeWords("queue"),
	}
	var f createFlags
	f.add(cmd)
	o := putFlags(cmd, control.Create)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		all, err := f.manifests(cmd, args)
		if err != nil {
			return err
		}
		return putAll(cmd, all, o(), asJSON)
	}
	return cmd
}

// createFlags are the flags of `create`.
type createFlags struct {
	files               []string
	messages            uint64
	bytes, messageBytes string
	replicas            int
	durability          string
	drain               time.Duration
}

func (f *createFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.files, "file", "f", nil, "`FILE`, directory, or - for standard input, instead of flags")
	cmd.Flags().Uint64Var(&f.messages, "messages", 0, "limit: `N` messages; 0 is the default")
	cmd.Flags().StringVar(&f.bytes, "bytes", "",
		"limit: `N` bytes of bodies, with 256 more for each; KiB, MiB and GiB are understood")
	cmd.Flags().StringVar(&f.messageBytes, "message-bytes", "", "limit: `N` bytes of one body")
	cmd.Flags().IntVar(&f.replicas, "replicas", 1, "`N` copies")
	cmd.Flags().StringVar(&f.durability, "durability", "flushed", "`LEVEL` that replicas reach: flushed or written")
	cmd.Flags().DurationVar(&f.drain, "drain-deadline", 0, "`TIME` that a deletion lets consumers drain it, as 30s or 5m")
	_ = cmd.RegisterFlagCompletionFunc("durability", completeFlag("flushed", "written")) // the flag is there
}

// specFlags are those that say what the queue is to be.
var specFlags = []string{"messages", "bytes", "message-bytes", "replicas", "durability", "drain-deadline"}

func (f *createFlags) manifests(cmd *cobra.Command, args []string) ([]*manifest, error) {
	if len(f.files) > 0 {
		for _, name := range specFlags {
			if cmd.Flags().Changed(name) {
				return nil, fmt.Errorf("--%s goes with `create queue NAME`, not with -f; nothing was changed", name)
			}
		}
		if len(args) > 0 {
			return nil, errors.New("either -f FILE or `queue NAME`; nothing was changed")
		}
		return readManifests(f.files)
	}
	if len(args) == 1 && slices.Contains(manifestExtensions, filepath.Ext(args[0])) {
		return nil, fmt.Errorf("create reads the files that -f names; nothing was changed; say `%s create -f %s`", self(),
			args[0])
	}
	t, err := parseTarget(args)
	if err != nil {
		return nil, err
	}
	if t.kind.kind != control.KindQueue || len(t.names) != 1 {
		return nil, errors.New("create takes `queue NAME`, or -f FILE for anything else; nothing was changed")
	}
	spec, err := f.spec(cmd)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was changed", err)
	}
	return []*manifest{{kind: t.kind, name: t.names[0], spec: spec}}, nil
}

// spec holds what was given and nothing else: the defaults are the node's.
func (f *createFlags) spec(cmd *cobra.Command) ([]byte, error) {
	spec, limits := map[string]any{}, map[string]any{}
	changed := cmd.Flags().Changed
	if changed("messages") {
		limits["messages"] = f.messages
	}
	for _, b := range []struct{ flag, key, text string }{
		{"bytes", "bytes", f.bytes}, {"message-bytes", "messageBytes", f.messageBytes},
	} {
		if !changed(b.flag) {
			continue
		}
		n, err := parseSize(b.text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", b.flag, err)
		}
		limits[b.key] = n
	}
	if len(limits) > 0 {
		spec["limits"] = limits
	}
	if changed("replicas") {
		spec["replicas"] = f.replicas
	}
	if changed("durability") {
		spec["durability"] = f.durability
	}
	if changed("drain-deadline") {
		spec["drainDeadline"] = f.drain.String()
	}
	return json.Marshal(spec)
}

// parseSize reads a number of bytes, with a unit or without.
func parseSize(s string) (uint64, error) {
	factor := uint64(1)
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			s, factor = strings.TrimSpace(rest), 1<<(10*(i+1))
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > (1<<63-1)/factor {
		return 0, fmt.Errorf("%q is no number of bytes, as 65536, 64KiB or 2GiB", s)
	}
	return n * factor, nil
}
