package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// childFlag tells a node that it is one of a fleet. A node stops in order when its standard input ends, so none is
// left when whoever started it is killed.
const childFlag = "child"

// untilEOF is a context that ends when r does.
func untilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r) // however it ends, nobody is there any more
		cancel()
	}()
	return ctx
}

// fleet is nodes that run as processes of their own. All methods may be called from any goroutine.
type fleet struct {
	dir   string
	nodes []devNode
	talk  io.Writer // what the nodes say on standard error, and who has ended; one line a write

	mu       sync.Mutex
	children map[string]*child // guarded by mu; those that run
	stopping bool              // guarded by mu
	failed   []error           // guarded by mu; of nodes that did not stop in order
	ended    sync.WaitGroup
}

// child is a node's process.
type child struct {
	name  string
	cmd   *exec.Cmd
	input io.Closer
	ready chan error    // holds one: nil once it is ready; or why it never was
	gone  chan struct{} // closed when it has ended
}

// endPatience is how long a node that is to be started again may take to have ended: whoever kills one asks at once.
const endPatience = 3 * time.Second

func newFleet(dir string, nodes []devNode) *fleet {
	return &fleet{dir: dir, nodes: nodes, talk: os.Stderr, children: make(map[string]*child)}
}

// startAll starts every node and returns when all are ready; nodes of one cluster need each other for that.
func (f *fleet) startAll(ctx context.Context) error {
	var started []*child
	for _, n := range f.nodes {
		c, err := f.launch(n)
		if err != nil {
			return err
		}
		started = append(started, c)
	}
	for _, c := range started {
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restart starts a node that has ended, and returns when it is ready.
func (f *fleet) restart(ctx context.Context, name string) (pid int, err error) {
	for _, n := range f.nodes {
		if n.file.Name != name {
			continue
		}
		f.mu.Lock()
		old := f.children[name]
		f.mu.Unlock()
		if old != nil {
			select {
			case <-old.gone:
			case <-time.After(endPatience):
			}
		}
		c, err := f.launch(n)
		if err != nil {
			return 0, err
		}
		return c.cmd.Process.Pid, c.wait(ctx)
	}
	return 0, fmt.Errorf("there is no node %s here; nothing was started; the nodes are %s", name, names(f.nodes))
}

// launch starts a node's process.
func (f *fleet) launch(n devNode) (*child, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := n.file.Name
	switch c := f.children[name]; {
	case f.stopping:
		return nil, errors.New("the nodes are being stopped; nothing was started")
	case c != nil:
		return nil, fmt.Errorf("%s runs, process %d; nothing was started", name, c.cmd.Process.Pid)
	}
	exe, err := exec.LookPath(os.Args[0])
	if err != nil {
		exe, err = os.Executable()
	}
	if err != nil {
		return nil, err
	}
	c := &child{name: name, ready: make(chan error, 1), gone: make(chan struct{})}
	c.cmd = exec.Command(exe, "serve", "--config", n.config, "--"+childFlag)
	// A group of its own: an interrupt on the terminal is for the parent, which stops its nodes in order.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, oerr := c.cmd.StdoutPipe()
	talk, terr := c.cmd.StderrPipe()
	input, ierr := c.cmd.StdinPipe()
	if err := errors.Join(oerr, terr, ierr); err != nil {
		return nil, err
	}
	c.input = input
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.children[name] = c
	f.ended.Go(func() { f.attend(c, out, talk) })
	return c, nil
}

// attend reads what a node says until it ends, and tells of its end.
func (f *fleet) attend(c *child, out, talk io.Reader) {
	var reading sync.WaitGroup
	last := ""
	reading.Go(func() {
		lines := bufio.NewScanner(talk)
		for lines.Scan() {
			last = lines.Text()
			f.say("%s | %s", c.name, last)
		}
	})
	ready := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if !ready && strings.Contains(lines.Text(), " is ready at ") {
			ready = true
			c.ready <- nil
		}
	}
	reading.Wait()
	err := c.cmd.Wait()
	f.mu.Lock()
	delete(f.children, c.name)
	stopping := f.stopping
	if stopping && err != nil {
		f.failed = append(f.failed, fmt.Errorf("%s did not stop in order: %w", c.name, err))
	}
	f.mu.Unlock()
	close(c.gone)
	if !ready {
		if last == "" {
			last = fmt.Sprint(err)
		}
		c.ready <- fmt.Errorf("%s ended before it was ready: %s", c.name, strings.TrimPrefix(last, "weida: "))
	}
	if stopping {
		return
	}
	how := "in order"
	if err != nil {
		how = err.Error()
	}
	where := ""
	if f.dir != defaultDev {
		where = " --data " + quoted(f.dir)
	}
	f.say("%s has ended (%s); the others go on; bring it back with `%s dev restart %s%s`", c.name, how, self(), c.name,
		where)
}

// say writes one line.
func (f *fleet) say(format string, args ...any) {
	fmt.Fprintf(f.talk, format+"\n", args...)
}

// wait returns when the node is ready.
func (c *child) wait(ctx context.Context) error {
	select {
	case err := <-c.ready:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready yet: %w", c.name, ctx.Err())
	}
}

// stop ends all nodes in order, and returns when they have.
func (f *fleet) stop() error {
	f.mu.Lock()
	f.stopping = true
	for _, c := range f.children {
		_ = c.input.Close() // it may have ended
	}
	f.mu.Unlock()
	f.ended.Wait()
	return errors.Join(f.failed...)
}
