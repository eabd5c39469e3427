package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"

	"weida/broker/endpoint"
	"weida/fsync"
	"weida/fuzz/internal/fleet"
)

// This file is a cluster that somebody else runs.

// prefix is that of the queues that a run makes there.
const prefix = "crash-"

// target is what a run needs of a context file; `weida dev` writes one.
type target struct {
	Addresses []string `yaml:"addresses"`
	Nodes     []string `yaml:"nodes"` // fingerprints
	Admin     string   `yaml:"admin"`
	Admins    []string `yaml:"admins"`
	Keys      string   `yaml:"keys"` // directory, relative to the file
	Name      string   `yaml:"name"`
}

// visit finds the cluster of a context file.
func (r *run) visit(ctx context.Context) error {
	b, err := os.ReadFile(r.o.target)
	if err != nil {
		return fmt.Errorf("--target is the context file of a cluster that runs: %w; nothing was asked or made; name the "+
			"file that `weida dev` wrote, DIR/context.yaml (weida-dev/context.yaml), or that of your cluster's clients", err)
	}
	var t target
	if err := yaml.Unmarshal(b, &t); err != nil {
		return fmt.Errorf("%s: %w", r.o.target, err)
	}
	trust := make(map[endpoint.Fingerprint]endpoint.Role)
	for _, text := range t.Nodes {
		key, err := endpoint.ParseFingerprint(text)
		if err != nil {
			return fmt.Errorf("%s: %w", r.o.target, err)
		}
		trust[key] = endpoint.RoleNode
	}
	keys := t.Keys
	if !filepath.IsAbs(keys) {
		keys = filepath.Join(filepath.Dir(r.o.target), keys)
	}
	if _, err := os.Stat(keys); err != nil {
		return err
	}
	if r.key, err = endpoint.LoadOrCreateIdentity(fsync.OS(), keys, t.Name); err != nil {
		return err
	}
	r.addrs, r.trust, r.fragile = t.Addresses, endpoint.NewTrust(trust), -1
	for _, base := range append([]string{t.Admin}, t.Admins...) {
		if base != "" {
			r.remotes = append(r.remotes, &fleet.Node{Admin: base})
		}
	}
	if len(r.remotes) == 0 || len(r.addrs) == 0 {
		return fmt.Errorf("%s names no addresses, or no admin", r.o.target)
	}
	s, err := r.remotes[0].Status(ctx)
	if err != nil {
		return fmt.Errorf("ask %s for the cluster: %w", r.remotes[0].Admin, err)
	}
	for _, n := range s.Nodes {
		r.names = append(r.names, n.Metadata.Name)
	}
	if r.o.nodes = len(r.names); r.o.nodes%2 == 0 {
		r.o.nodes--
	}
	return nil
}

// depart deletes what the run made there.
func (r *run) depart() {
	if r.o.target == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	g := &governor{r: r, rng: rand.New(rand.NewPCG(r.o.seed, 6))}
	for _, s := range r.slots {
		if _, err := g.insist(ctx, http.MethodDelete, fleet.QueuePath(s.name)+"?drainDeadline=0s", nil); err != nil {
			r.trouble("delete queue %s: %v", s.name, err)
		}
	}
}
