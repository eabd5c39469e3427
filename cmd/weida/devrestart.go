package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// A running `dev` listens on a socket in its directory, so that whoever may write there can have it start a node again.

const devSocket = "dev.sock"

// devDoor is that socket.
type devDoor struct {
	dir    *os.File // keeps the path of the socket short, whatever that of the directory is
	l      net.Listener
	ctx    context.Context // ends with the door
	cancel context.CancelFunc
	served sync.WaitGroup
}

// openDir opens a directory, and gives a path of bounded length to what is in it: that of a socket may not be long.
func openDir(dir, name string) (*os.File, string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, "", err
	}
	return d, fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name), nil
}

// listenDev makes the socket. A second `dev` in the same directory is refused before it does anything.
func listenDev(dir string) (*devDoor, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d, path, err := openDir(dir, devSocket)
	if err != nil {
		return nil, err
	}
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("a `dev` runs in %s already; nothing was started; stop it first, or say another "+
			"--data", dir), c.Close(), d.Close())
	}
	// Nobody listens: what is there was left by one that was killed.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, d.Close())
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &devDoor{dir: d, l: l, ctx: ctx, cancel: cancel}, nil
}

// serve answers until the door is closed.
func (d *devDoor) serve(f *fleet) {
	d.served.Go(func() {
		for {
			c, err := d.l.Accept()
			if err != nil {
				return
			}
			d.served.Go(func() { d.answer(c, f) })
		}
	})
}

// answer does what one line asks: the name of a node that is to be started.
func (d *devDoor) answer(c net.Conn, f *fleet) {
	defer func() { _ = c.Close() }() // it is answered
	defer context.AfterFunc(d.ctx, func() { _ = c.Close() })()
	name, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return // whoever it was has gone
	}
	pid, err := f.restart(d.ctx, strings.TrimSpace(name))
	if err != nil {
		_, _ = fmt.Fprintf(c, "no %v\n", err) // it may have gone
		return
	}
	_, _ = fmt.Fprintf(c, "ok %d\n", pid) // it may have gone
}

func (d *devDoor) close() error {
	d.cancel()
	err := d.l.Close()
	d.served.Wait()
	return errors.Join(err, d.dir.Close())
}

func newDevRestart() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restart NODE",
		Short: "bring back a node that was killed",
		Long: "Has the `dev` that runs in the directory start the node again, on the same ports and with its data, and\n" +
			"returns when it is ready.",
		Example: "  weida dev restart n1",
		Args:    cobra.ExactArgs(1),
	}
	dir := cmd.Flags().String("data", defaultDev, "`DIR` of the `dev` that runs")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, path, err := openDir(*dir, devSocket)
		if err == nil {
			defer func() { _ = d.Close() }() // it was only read
			var c net.Conn
			if c, err = net.Dial("unix", path); err == nil {
				return askDev(cmd.Context(), c, args[0])
			}
		}
		return &exitError{statusUnreachable, fmt.Errorf("no `dev` with several nodes runs in %s (%w); nothing was started; "+
			"start it with `%s dev --data %s`", filepath.Clean(*dir), err, self(), quoted(*dir))}
	}
	return cmd
}

// askDev asks for a node and waits until it is ready.
func askDev(ctx context.Context, c net.Conn, name string) error {
	defer func() { _ = c.Close() }() // it is answered
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := fmt.Fprintf(c, "%s\n", name); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if ctx.Err() != nil {
		return errors.New("interrupted; the node goes on starting")
	}
	if err != nil {
		return &exitError{statusUnreachable, fmt.Errorf("the `dev` ended before the node was ready: %w", err)}
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if word != "ok" {
		return &exitError{statusRefused, errors.New(rest)}
	}
	fmt.Printf("%s is back, process %s\n", name, rest)
	return nil
}
