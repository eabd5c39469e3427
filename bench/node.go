package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/fsync"
)

// keysDir is where the keys of a run lie, below its directory.
const keysDir = "keys"

// makeKey makes, or reads, one of the run's keys.
func makeKey(dir, name string) (*endpoint.Identity, error) {
	keys := filepath.Join(dir, keysDir)
	if err := fsync.MkdirAll(fsync.OS(), keys); err != nil {
		return nil, err
	}
	return endpoint.LoadOrCreateIdentity(fsync.OS(), keys, name)
}

// trusting is a trust set of one of the run's keys.
func trusting(dir, name string, role endpoint.Role) (*endpoint.Trust, error) {
	id, err := makeKey(dir, name)
	if err != nil {
		return nil, err
	}
	return endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{id.Fingerprint(): role}), nil
}

func queueName(i int) string { return fmt.Sprintf("q%04d", i+1) }

// withQueues gives the node n queues.
func withQueues(node *broker.Node, n int) error {
	for i := range n {
		if err := node.MakeQueue(context.Background(), queueName(i), control.QueueSpec{}); err != nil {
			return err
		}
	}
	return nil
}

// brokerChild is a node in a process of its own. Told "profile FILE" it begins a CPU profile, told "profiled"
// it ends that.
type brokerChild struct {
	Addr  string `json:"addr"`
	Admin string `json:"admin"`

	file *os.File
}

// childBroker opens a node as `serve` does, with n[0] queues.
func childBroker(dir string, n []int) (any, error) {
	trust, err := trusting(dir, "client", endpoint.RoleClient)
	if err != nil {
		return nil, err
	}
	id, err := makeKey(dir, "node")
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp(dir, "node-")
	if err != nil {
		return nil, err
	}
	c := broker.Config{
		Dir: data, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Identity: id, Trust: trust,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	node, err := broker.Open(c)
	if err != nil {
		return nil, err
	}
	if err := withQueues(node, n[0]); err != nil {
		return nil, err
	}
	return &brokerChild{Addr: node.Addr().String(), Admin: node.AdminAddr().String()}, nil
}

func (b *brokerChild) say(line string) (any, error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "profile":
		return true, b.startProfile(rest)
	case "profiled":
		pprof.StopCPUProfile()
		return true, b.file.Close()
	}
	return nil, fmt.Errorf("told %q", line)
}

func (b *brokerChild) startProfile(path string) (err error) {
	if b.file, err = os.Create(path); err != nil {
		return err
	}
	return pprof.StartCPUProfile(b.file)
}

// nodeProcess is a running node, seen from the bench.
type nodeProcess struct {
	*process
	dir   string
	addr  string
	admin string
	o     client.Options
}

// startNode starts a node with queues in a directory of its own below dir.
func startNode(dir string, queues int) (*nodeProcess, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	id, err := makeKey(dir, "client")
	if err != nil {
		return nil, err
	}
	trust, err := trusting(dir, "node", endpoint.RoleNode)
	if err != nil {
		return nil, err
	}
	var ready struct{ Addr, Admin string }
	p, err := startChild(&ready, dir, "broker", queues)
	n := &nodeProcess{process: p, dir: dir, addr: ready.Addr, admin: ready.Admin}
	if err != nil {
		return nil, errors.Join(err, n.end())
	}
	n.o = client.Options{Addrs: []string{n.addr}, Identity: id, Trust: trust}
	return n, nil
}

// end kills the node and removes what it wrote.
func (n *nodeProcess) end() error {
	var err error
	if n.process != nil {
		err = n.kill()
	}
	return errors.Join(err, os.RemoveAll(n.dir))
}

// residentSize is the node's RSS in bytes.
func (n *nodeProcess) residentSize() (int64, error) { return residentSize(fmt.Sprint(n.pid())) }

// flushRounds is the name of the node's own count.
const flushRounds = "weida_flush_rounds_total"

// rounds reads how many flush rounds the node has done, from its metrics.
func (n *nodeProcess) rounds() (float64, error) {
	answer, err := http.Get("http://" + n.admin + "/metrics")
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, flushRounds+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, fmt.Errorf("the node's metrics (%s) lack %s", answer.Status, flushRounds)
}
