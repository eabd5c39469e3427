package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"weida/broker/endpoint"
)

// The longest that a start and a stop may take before the node is called stuck. They bound a hang and decide nothing
// else.
const (
	readyMax = 3 * time.Minute
	stopMax  = 3 * time.Minute
)

// Node is `weida serve` on one node file, started again and again.
type Node struct {
	bin, config string
	by          []string // another command, which becomes it
	env         []string // more than this process has
	said        *os.File // everything that its lives wrote
	cmd         *exec.Cmd
	ready       chan string                   // what the present life says when it is ready; closed when it says no more
	exited      chan struct{}                 // closed when the present life is over
	over        atomic.Pointer[chan struct{}] // the same, for anybody
}

// Place is where a life is reached, as it says itself.
type Place struct {
	Listen string // UDP address
	Admin  string // http://HOST:PORT
	Key    endpoint.Fingerprint
}

// EndedError is a life that ended before it was ready.
type EndedError struct{ How, Said string }

func (e *EndedError) Error() string {
	return fmt.Sprintf("the node ended before it was ready: %s; see %s", e.How, e.Said)
}

// New is a node that was not started yet. What its lives write is appended to said, which stays the caller's.
func New(bin, config string, said *os.File) *Node { return &Node{bin: bin, config: config, said: said} }

// By has every life from now on started by another command, which has to become the node: no process of its own may
// stay between them, or signals miss the node.
func (n *Node) By(command ...string) { n.by = command }

// With has every life from now on have more in its environment, NAME=VALUE, than this process has.
func (n *Node) With(env ...string) { n.env = env }

// Launch starts a life and does not wait for it to be ready.
func (n *Node) Launch() error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	args := append(slices.Clone(n.by), n.bin, "serve", "--config", n.config)
	n.cmd = exec.Command(args[0], args[1:]...)
	n.cmd.Stdout, n.cmd.Stderr = in, n.said
	if len(n.env) > 0 {
		n.cmd.Env = append(os.Environ(), n.env...)
	}
	// The node must not outlive a harness that is killed itself.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = n.cmd.Start()
	if err := errors.Join(err, in.Close()); err != nil {
		n.cmd = nil
		return errors.Join(err, out.Close())
	}
	exited := make(chan struct{})
	n.exited, n.ready = exited, make(chan string, 2)
	n.over.Store(&exited)
	go n.listenTo(out, n.ready)
	go func(cmd *exec.Cmd) {
		cmd.Wait() //nolint:errcheck // how it ended is in ProcessState; a kill is an error here by design
		close(exited)
	}(n.cmd)
	return nil
}

// listenTo copies what a life says and passes on its first two lines.
func (n *Node) listenTo(out *os.File, ready chan<- string) {
	defer func() { _ = out.Close() }() // read only
	defer close(ready)
	lines := bufio.NewScanner(io.TeeReader(out, n.said))
	for k := 0; lines.Scan(); k++ {
		if k < cap(ready) {
			ready <- lines.Text()
		}
	}
}

// Ready waits until the life that was launched is ready, and says where it is. Errors: *EndedError.
func (n *Node) Ready() (p Place, err error) {
	key := ""
	timeout := time.After(readyMax)
	for k := range 2 {
		var text string
		var ok bool
		select {
		case text, ok = <-n.ready:
		case <-timeout:
			return p, fmt.Errorf("the node was not ready after %v; see %s", readyMax, n.said.Name())
		}
		if !ok {
			<-n.exited
			return p, &EndedError{n.cmd.ProcessState.String(), n.said.Name()}
		}
		if fields := strings.Fields(strings.ReplaceAll(text, ",", "")); k == 0 && len(fields) == 8 {
			p.Listen, key = fields[5], fields[7]
		} else if k == 1 && len(fields) == 2 {
			p.Admin = fields[1]
		}
	}
	if p.Key, err = endpoint.ParseFingerprint(key); err != nil || p.Listen == "" || p.Admin == "" {
		return p, fmt.Errorf("the node said something else when it was ready: listens at %q, admin at %q: %w", p.Listen,
			p.Admin, err)
	}
	return p, nil
}

// Start is Launch and Ready.
func (n *Node) Start() (Place, error) {
	if err := n.Launch(); err != nil {
		return Place{}, err
	}
	return n.Ready()
}

// Strike is kill -9 that does not wait: nothing of the node runs any more, though the process may stay until what it
// asked of a disk has ended.
func (n *Node) Strike() error { return n.cmd.Process.Kill() }

// Gone waits until the present life is over.
func (n *Node) Gone() { <-n.exited }

// Kill is kill -9. It returns when the process is gone; an error says that it was gone before.
func (n *Node) Kill() error {
	err := n.cmd.Process.Kill()
	<-n.exited
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("the node ended by itself: %v; see %s", n.cmd.ProcessState, n.said.Name())
	}
	return err
}

// Stop asks the node to end in order, as Ctrl-C does, and expects status 0.
func (n *Node) Stop() error {
	if err := n.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-n.exited:
	case <-time.After(stopMax):
		return errors.Join(fmt.Errorf("the node did not stop in %v; see %s", stopMax, n.said.Name()), n.Kill())
	}
	if !n.cmd.ProcessState.Success() {
		return fmt.Errorf("the node stopped with %v; see %s", n.cmd.ProcessState, n.said.Name())
	}
	return nil
}

// Freeze stops the process where it stands, as SIGSTOP does, until Thaw.
func (n *Node) Freeze() error { return n.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (n *Node) Thaw() error { return n.cmd.Process.Signal(syscall.SIGCONT) }

// Pid is the present life's process id.
func (n *Node) Pid() int { return n.cmd.Process.Pid }

// Alive says whether a life is running.
func (n *Node) Alive() bool {
	over := n.over.Load()
	if over == nil {
		return false
	}
	select {
	case <-*over:
		return false
	default:
		return true
	}
}

// ExitStatus is that of a life that is over, -1 if a signal ended it.
func (n *Node) ExitStatus() int { return n.cmd.ProcessState.ExitCode() }

// AddressTaken says that the life that ended found its port in use.
func (n *Node) AddressTaken() bool {
	text, err := os.ReadFile(n.said.Name())
	return err == nil && strings.Contains(string(text[max(0, len(text)-2000):]), "address already in use")
}
