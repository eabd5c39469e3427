package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"weida/fuzz/internal/fleet"
)

// clients is the place of everybody who is no node.
const clients = -1

// network is a network of the run's own: each node in a namespace, and this process, with all clients, in another. They
// meet at a bridge. What is to be lost is dropped where it would be received. All of it ends with this process.
type network struct {
	spaces []*space

	mu sync.Mutex // held while rules are changed
}

// space is a namespace. A process that does nothing holds it.
type space struct {
	holder *exec.Cmd
	addr   string
}

// ownNamespace is in the environment of a process that is in a network namespace of its own.
const ownNamespace = "WEIDA_CRASH_NAMESPACE"

// networkMissing says what partitions need and is not there; "" if they are possible.
func networkMissing() string {
	if os.Geteuid() != 0 {
		return "partitions need root"
	}
	for _, name := range []string{"ip", "iptables-restore", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Sprintf("partitions need the command %s (Debian packages iproute2, iptables, util-linux)", name)
		}
	}
	return ""
}

// enterNamespace starts this program once more, with more arguments, in a network namespace of its own. It returns only
// in there, or with an error.
func enterNamespace(more ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the namespace is the thread's, and exec makes it the process's
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	return syscall.Exec(self, append(slices.Clone(os.Args), more...), append(os.Environ(), ownNamespace+"=1"))
}

// command runs a program of the system's to its end.
func command(input, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// newNetwork makes a namespace for each node. This process is in one of its own already.
func newNetwork(nodes int) (n *network, err error) {
	n = &network{}
	for _, args := range []string{
		"link set lo up", "link add weida type bridge", "addr add 10.0.0.254/24 dev weida", "link set weida up",
	} {
		if err := command("", "ip", strings.Fields(args)...); err != nil {
			return nil, err
		}
	}
	for i := range nodes {
		s := &space{addr: fmt.Sprintf("10.0.0.%d", i+1)}
		if err := s.open(fmt.Sprintf("weida%d", i+1)); err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.spaces = append(n.spaces, s)
	}
	return n, nil
}

func (s *space) open(link string) error {
	s.holder = exec.Command("sleep", "infinity")
	s.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := s.holder.Start(); err != nil {
		return err
	}
	pid := fmt.Sprint(s.holder.Process.Pid)
	steps := [][]string{
		{"ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "link", "set", link, "master", "weida", "up"},
		append(s.enter(), "ip", "addr", "add", s.addr+"/24", "dev", "eth0"),
		append(s.enter(), "ip", "link", "set", "eth0", "up"),
		append(s.enter(), "ip", "link", "set", "lo", "up"),
	}
	for _, step := range steps {
		if err := command("", step[0], step[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// enter is the command that becomes another one in the namespace.
func (s *space) enter() []string {
	return []string{"nsenter", "-t", fmt.Sprint(s.holder.Process.Pid), "-n"}
}

func (n *network) close() (err error) {
	for _, s := range n.spaces {
		err = errors.Join(err, s.holder.Process.Kill())
		s.holder.Wait() //nolint:errcheck // it was killed
	}
	return err
}

// dial connects from within a node's namespace, where its HTTP side is on the loopback interface.
func (s *space) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	runtime.LockOSThread()
	own, err := os.Open(filepath.Join("/proc/thread-self/ns/net"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = own.Close() }() // read only
	theirs, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", s.holder.Process.Pid))
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }() // read only
	if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(fmt.Sprintf("bug: crash: no way back to the namespace: %v", back))
	}
	runtime.UnlockOSThread()
	return c, err
}

// ports are the nodes' addresses: each has the network to itself.
func (n *network) ports() (list []fleet.Ports) {
	for _, s := range n.spaces {
		list = append(list, fleet.Ports{UDP: s.addr + ":7443", TCP: "127.0.0.1:7444"})
	}
	return list
}

// addrOf is where somebody's packets come from.
func (n *network) addrOf(who int) string {
	if who == clients {
		return "10.0.0.254"
	}
	return n.spaces[who].addr
}

// drops says whether a partition lets nothing through from one to another.
func drops(f fault, nodes, from, to int) bool {
	in := func(i int) bool { return slices.Contains(f.Nodes, i) }
	node := from != clients && to != clients
	switch f.How {
	case "split":
		return node && in(from) != in(to)
	case "split-with-clients":
		return (in(from) || from == clients) != (in(to) || to == clients)
	case "split-from-clients":
		return in(from) != in(to)
	case "deaf":
		return node && in(to) && !in(from)
	case "mute":
		return node && in(from) && !in(to)
	case "bridge":
		half := func(i int) int {
			at := slices.Index(f.Nodes, i)
			switch {
			case at == 0:
				return 0
			case at <= nodes/2:
				return 1
			}
			return 2
		}
		return node && half(from)+half(to) == 3
	}
	return false
}

// rules are what one receiver is told, in the form of iptables-restore.
func (n *network) rules(f *fault, to int) string {
	var b strings.Builder
	b.WriteString("*filter\n:INPUT ACCEPT [0:0]\n")
	for from := clients; f != nil && from < len(n.spaces); from++ {
		switch {
		case from == to:
		case f.Percent > 0:
			fmt.Fprintf(&b, "-A INPUT -s %s -m statistic --mode random --probability %.2f -j DROP\n", n.addrOf(from),
				float64(f.Percent)/100)
		case drops(*f, len(n.spaces), from, to):
			fmt.Fprintf(&b, "-A INPUT -s %s -j DROP\n", n.addrOf(from))
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// set makes the network as a partition has it, whole for nil.
func (n *network) set(f *fault) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	err = command(n.rules(f, clients), "iptables-restore", "-w")
	for i, s := range n.spaces {
		args := append(s.enter(), "iptables-restore", "-w")
		err = errors.Join(err, command(n.rules(f, i), args[0], args[1:]...))
	}
	return err
}
