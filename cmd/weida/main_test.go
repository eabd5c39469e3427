package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"weida/raftstore"
	"weida/wal"
)

// patience bounds a hang and decides nothing else: all scripts together may take long on a slow machine.
const patience = 9 * time.Minute

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil { // scripts wait more than they work
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	testscript.Main(m, map[string]func(){"weida": func() {
		switchOff(os.Getenv("WEIDA_SWITCH_OFF"))
		main()
	}})
}

// switchOff leaves out rules, wal.RULE and raftstore.RULE: suites that run this binary as weida show with it that they
// would notice.
func switchOff(rules string) {
	for _, rule := range strings.Fields(rules) {
		if name, ok := strings.CutPrefix(rule, "wal."); ok {
			wal.SwitchOff(name)
		} else {
			raftstore.SwitchOff(strings.TrimPrefix(rule, "raftstore."))
		}
	}
}

// TestScripts plays the command line against real nodes. Beside testscript's own commands there are
//
//	node dev|serve ARGS    start a node and wait until it is ready
//	node stop              Ctrl-C, and it has to end with status 0
//	node kill              kill -9
//	said                   what the node printed becomes stdout
//	status N COMMAND ARGS  run a command, which has to end with status N
//	copied WORD            run the line that the node offered for copying behind WORD
//	fake broker            start a broker that ends a publish as the body says, in scripted.yaml
//	seen FILE PATTERN      wait until the file, which something in the background writes, has a line like that
//	until COMMAND ARGS     run a command again and again until it ends with status 0
//	ended FILE             wait until the process whose id is in the file is no more
//	fake [asked]           start a map with an admin address, in fake.yaml; asked prints its requests
//
// and the condition [disk]: the script's directory is on a disk, and not in memory or on a container's layer.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:      "testdata/script",
		Deadline: time.Now().Add(patience),
		Condition: func(cond string) (bool, error) {
			if cond != "disk" {
				return false, fmt.Errorf("there is no condition %q", cond)
			}
			return onDisk(os.TempDir())
		},
		Setup: func(e *testscript.Env) error {
			n := &node{dir: e.WorkDir, env: e.Vars}
			e.Values[nodeKey{}] = n
			e.Values[fakeKey{}] = &fakeHolder{}
			e.Defer(func() { _ = n.kill() }) // whatever it ended with: the script is over
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"node": cmdNode, "said": cmdSaid, "status": cmdStatus, "copied": cmdCopied,
			"fake": cmdFake, "seen": cmdSeen, "ended": cmdEnded, "until": cmdUntil,
		},
	})
}

// onDisk says whether a directory is on a file system that the doctor has nothing against.
func onDisk(dir string) (bool, error) {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return st.Type == unix.EXT4_SUPER_MAGIC || st.Type == unix.XFS_SUPER_MAGIC || st.Type == unix.BTRFS_SUPER_MAGIC, err
}

type nodeKey struct{}

func cmdNode(ts *testscript.TestScript, neg bool, args []string) {
	n, ok := ts.Value(nodeKey{}).(*node)
	if !ok || neg || len(args) == 0 {
		ts.Fatalf("usage: node dev|serve|stop|kill [ARGS]")
	}
	switch args[0] {
	case "stop":
		ts.Check(n.stop())
	case "kill":
		ts.Check(n.kill())
	default:
		if args[0] == "dev" && !slices.Contains(args, "--nodes") { // most of what is tested needs no more
			args = append(args, "--nodes", "1")
		}
		n.env = append(n.env, "WEIDA_CONTEXT="+ts.Getenv("WEIDA_CONTEXT")) // of the same names the last counts
		ts.Check(n.start(args...))
	}
}

func cmdSaid(ts *testscript.TestScript, _ bool, _ []string) {
	n, _ := ts.Value(nodeKey{}).(*node)
	fmt.Fprint(ts.Stdout(), n.said())
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND [ARGS]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
}

func cmdCopied(ts *testscript.TestScript, _ bool, args []string) {
	n, _ := ts.Value(nodeKey{}).(*node)
	for line := range strings.Lines(n.said()) {
		if command, ok := strings.CutPrefix(line, args[0]+" "); ok {
			ts.Check(ts.Exec("sh", "-c", strings.TrimSpace(command)))
			return
		}
	}
	ts.Fatalf("the node offered nothing for %q:\n%s", args[0], n.said())
}

func cmdSeen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: seen FILE PATTERN")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && want.Match(b) {
			return
		}
	}
	ts.Fatalf("%s never came to hold %q:\n%s", args[0], args[1], ts.ReadFile(args[0]))
}

func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	var err error
	for start := time.Now(); time.Since(start) < patience; time.Sleep(50 * time.Millisecond) {
		if err = ts.Exec(args[0], args[1:]...); err == nil {
			return
		}
	}
	ts.Fatalf("%s: %v", strings.Join(args, " "), err)
}

func cmdEnded(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return
		}
	}
	ts.Fatalf("process %d goes on", pid)
}

// node is a weida process that runs a node, started any number of times one after another.
type node struct {
	dir string
	env []string

	cmd    *exec.Cmd
	reader sync.WaitGroup

	mu  sync.Mutex
	out bytes.Buffer // guarded by mu; of the present life
	err bytes.Buffer // read when the process is over
}

func (n *node) said() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out.String()
}

// start runs weida and returns when it has said all that it says at its start.
func (n *node) start(args ...string) error {
	if n.cmd != nil {
		return errors.New("the node runs already")
	}
	cmd := exec.Command("weida", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = n.dir, n.env, &n.err
	// It must not outlive a test that is killed itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	n.out.Reset()
	n.err.Reset()
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd = cmd
	last := "Ctrl-C stops"
	if args[0] == "serve" {
		last = "is ready at"
	}
	ready := make(chan error, 1)
	n.reader.Go(func() { n.read(out, last, ready) })
	if err := <-ready; err != nil {
		return errors.Join(err, n.kill(), errors.New(n.err.String()))
	}
	return nil
}

func (n *node) read(out io.Reader, last string, ready chan<- error) {
	lines := bufio.NewScanner(out)
	told := false
	for lines.Scan() {
		n.mu.Lock()
		fmt.Fprintln(&n.out, lines.Text())
		n.mu.Unlock()
		if !told && strings.Contains(lines.Text(), last) {
			told = true
			ready <- nil
		}
	}
	if !told {
		ready <- errors.Join(lines.Err(), errors.New("the node ended before it was ready"))
	}
}

func (n *node) stop() error {
	if n.cmd == nil {
		return errors.New("no node runs")
	}
	if err := n.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := n.wait(); err != nil {
		return fmt.Errorf("the node stopped with %w\n%s", err, n.err.String())
	}
	return nil
}

func (n *node) wait() error {
	n.reader.Wait()
	err := n.cmd.Wait()
	n.cmd = nil
	return err
}

// kill ends the node the hard way; it is an error if it had ended by itself with one.
func (n *node) kill() error {
	if n.cmd == nil {
		return nil
	}
	err := n.cmd.Process.Kill()
	_ = n.wait() // killed, of course
	return err
}

// TestCopyReady: what dev prints for copying begins as dev itself was started.
func TestCopyReady(t *testing.T) {
	// A test binary lies where `go run` puts its own.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(exe, string(filepath.Separator)+"go-build") {
		t.Skip("this binary was not built by `go test`, which is what is tested: ", exe)
	}
	if got := self(); got != "go run ./cmd/weida" {
		t.Errorf("self() = %q", got)
	}
}

func TestQuoted(t *testing.T) {
	for _, path := range []string{"weida-dev/n1", "with space/n1", "it's/n1", "$HOME;x"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quoted(path)).Output()
		if err != nil || string(out) != path {
			t.Errorf("a shell reads %s as %q, %v", quoted(path), out, err)
		}
	}
}
