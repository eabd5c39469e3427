package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"weida/broker"
	"weida/broker/peer"
	"weida/fsync"
	"weida/raftstore"
)

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "run a node from a configuration file",
		Long: "Runs a node until it is interrupted. The file holds name, data, listen, admin, messageMax, trust and\n" +
			"seeds. Queues are never in it: they are made with apply or create, and kept in the node's control log.",
		Args: cobra.NoArgs,
	}
	config := cmd.Flags().String("config", "", "node `FILE` (required)")
	child := cmd.Flags().Bool(childFlag, false, "stop when standard input ends: who started this node is gone then")
	_ = cmd.Flags().MarkHidden(childFlag) // the flag is there
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *config == "" {
			return errors.New("serve needs --config FILE; `weida dev` makes one, in its directory")
		}
		ctx := cmd.Context()
		if *child {
			ctx = untilEOF(ctx, os.Stdin)
		}
		return serve(ctx, *config, func(n *broker.Node, f *nodeFile) error {
			fmt.Printf("weida %s is ready at %v, key %v\n", f.Name, n.Addr(), n.Fingerprint())
			if a := n.AdminAddr(); a != nil {
				fmt.Printf("admin     http://%v\n", a)
			}
			return nil
		})
	}
	return cmd
}

// spareDescriptors are kept for the store's files: a node that clients have taken all others from goes on to store.
const spareDescriptors = 64

// serve runs the node of a configuration file until ctx ends or its storage fails.
func serve(ctx context.Context, config string, ready func(*broker.Node, *nodeFile) error) (err error) {
	var f nodeFile
	if err := readYAML(config, &f); err != nil {
		return err
	}
	trust, err := f.trust()
	if err == nil {
		err = f.seeds()
	}
	scrubBytes, scrubEvery := f.scrub()
	if err != nil {
		return fmt.Errorf("%s: %w; nothing was started", config, err)
	}
	data := beside(config, f.Data)
	if err := fsync.KeepDescriptors(spareDescriptors); err != nil {
		return fmt.Errorf("%w; nothing was started; raise the limit of open files (ulimit -n)", err)
	}
	if err := fsync.MkdirAll(fsync.OS(), filepath.Dir(data)); err != nil {
		return err
	}
	if dir := f.connectors(config); dir != "" {
		if err := fsync.MkdirAll(fsync.OS(), dir); err != nil {
			return fmt.Errorf("make the directory of connectors' files, connectors.dir in %s: %w; nothing was started", config,
				err)
		}
	}
	n, err := broker.Open(broker.Config{
		Dir: data, Listen: f.Listen, Trust: trust, MessageMax: f.MessageMax, Keep: []string{"pid"},
		Name: f.Name, Admin: f.Admin, Version: buildVersion(), Seeds: f.cluster(), Number: raftstore.NodeID(f.Number),
		Wait:       ctx,
		Connectors: f.connectors(config), ScrubBytes: scrubBytes, ScrubEvery: scrubEvery,
		Consensus: f.Consensus.numbers(),
		Log:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	var displaced *peer.DisplacedError
	if errors.As(err, &displaced) {
		return &exitError{statusDisplaced, err}
	}
	var full *broker.NoRoomError
	if errors.As(err, &full) {
		return &exitError{statusStorage, err}
	}
	if err != nil {
		return heldBy(data, err)
	}
	pid := filepath.Join(data, "pid")
	err = os.WriteFile(pid, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	if err == nil {
		err = ready(n, &f)
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case <-n.Failed():
			err = &exitError{statusStorage, fmt.Errorf("storage failed and the node ended: %w; evidence given before "+
				"stands as far as the disk does; mend the storage and start it again", n.Err())}
		case <-n.Displaced():
			err = &exitError{statusDisplaced, n.DisplacedBy()}
		}
	}
	return errors.Join(err, n.Close(), os.Remove(pid))
}
