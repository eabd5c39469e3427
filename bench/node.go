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
	"sync"
	"time"

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
func withQueues(node *broker.Node, n, replicas int) error {
	var made errgroup
	turns := make(chan struct{}, 64)
	for i := range n {
		turns <- struct{}{}
		made.Go(func() error {
			defer func() { <-turns }()
			return node.MakeQueue(context.Background(), queueName(i), control.QueueSpec{Replicas: replicas})
		})
	}
	return made.Wait()
}

// errgroup waits for what it runs and keeps all errors.
type errgroup struct {
	sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// Go runs f.
func (g *errgroup) Go(f func() error) {
	g.WaitGroup.Go(func() {
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.errs = append(g.errs, err)
		}
	})
}

// Wait returns when all have returned.
func (g *errgroup) Wait() error {
	g.WaitGroup.Wait()
	return errors.Join(g.errs...)
}

// brokerChild is a node in a process of its own. Told "profile FILE" it begins a CPU profile, told "profiled" it ends
// that, told "queues N REPLICAS" it makes queues, told "groups" it says how its groups are.
type brokerChild struct {
	Addr  string `json:"addr"`
	Admin string `json:"admin"`
	Data  string `json:"data"`

	node *broker.Node
	file *os.File
}

// childBroker opens a node as `serve` does: the n[0]-th of those that listen on the ports n[1:], or one alone.
func childBroker(dir string, n []int) (any, error) { return openBroker(dir, n, 0) }

// childScrubbed is childBroker of a node that looks for damage all the time.
func childScrubbed(dir string, n []int) (any, error) { return openBroker(dir, n, time.Second) }

func openBroker(dir string, n []int, scrub time.Duration) (any, error) {
	trust, err := trusting(dir, "client", endpoint.RoleClient)
	if err != nil {
		return nil, err
	}
	id, err := makeKey(dir, nodeKey(n[0]))
	if err != nil {
		return nil, err
	}
	parent, err := dataParent(dir, n[0])
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp(parent, "node-")
	if err != nil {
		return nil, err
	}
	c := broker.Config{
		Dir: data, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Identity: id, Trust: trust, Name: nodeKey(n[0]),
		ScrubEvery: scrub,
		Log:        slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	if ports := n[1:]; len(ports) > 1 {
		for i, port := range ports {
			id, err := makeKey(dir, nodeKey(i))
			if err != nil {
				return nil, err
			}
			c.Seeds = append(c.Seeds, control.Seed{
				Name: nodeKey(i), Fingerprint: id.Fingerprint().String(), Address: fmt.Sprintf("127.0.0.1:%d", port),
			})
		}
		c.Listen = c.Seeds[n[0]].Address
	}
	node, err := broker.Open(c)
	if err != nil {
		return nil, err
	}
	return &brokerChild{Addr: node.Addr().String(), Admin: node.AdminAddr().String(), Data: data, node: node}, nil
}

// nodeKey is what the i-th node and its key are called.
func nodeKey(i int) string { return fmt.Sprint("node", i+1) }

func (b *brokerChild) say(line string) (any, error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "profile":
		return true, b.startProfile(rest)
	case "queues":
		var n, replicas int
		if _, err := fmt.Sscan(rest, &n, &replicas); err != nil {
			return nil, err
		}
		return true, withQueues(b.node, n, replicas)
	case "groups":
		return b.node.Local().Groups, nil
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

// nodeProcess is a running node, or several of a cluster, seen from the bench.
type nodeProcess struct {
	*process            // of the first
	others   []*process // of the rest
	dir      string
	data     []string // directories, by node
	admins   []string
	o        client.Options
}

// startNodes starts as many nodes as queues have replicas, with queues, in a directory of their own below dir.
func startNodes(dir string, queues, replicas int) (*nodeProcess, error) {
	return startNodesAs("broker", dir, queues, replicas, nil)
}

// startNodesAs is startNodes with another kind of child, and with something to be done in the directory before the
// first of them is started.
func startNodesAs(child, dir string, queues, replicas int, before func() error) (*nodeProcess, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if before != nil {
		if err := before(); err != nil {
			return nil, err
		}
	}
	id, err := makeKey(dir, "client")
	if err != nil {
		return nil, err
	}
	n := &nodeProcess{dir: dir}
	ports, err := endpoint.FreePorts(replicas)
	if err != nil {
		return nil, errors.Join(err, n.end())
	}
	keys := make(map[endpoint.Fingerprint]endpoint.Role)
	for i := range replicas {
		key, err := makeKey(dir, nodeKey(i))
		if err != nil {
			return nil, errors.Join(err, n.end())
		}
		keys[key.Fingerprint()] = endpoint.RoleNode
		var ready struct{ Addr, Admin, Data string }
		p, err := startChild(&ready, dir, child, append([]int{i}, ports...)...)
		if p != nil && i == 0 {
			n.process = p
		} else if p != nil {
			n.others = append(n.others, p)
		}
		if err != nil {
			return nil, errors.Join(err, n.end())
		}
		n.admins, n.data = append(n.admins, ready.Admin), append(n.data, ready.Data)
		n.o.Addrs = append(n.o.Addrs, ready.Addr)
	}
	n.o.Identity, n.o.Trust = id, endpoint.NewTrust(keys)
	var ok bool
	if err := n.ask(&ok, fmt.Sprintf("queues %d %d", queues, replicas)); err != nil {
		return nil, errors.Join(err, n.end())
	}
	return n, nil
}

// processes are those of all nodes.
func (n *nodeProcess) processes() (list []*process) {
	if n.process != nil {
		list = append(list, n.process)
	}
	return append(list, n.others...)
}

// pids are those of all nodes.
func (n *nodeProcess) pids() (list []int) {
	for _, p := range n.processes() {
		list = append(list, p.pid())
	}
	return list
}

// profile begins a CPU profile of each node, the first's in path and the others' beside it, and returns the files.
func (n *nodeProcess) profile(path string) (files []string, err error) {
	for i, p := range n.processes() {
		file := path
		if i > 0 {
			file += "." + nodeKey(i)
		}
		var ok bool
		if err := p.ask(&ok, "profile "+file); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// profiled ends the profiles.
func (n *nodeProcess) profiled() error {
	var errs []error
	for _, p := range n.processes() {
		var ok bool
		errs = append(errs, p.ask(&ok, "profiled"))
	}
	return errors.Join(errs...)
}

// kills kills the nodes and leaves what they wrote.
func (n *nodeProcess) kills() error {
	var errs []error
	for _, p := range n.processes() {
		errs = append(errs, p.kill())
	}
	return errors.Join(errs...)
}

// end kills the nodes and removes what they wrote.
func (n *nodeProcess) end() error { return errors.Join(n.kills(), os.RemoveAll(n.dir)) }

// residentSize is the RSS in bytes of the node that has most.
func (n *nodeProcess) residentSize() (most int64, err error) {
	for _, pid := range n.pids() {
		size, err := residentSize(fmt.Sprint(pid))
		if err != nil {
			return 0, err
		}
		most = max(most, size)
	}
	return most, nil
}

// flushRounds is the name of the node's own count.
const flushRounds = "weida_flush_rounds_total"

// rounds reads how many flush rounds the nodes have done, from their metrics.
func (n *nodeProcess) rounds() (sum float64, err error) { return n.counted(flushRounds) }

// counted is the sum of one of the nodes' metrics.
func (n *nodeProcess) counted(name string) (sum float64, err error) {
	for _, admin := range n.admins {
		v, err := metricOf(admin, name)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

func metricOf(admin, name string) (float64, error) {
	answer, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, fmt.Errorf("the node's metrics (%s) lack %s", answer.Status, name)
}
