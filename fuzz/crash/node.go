package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// The longest that anything may take before the run is called stuck. They bound a hang and decide nothing else.
const (
	readyMax = 60 * time.Second
	stopMax  = 60 * time.Second
	workMax  = 120 * time.Second
	pollTime = 2 * time.Millisecond
)

// node is the process under test: `weida dev` on one directory, started again and again.
type node struct {
	bin, dir string
	said     *os.File // everything that its lives wrote to standard output and error
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the present life is over
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

func (n *node) context() string { return filepath.Join(n.dir, "context.yaml") }

// launch starts a life and does not wait for it to be ready. The context file of the life before is removed: it is
// written again when the node is ready.
func (n *node) launch() error {
	if err := os.Remove(n.context()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	n.cmd = exec.Command(n.bin, "dev", "--data", n.dir)
	n.cmd.Stdout, n.cmd.Stderr = n.said, n.said
	// The node must not outlive a harness that is killed itself.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	n.exited = make(chan struct{})
	go func() {
		n.cmd.Wait() //nolint:errcheck // how it ended is in ProcessState; a kill is an error here by design
		close(n.exited)
	}()
	return nil
}

// start launches a life and waits until it is ready.
func (n *node) start() error {
	if err := n.launch(); err != nil {
		return err
	}
	for end := time.Now().Add(readyMax); time.Now().Before(end); {
		if _, err := os.Stat(n.context()); err == nil {
			return nil
		}
		select {
		case <-n.exited:
			return fmt.Errorf("the node ended before it was ready: %v; see %s", n.cmd.ProcessState, n.said.Name())
		case <-time.After(pollTime):
		}
	}
	return fmt.Errorf("the node was not ready after %v; see %s", readyMax, n.said.Name())
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

// client is a process of the same binary that talks to the node.
type client struct {
	cmd  *exec.Cmd
	err  *os.File
	done chan struct{}
	end  error
}

// client starts one; its standard error goes to base.err. stdout must be a file, or a pipe that is read to its end
// before wait is called.
func (n *node) client(base string, prepare func(*exec.Cmd) error, args ...string) (*client, error) {
	errFile, err := os.Create(base + ".err")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(n.bin, append(args, "--context", n.context())...)
	cmd.Stderr = errFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := prepare(cmd); err != nil {
		return nil, errors.Join(err, errFile.Close())
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, errFile.Close())
	}
	return &client{cmd: cmd, err: errFile, done: make(chan struct{})}, nil
}

// wait returns when the process has ended, with its status as an error.
func (c *client) wait() error {
	c.end = c.cmd.Wait()
	close(c.done)
	return errors.Join(c.end, c.err.Close())
}

// interrupt asks the process to end; one that does not within a while is killed.
func (c *client) interrupt(patience time.Duration) {
	c.cmd.Process.Signal(os.Interrupt) //nolint:errcheck // a process that is gone already is what this is for
	select {
	case <-c.done:
	case <-time.After(patience):
		c.cmd.Process.Kill() //nolint:errcheck // as above
	}
}
