package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"

	"weida/broker/endpoint"
	"weida/fsync"
)

// The longest that starting and stopping may take before the run is called stuck.
const (
	readyMax = 3 * time.Minute
	stopMax  = 3 * time.Minute
)

// node is the process under attack: `weida serve` on a directory of its own.
type node struct {
	dir    string
	good   *endpoint.Identity // trusted as admin
	foe    *endpoint.Identity // trusted as client
	trust  *endpoint.Trust    // of those who connect
	key    string             // the node's fingerprint
	listen string
	admin  string        // http://HOST:PORT
	answer time.Duration // how long it may take to answer
	cmd    *exec.Cmd
	said   *os.File
	exited chan struct{} // closed when the process is gone
}

// build makes the binary from the sources of this module.
func build(dir string) (string, error) {
	bin := filepath.Join(dir, "weida")
	out, err := exec.Command("go", "build", "-o", bin, "weida/cmd/weida").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build weida: %w\n%s", err, out)
	}
	return bin, nil
}

// start makes keys and a node file in dir, which exists, and starts a node there.
func start(bin, dir string) (*node, error) {
	n := &node{dir: dir, exited: make(chan struct{})}
	if err := n.prepare(); err != nil {
		return nil, err
	}
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		return nil, err
	}
	n.said = said
	out, in, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, said.Close())
	}
	n.cmd = exec.Command(bin, "serve", "--config", filepath.Join(dir, "n1.yaml"))
	n.cmd.Stdout, n.cmd.Stderr = in, said
	// The node must not outlive a harness that is killed itself.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = n.cmd.Start()
	if err := errors.Join(err, in.Close()); err != nil {
		return nil, errors.Join(err, out.Close(), said.Close())
	}
	go func() {
		n.cmd.Wait() //nolint:errcheck // how it ended is in ProcessState
		close(n.exited)
	}()
	if err := n.await(out); err != nil {
		return nil, errors.Join(err, n.cmd.Process.Kill())
	}
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

// await reads the two lines that a node says when it is ready, and keeps what comes after them.
func (n *node) await(out *os.File) error {
	lines := make(chan string, 2)
	go func() {
		defer func() { _ = out.Close() }() // read only
		defer close(lines)
		in := bufio.NewScanner(io.TeeReader(out, n.said))
		for k := 0; in.Scan(); k++ {
			if k < cap(lines) {
				lines <- in.Text()
			}
		}
	}()
	timeout := time.After(readyMax)
	for k := range 2 {
		select {
		case text, ok := <-lines:
			if !ok {
				return fmt.Errorf("the node ended before it was ready; see %s", n.said.Name())
			}
			if f := strings.Fields(strings.ReplaceAll(text, ",", "")); k == 0 && len(f) == 8 {
				n.listen, n.key = f[5], f[7]
			} else if k == 1 && len(f) == 2 {
				n.admin = f[1]
			}
		case <-timeout:
			return fmt.Errorf("the node was not ready after %v; see %s", readyMax, n.said.Name())
		}
	}
	print, err := endpoint.ParseFingerprint(n.key)
	if err != nil || n.listen == "" || n.admin == "" {
		return fmt.Errorf("the node said something else when it was ready: see %s: %w", n.said.Name(), err)
	}
	n.trust = trustOf(print)
	return nil
}

func trustOf(node endpoint.Fingerprint) *endpoint.Trust {
	return endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{node: endpoint.RoleNode})
}

// alive says whether the process is there.
func (n *node) alive() bool {
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// stop asks the node to end in order and expects status 0.
func (n *node) stop() error {
	defer func() { _ = n.said.Close() }() // the node wrote it; it is gone
	if !n.alive() {
		return fmt.Errorf("the node ended by itself: %v; see %s", n.cmd.ProcessState, n.said.Name())
	}
	if err := n.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-n.exited:
	case <-time.After(stopMax):
		return errors.Join(fmt.Errorf("the node did not stop in %v; see %s", stopMax, n.said.Name()), n.cmd.Process.Kill())
	}
	if !n.cmd.ProcessState.Success() {
		return fmt.Errorf("the node stopped with %v; see %s", n.cmd.ProcessState, n.said.Name())
	}
	return nil
}
