package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weida/broker/client"
	"weida/fuzz/internal/fleet"
	"weida/fuzz/internal/process"
	"weida/fuzz/powercut"
)

// patience bounds a test that hangs, and hang one step of it. They decide nothing else: a machine may be slow.
const (
	patience = time.Hour
	hang     = 5 * time.Minute
)

// weida is built once for all tests.
var weida string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weida-cluster")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }() // what is left is in the system's own place for it
		weida, err = process.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// long says that the large counts are wanted, and the time that they take.
var long = os.Getenv("WEIDA_LONG") != ""

// every skips a test unless all of them are wanted: a plain run of the module's tests has the first few.
func every(t *testing.T) {
	if !long && os.Getenv("WEIDA_CLUSTER") == "" {
		t.Skip("WEIDA_CLUSTER=1 runs all scenarios")
	}
}

// count is how much of something a test does.
func count(short, large int) int {
	if long {
		return large
	}
	return short
}

// node is one process of a cluster.
type node struct {
	*fleet.Node
	disk *powercut.Disk // that holds the data; nil where it is one of everybody
}

// rig is a cluster of n1, n2 and so on, and one client's key that may do everything.
type rig struct {
	*fleet.Fleet
	t     *testing.T
	ctx   context.Context
	dir   string
	nodes []*node
}

func newRig(t *testing.T, n int) *rig { return newRigOn(t, weida, make([]*powercut.Disk, n)) }

// newRigOn has a node, of this binary, for each disk, which holds its data directory; nil is the disk of everybody.
func newRigOn(t *testing.T, bin string, disks []*powercut.Disk) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, dir: directory(t)}
	var err error
	r.Fleet, err = fleet.New(fleet.Options{
		Bin: bin, Dir: r.dir, Nodes: len(disks),
		Data: func(i int, name string) string {
			if disks[i] == nil {
				return filepath.Join(r.dir, name)
			}
			return filepath.Join(disks[i].Mount(), name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range r.Nodes {
		r.nodes = append(r.nodes, &node{x, disks[i]})
	}
	t.Cleanup(r.end)
	r.start(r.nodes...)
	return r
}

// directory is one of the test's own, kept where it fails.
func directory(t *testing.T) string {
	name := strings.ReplaceAll(t.Name(), "/", "-")
	dir, err := os.MkdirTemp("", name) //nolint:usetesting // t.TempDir's goes where the test fails
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kept: %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// start begins a life of each and waits until all are ready.
func (r *rig) start(list ...*node) {
	r.t.Helper()
	var lives []*fleet.Node
	for _, x := range list {
		lives = append(lives, x.Node)
	}
	if err := r.Start(lives...); err != nil {
		r.t.Fatal(err)
	}
}

// kill is kill -9 of each.
func (r *rig) kill(list ...*node) {
	r.t.Helper()
	for _, x := range list {
		if err := x.Kill(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// stop ends each in order.
func (r *rig) stop(list ...*node) {
	r.t.Helper()
	for _, x := range list {
		if err := x.Stop(); err != nil {
			r.t.Error(err)
		}
	}
}

// end ends whatever still runs. A node that ended by itself is a failure.
func (r *rig) end() {
	for _, x := range r.nodes {
		if x.disk != nil {
			x.disk.Heal() // who waits for a disk that stalls cannot end
		}
	}
	if err := r.End(); err != nil {
		r.t.Error(err)
	}
	if r.t.Failed() {
		for _, x := range r.nodes {
			r.t.Logf("%s said last:\n%s", x.Name, x.Said(3000))
		}
	}
}

// alive are the nodes that run.
func (r *rig) alive() (list []*node) {
	for _, x := range r.nodes {
		if x.Alive() {
			list = append(list, x)
		}
	}
	return list
}

func (r *rig) named(name string) *node {
	r.t.Helper()
	i := slices.IndexFunc(r.nodes, func(x *node) bool { return x.Name == name })
	if i < 0 {
		r.t.Fatalf("there is no node %q", name)
	}
	return r.nodes[i]
}

// others are all nodes but some.
func (r *rig) others(but ...*node) (list []*node) {
	for _, x := range r.nodes {
		if !slices.Contains(but, x) {
			list = append(list, x)
		}
	}
	return list
}

// client knows all nodes.
func (r *rig) client() *client.Client {
	r.t.Helper()
	var c *client.Client
	r.within(hang, "a client connects", func() (err error) {
		c, err = client.Dial(r.ctx, client.Options{Addrs: r.Addrs(), Identity: r.Key, Trust: r.Trust})
		return err
	})
	r.t.Cleanup(c.Close)
	return c
}

// within asks again and again until there is no error.
func (r *rig) within(most time.Duration, what string, so func() error) {
	r.t.Helper()
	began := time.Now()
	for {
		err := so()
		if err == nil {
			return
		}
		if time.Since(began) > most || r.ctx.Err() != nil {
			r.t.Fatalf("after %v it is not so that %s: %v", time.Since(began).Round(time.Millisecond), what, err)
		}
		select {
		case <-r.ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
