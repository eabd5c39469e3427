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
	workMax  = 60 * time.Second
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
