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

// A child is this binary again in a process of its own, so that its memory is its own and so that it can be killed. It
// prints one line of JSON when it is done and then waits to be killed: nothing is closed in order.

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
			if err := json.NewEncoder(c.OutOrStdout()).Encode(v); err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, os.Stdin) // until the parent kills it, or is gone itself
			return err
		}
		child.AddCommand(&cobra.Command{Use: use, Args: cobra.ExactArgs(args), RunE: work})
	}
	sub("idle", 1, childIdle)
	sub("heap", 2, childHeap)
	sub("fill", 3, childFill)
	sub("reopen", 2, childReopen)
	return []*cobra.Command{child}
}

// runChild runs one child until it has printed its line, kills it with SIGKILL and decodes the line into v.
func runChild(v any, dir, name string, args ...int) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	argv := []string{"child", name, "--dir", dir}
	for _, a := range args {
		argv = append(argv, strconv.Itoa(a))
	}
	c := exec.Command(self, argv...)
	var talk strings.Builder
	c.Stderr = &talk
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	line, readErr := bufio.NewReader(out).ReadBytes('\n')
	killErr := c.Process.Kill()
	// Killed is how it has to end; what went wrong before is in the line that did not come.
	waitErr := c.Wait()
	if readErr != nil {
		return fmt.Errorf("child %s: %w: %s", name, errors.Join(readErr, waitErr), talk.String())
	}
	if err := errors.Join(killErr, in.Close()); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return json.Unmarshal(line, v)
}
