package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"

	"weida/broker/endpoint"
	"weida/fsync"
	"weida/fuzz/internal/process"
)

// node is the process under attack: `weida serve` on a directory of its own.
type node struct {
	*process.Node
	dir    string
	good   *endpoint.Identity // trusted as admin
	foe    *endpoint.Identity // trusted as client
	trust  *endpoint.Trust    // of those who connect
	key    string             // the node's fingerprint
	listen string
	admin  string        // http://HOST:PORT
	answer time.Duration // how long it may take to answer
	said   *os.File
}

// start makes keys and a node file in dir, which exists, and starts a node there.
func start(bin, dir string) (*node, error) {
	n := &node{dir: dir}
	if err := n.prepare(); err != nil {
		return nil, err
	}
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		return nil, err
	}
	n.said, n.Node = said, process.New(bin, filepath.Join(dir, "n1.yaml"), said)
	place, err := n.Start()
	if err != nil {
		if n.Alive() {
			err = errors.Join(err, n.Kill())
		}
		return nil, errors.Join(err, said.Close())
	}
	n.listen, n.admin, n.key, n.trust = place.Listen, place.Admin, place.Key.String(), trustOf(place.Key)
	return n, nil
}

func (n *node) prepare() (err error) {
	keys := filepath.Join(n.dir, "keys")
	if err := os.MkdirAll(keys, 0o700); err != nil {
		return err
	}
	if n.good, err = endpoint.LoadOrCreateIdentity(fsync.OS(), keys, "good"); err != nil {
		return err
	}
	if n.foe, err = endpoint.LoadOrCreateIdentity(fsync.OS(), keys, "foe"); err != nil {
		return err
	}
	if _, err = endpoint.LoadOrCreateIdentity(fsync.OS(), keys, "stranger"); err != nil {
		return err
	}
	b, err := yaml.Marshal(map[string]any{
		"name": "n1", "data": "n1", "listen": "127.0.0.1:0", "admin": "127.0.0.1:0",
		"trust": []map[string]string{
			{"fingerprint": n.good.Fingerprint().String(), "role": "admin"},
			{"fingerprint": n.foe.Fingerprint().String(), "role": "client"},
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.dir, "n1.yaml"), b, 0o600)
}

func trustOf(node endpoint.Fingerprint) *endpoint.Trust {
	return endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{node: endpoint.RoleNode})
}

// stop asks the node to end in order and expects status 0.
func (n *node) stop() error {
	defer func() { _ = n.said.Close() }() // the node wrote it; it is gone
	if !n.Alive() {
		return fmt.Errorf("the node ended by itself with status %d; see %s", n.ExitStatus(), n.said.Name())
	}
	return n.Stop()
}
