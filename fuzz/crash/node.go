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
	"sync"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"

	"weida/broker/endpoint"
	"weida/fsync"
)

// The longest that anything may take before the run is called stuck. They bound a hang and decide nothing else.
const (
	readyMax = 60 * time.Second
	stopMax  = 60 * time.Second
	workMax  = 60 * time.Second
)

// node is the process under test: `weida serve` on one directory, started again and again.
type node struct {
	bin, dir string
	said     *os.File // everything that its lives wrote
	identity *endpoint.Identity
	cmd      *exec.Cmd
	ready    chan string   // what the present life says when it is ready; closed when it says no more
	exited   chan struct{} // closed when the present life is over

	mu     sync.Mutex
	listen string          // guarded by mu
	admin  string          // guarded by mu
	trust  *endpoint.Trust // guarded by mu
}

// build makes the binary once, from the sources of this module.
func build(dir string) (string, error) {
	bin := filepath.Join(dir, "weida")
	out, err := exec.Command("go", "build", "-o", bin, "weida/cmd/weida").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build weida: %w\n%s", err, out)
	}
	return bin, nil
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

// launch starts a life and does not wait for it to be ready.
func (n *node) launch() error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	n.cmd = exec.Command(n.bin, "serve", "--config", filepath.Join(n.dir, "n1.yaml"))
	n.cmd.Stdout, n.cmd.Stderr = in, n.said
	// The node must not outlive a harness that is killed itself.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = n.cmd.Start()
	if err := errors.Join(err, in.Close()); err != nil {
		return errors.Join(err, out.Close())
	}
	n.exited, n.ready = make(chan struct{}), make(chan string, 2)
	go n.listenTo(out, n.ready)
	go func() {
		n.cmd.Wait() //nolint:errcheck // how it ended is in ProcessState; a kill is an error here by design
		close(n.exited)
	}()
	return nil
}

// listenTo copies what a life says and passes on its first two lines.
func (n *node) listenTo(out *os.File, ready chan<- string) {
	defer func() { _ = out.Close() }() // read only
	defer close(ready)
	lines := bufio.NewScanner(io.TeeReader(out, n.said))
	for k := 0; lines.Scan(); k++ {
		if k < cap(ready) {
			ready <- lines.Text()
		}
	}
}

// start launches a life and waits until it is ready. A port that somebody else took meanwhile is given up for another.
func (n *node) start() error {
	if err := n.launch(); err != nil {
		return err
	}
	var listen, admin, key string
	timeout := time.After(readyMax)
	for k := range 2 {
		var text string
		var ok bool
		select {
		case text, ok = <-n.ready:
		case <-timeout:
			return fmt.Errorf("the node was not ready after %v; see %s", readyMax, n.said.Name())
		}
		if !ok {
			<-n.exited
			return &endedError{n.cmd.ProcessState.String(), n.said.Name()}
		}
		if fields := strings.Fields(strings.ReplaceAll(text, ",", "")); k == 0 && len(fields) == 8 {
			listen, key = fields[5], fields[7]
		} else if k == 1 && len(fields) == 2 {
			admin = fields[1]
		}
	}
	print, err := endpoint.ParseFingerprint(key)
	if err != nil || listen == "" || admin == "" {
		return fmt.Errorf("the node said something else when it was ready: listens at %q, admin at %q: %w", listen, admin,
			err)
	}
	n.mu.Lock()
	moved := n.listen != listen || n.admin != admin
	n.listen, n.admin = listen, admin
	n.trust = endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{print: endpoint.RoleNode})
	n.mu.Unlock()
	if moved {
		return n.configure(listen, strings.TrimPrefix(admin, "http://"))
	}
	return nil
}

// endedError is a life that ended before it was ready.
type endedError struct{ how, said string }

func (e *endedError) Error() string {
	return fmt.Sprintf("the node ended before it was ready: %s; see %s", e.how, e.said)
}

// kill is kill -9. It returns when the process is gone.
func (n *node) kill() error {
	err := n.cmd.Process.Kill()
	<-n.exited
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("the node ended by itself: %v; see %s", n.cmd.ProcessState, n.said.Name())
	}
	return err
}

// stop asks the node to end in order, as Ctrl-C does, and expects status 0.
func (n *node) stop() error {
	if err := n.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-n.exited:
	case <-time.After(stopMax):
		return errors.Join(fmt.Errorf("the node did not stop in %v; see %s", stopMax, n.said.Name()), n.kill())
	}
	if !n.cmd.ProcessState.Success() {
		return fmt.Errorf("the node stopped with %v; see %s", n.cmd.ProcessState, n.said.Name())
	}
	return nil
}

// alive says whether the present life is running.
func (n *node) alive() bool {
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// addressTaken says that the life that ended found its port in use.
func (n *node) addressTaken() bool {
	text, err := os.ReadFile(n.said.Name())
	return err == nil && strings.Contains(string(text[max(0, len(text)-2000):]), "address already in use")
}
