package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"

	"weida/broker/endpoint"
	"weida/fsync"
	"weida/fuzz/internal/process"
)

// workMax is the longest that anything may take before the run is called stuck. It bounds a hang and decides nothing
// else.
const workMax = 60 * time.Second

// node is the process under test: `weida serve` on one directory, started again and again.
type node struct {
	*process.Node
	bin, dir string
	identity *endpoint.Identity

	mu     sync.Mutex
	listen string          // guarded by mu
	admin  string          // guarded by mu
	trust  *endpoint.Trust // guarded by mu
}

func newNode(bin, dir string, said *os.File) *node {
	return &node{Node: process.New(bin, filepath.Join(dir, "n1.yaml"), said), bin: bin, dir: dir}
}

func (n *node) data() string { return filepath.Join(n.dir, "n1") }

// prepare makes the client's key and the node file.
func (n *node) prepare() (err error) {
	if err := os.MkdirAll(filepath.Join(n.dir, "keys"), 0o700); err != nil {
		return err
	}
	n.identity, err = endpoint.LoadOrCreateIdentity(fsync.OS(), filepath.Join(n.dir, "keys"), "client")
	if err != nil {
		return err
	}
	return n.configure("127.0.0.1:0", "127.0.0.1:0")
}

func (n *node) configure(listen, admin string) error {
	b, err := yaml.Marshal(map[string]any{
		"name": "n1", "data": "n1", "listen": listen, "admin": admin,
		"trust": []map[string]string{{"fingerprint": n.identity.Fingerprint().String(), "role": "admin"}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.dir, "n1.yaml"), b, 0o600)
}

// where is the address of the present life, or of the last one, and whom to trust there.
func (n *node) where() (string, *endpoint.Trust) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listen, n.trust
}

func (n *node) adminAt() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.admin
}

// start launches a life and waits until it is ready. Its ports are written down, so that the next life has them too.
func (n *node) start() error {
	p, err := n.Start()
	if err != nil {
		return err
	}
	n.mu.Lock()
	moved := n.listen != p.Listen || n.admin != p.Admin
	n.listen, n.admin = p.Listen, p.Admin
	n.trust = endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{p.Key: endpoint.RoleNode})
	n.mu.Unlock()
	if moved {
		return n.configure(p.Listen, strings.TrimPrefix(p.Admin, "http://"))
	}
	return nil
}
