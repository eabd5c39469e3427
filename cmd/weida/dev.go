package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weida/broker"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/fsync"
)

// defaultDev is where `dev` keeps its nodes.
const defaultDev = "weida-dev"

// devNodes is how many nodes the first `dev` in a directory starts, unless --nodes says otherwise.
const devNodes = 3

// devNodesMax bounds the nodes of one machine.
const devNodesMax = 9

func newDev() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "run nodes on this machine, with keys and a queue made for you",
		Long: "Runs nodes on the loopback interface over the same code and trust as serve, with one queue, demo. With\n" +
			"several each is a process of its own, with its data in DIR/n1, DIR/n2 and so on: kill one, and bring it back\n" +
			"with `dev restart`. The first start makes keys, node files and a context file in the directory; later starts\n" +
			"use them.",
		Args: cobra.NoArgs,
	}
	dir := cmd.Flags().String("data", defaultDev, "`DIR` for keys, configuration and data")
	nodes := cmd.Flags().Int("nodes", devNodes,
		"`N` nodes: 1, or 3 to 9; a directory keeps the number it was made with")
	reset := cmd.Flags().Bool("reset", false, "forget everything that an earlier dev left in DIR, then start")
	yes := cmd.Flags().Bool("yes", false, "with --reset: do not ask")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *reset {
			if err := forget(*dir, *yes); err != nil {
				return err
			}
		}
		n, err := devCount(*dir, *nodes, cmd.Flags().Changed("nodes"))
		switch {
		case err != nil:
			return err
		case n == 1:
			return dev(cmd.Context(), *dir)
		}
		return devFleet(cmd.Context(), *dir, n)
	}
	cmd.AddCommand(newDevRestart())
	return cmd
}

// devCount is how many nodes there are to be: as many as the directory has, else as many as were asked for.
func devCount(dir string, nodes int, asked bool) (int, error) {
	switch {
	case nodes == 2:
		return 0, errors.New("--nodes 2: two nodes are no cluster: when one is away the other has no majority, so two are " +
			"worse than one; nothing was started; say 1 or 3")
	case nodes < 1 || nodes > devNodesMax:
		return 0, fmt.Errorf("--nodes is 1, or 3 to %d; nothing was started", devNodesMax)
	}
	var first nodeFile
	have := 0
	switch err := readYAML(nodeConfig(dir, 1), &first); {
	case err == nil:
		have = max(len(first.Seeds), 1)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if have > 0 && asked && have != nodes {
		return 0, fmt.Errorf("%s was made with %d nodes, not %d; nothing was started; say --reset to forget it, or another "+
			"--data", dir, have, nodes)
	}
	if have > 0 {
		return have, nil
	}
	return nodes, nil
}

// nodeName and nodeConfig are what the nodes of a directory, from 1, are called, and their node files.
func nodeName(i int) string { return fmt.Sprintf("n%d", i) }

func nodeConfig(dir string, i int) string { return filepath.Join(dir, nodeName(i)+".yaml") }

func dev(ctx context.Context, dir string) error {
	config, contextPath := nodeConfig(dir, 1), filepath.Join(dir, "context.yaml")
	if err := prepare(dir, config); err != nil {
		return err
	}
	// The context file is written last: without it nothing was ever made here.
	_, made := os.Lstat(contextPath)
	return serve(ctx, config, func(n *broker.Node, f *nodeFile) error {
		listen, admin := n.Addr().String(), n.AdminAddr().String()
		if f.Listen != listen || f.Admin != admin { // the ports that were free are kept for the next start
			f.Listen, f.Admin = listen, admin
			if err := writeYAML(config, f); err != nil {
				return err
			}
		}
		if errors.Is(made, fs.ErrNotExist) {
			if err := n.MakeQueue(ctx, "demo", control.QueueSpec{}); err != nil {
				return err
			}
		}
		c := contextFile{
			Addresses: []string{listen}, Nodes: []string{n.Fingerprint().String()}, Admin: "http://" + admin,
			Keys: "keys", Name: "client",
		}
		if err := writeYAML(contextPath, c); err != nil {
			return err
		}
		announce(n, dir, contextPath)
		return nil
	})
}

// announce prints lines that work as they stand.
func announce(n *broker.Node, dir, contextPath string) {
	with, me := "", self()
	if dir != defaultDev || os.Getenv("WEIDA_CONTEXT") != "" {
		with = " --context " + quoted(contextPath)
	}
	data := filepath.Join(dir, "n1")
	fmt.Printf("weida n1 is ready at %v, loopback only, data in %s\n\n", n.Addr(), data)
	if !hasDemo(n) { // somebody deleted it, and that stays so
		fmt.Printf("a queue   %s create queue demo%s --wait   # it was deleted\n", me, with)
	}
	fmt.Printf("publish   %s pub demo 'hello'%s --want stored:flushed\n", me, with)
	fmt.Printf("a file    %s pub demo%s --file README.md --want stored:flushed\n", me, with)
	fmt.Printf("consume   %s sub demo%s --count 2\n", me, with)
	fmt.Printf("kill -9   kill -9 $(cat %s)     # then start dev again: what was confirmed is there\n",
		quoted(filepath.Join(data, "pid")))
	fmt.Printf("look      %s log stat %s\n", me, quoted(data))
	fmt.Printf("admin     http://%v/     # a page for your browser\n\nCtrl-C stops the node in order.\n", n.AdminAddr())
}

func hasDemo(n *broker.Node) bool {
	return slices.ContainsFunc(n.Registry().Queues, func(q control.Queue) bool {
		return q.Metadata.Name == "demo" && q.Metadata.DeletionTimestamp == 0
	})
}

// quoted is a path as a shell takes it.
func quoted(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// plain are the characters that mean nothing to a shell.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:@%"

// prepare makes keys and the node file, once.
func prepare(dir, config string) error {
	files := fsync.OS()
	keys := filepath.Join(dir, "keys")
	if err := fsync.MkdirAll(files, keys); err != nil {
		return err
	}
	id, err := endpoint.LoadOrCreateIdentity(files, keys, "client")
	if err != nil {
		return err
	}
	var f nodeFile
	err = readYAML(config, &f)
	if err == nil && f.Admin == "" { // of an earlier version
		f.Admin = "127.0.0.1:0"
		return writeYAML(config, f)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeYAML(config, nodeFile{
		Name: "n1", Data: "n1", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
		Trust: []trustEntry{{id.Fingerprint().String(), string(endpoint.RoleAdmin)}},
	})
}

// forget removes a dev directory, and nothing else, and says what that was. On a terminal it asks before.
func forget(dir string, yes bool) error {
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, "n1.yaml")); err != nil {
		return fmt.Errorf("%s has no n1.yaml, so it is not what dev made; nothing was removed", dir)
	}
	for i := 1; i <= devNodesMax; i++ {
		lock, err := fsync.OS().Lock(filepath.Join(dir, nodeName(i), "LOCK"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w; nothing was removed; stop what runs there first", err)
		}
		if err == nil {
			defer func() { _ = lock.Close() }() // its file is gone by then
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%w; nothing was removed", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	what := fmt.Sprintf("%s with all that is in it (%s): the keys, and every queue and message",
		dir, strings.Join(names, ", "))
	if terminal(os.Stdin) {
		if err := confirm(yes, "Remove "+what+", for good?"); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("%w; some of %s is removed, the rest is not; no node was started", err, dir)
	}
	fmt.Printf("removed %s\n", what)
	return nil
}
