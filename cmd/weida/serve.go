package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"weida/broker"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/fsync"
)

// defaultDev is where `dev` keeps its node.
const defaultDev = "weida-dev"

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "run a node from a configuration file",
		Long: "Runs a node until it is interrupted. The file holds name, data, listen, admin, messageMax and\n" +
			"trust. Queues are never in it: they are made with apply or create, and kept in the node's control log.",
		Args: cobra.NoArgs,
	}
	config := cmd.Flags().String("config", "", "node `FILE` (required)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *config == "" {
			return errors.New("serve needs --config FILE; `weida dev` makes one, in its directory")
		}
		return serve(cmd.Context(), *config, func(n *broker.Node, f *nodeFile) error {
			fmt.Printf("weida %s is ready at %v, key %v\n", f.Name, n.Addr(), n.Fingerprint())
			if a := n.AdminAddr(); a != nil {
				fmt.Printf("admin     http://%v\n", a)
			}
			return nil
		})
	}
	return cmd
}

func newDev() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "run a node on this machine, with keys and a queue made for you",
		Long: "Runs a node on the loopback interface over the same code and trust as serve, with one queue, demo.\n" +
			"The first start makes keys, a node file and a context file in the directory; later starts use them.",
		Args: cobra.NoArgs,
	}
	dir := cmd.Flags().String("data", defaultDev, "`DIR` for keys, configuration and data")
	reset := cmd.Flags().Bool("reset", false, "forget everything that an earlier dev left in DIR, then start")
	yes := cmd.Flags().Bool("yes", false, "with --reset: do not ask")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *reset {
			if err := forget(*dir, *yes); err != nil {
				return err
			}
		}
		return dev(cmd.Context(), *dir)
	}
	return cmd
}

func dev(ctx context.Context, dir string) error {
	config, contextPath := filepath.Join(dir, "n1.yaml"), filepath.Join(dir, "context.yaml")
	if err := prepare(dir, config); err != nil {
		return err
	}
	return serve(ctx, config, func(n *broker.Node, f *nodeFile) error {
		listen, admin := n.Addr().String(), n.AdminAddr().String()
		if f.Listen != listen || f.Admin != admin { // the ports that were free are kept for the next start
			f.Listen, f.Admin = listen, admin
			if err := writeYAML(config, f); err != nil {
				return err
			}
		}
		if n.Registry().Version == 0 { // nothing was ever made here
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
	lock, err := fsync.OS().Lock(filepath.Join(dir, "n1", "LOCK"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; nothing was removed; stop the node that runs there first", err)
	}
	if err == nil {
		defer func() { _ = lock.Close() }() // its file is gone by then
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

// serve runs the node of a configuration file until ctx ends or its storage fails.
func serve(ctx context.Context, config string, ready func(*broker.Node, *nodeFile) error) (err error) {
	var f nodeFile
	if err := readYAML(config, &f); err != nil {
		return err
	}
	trust, err := f.trust()
	if err != nil {
		return fmt.Errorf("%s: %w", config, err)
	}
	data := beside(config, f.Data)
	if err := fsync.MkdirAll(fsync.OS(), filepath.Dir(data)); err != nil {
		return err
	}
	n, err := broker.Open(broker.Config{
		Dir: data, Listen: f.Listen, Trust: trust, MessageMax: f.MessageMax, Keep: []string{"pid"},
		Name: f.Name, Admin: f.Admin, Version: buildVersion(),
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
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
		}
	}
	return errors.Join(err, n.Close(), os.Remove(pid))
}
