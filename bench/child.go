package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// A child is this binary again in a process of its own, so that its memory and its CPU time are its own and so that it
// can be killed. It prints one line of JSON when it is ready, then answers what it is told until it is killed or its
// parent is gone: nothing is closed in order.

// talker is what a child printed, if it goes on answering: one line of JSON for each line that it is told.
type talker interface {
	say(line string) (any, error)
}

func childCommands() []*cobra.Command {
	child := &cobra.Command{Use: "child", Hidden: true}
	var dir string
	child.PersistentFlags().StringVar(&dir, "dir", "", "directory of the run")
	sub := func(use string, args int, run func(dir string, n []int) (any, error)) {
		work := func(c *cobra.Command, a []string) error {
			n := make([]int, len(a))
			for i, s := range a {
				var err error
				if n[i], err = strconv.Atoi(s); err != nil {
					return err
				}
			}
			v, err := run(dir, n)
			if err != nil {
				return err
			}
			return converse(v, os.Stdin, c.OutOrStdout())
		}
		count := cobra.ExactArgs(args)
		if args < 0 {
			count = cobra.MinimumNArgs(-args)
		}
		child.AddCommand(&cobra.Command{Use: use, Args: count, RunE: work})
	}
	sub("idle", 1, childIdle)
	sub("heap", 2, childHeap)
	sub("fill", 3, childFill)
	sub("reopen", 2, childReopen)
	sub("broker", -2, childBroker)
	sub("scrubbed", -2, childScrubbed)
	sub("quic", 1, childQUIC)
	return []*cobra.Command{child}
}

// converse prints v and answers the parent's lines until there are no more.
func converse(v any, in io.Reader, out io.Writer) error {
	enc := json.NewEncoder(out)
	if err := enc.Encode(v); err != nil {
		return err
	}
	t, ok := v.(talker)
	if !ok {
		_, err := io.Copy(io.Discard, in)
		return err
	}
	for s := bufio.NewScanner(in); ; {
		if !s.Scan() {
			return s.Err()
		}
		answer, err := t.say(s.Text())
		if err != nil {
			return err
		}
		if err := enc.Encode(answer); err != nil {
			return err
		}
	}
}

// process is a child that runs.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	talk strings.Builder
}

// startChild starts a child, waits until it has printed its line and decodes that into v. The caller kills it.
func startChild(v any, dir, name string, args ...int) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := []string{"child", name, "--dir", dir}
	for _, a := range args {
		argv = append(argv, strconv.Itoa(a))
	}
	p := &process{name: name, cmd: exec.Command(self, argv...)}
	p.cmd.Stderr = &p.talk
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	return p, p.hear(v)
}

// hear decodes the child's next line. A child without one is killed, and the error is what it said.
func (p *process) hear(v any) error {
	line, readErr := p.out.ReadBytes('\n')
	if readErr == nil {
		return json.Unmarshal(line, v)
	}
	// Killed is how it has to end; what went wrong before is in what it said.
	waitErr := errors.Join(p.cmd.Process.Kill(), p.cmd.Wait())
	return fmt.Errorf("child %s: %w: %s", p.name, errors.Join(readErr, waitErr), p.talk.String())
}

// ask tells the child a line and decodes its answer into v.
func (p *process) ask(v any, line string) error {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return fmt.Errorf("child %s: %w", p.name, err)
	}
	return p.hear(v)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the child with SIGKILL and waits for its end. One that has ended already is no error.
func (p *process) kill() error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // killed is how it has to end
	if closing := p.in.Close(); !errors.Is(closing, os.ErrClosed) {
		err = errors.Join(err, closing)
	}
	return err
}

// runChild runs one child until it has printed its line, kills it and decodes the line into v.
func runChild(v any, dir, name string, args ...int) error {
	p, err := startChild(v, dir, name, args...)
	if p == nil {
		return err
	}
	return errors.Join(err, p.kill())
}
