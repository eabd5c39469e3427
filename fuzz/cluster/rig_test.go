package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/fsync"
	"weida/fuzz/internal/process"
	"weida/fuzz/powercut"
)

// patience bounds a hang and decides nothing else.
var patience = time.Duration(count(2, 20)) * time.Minute

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
	*process.Node
	name   string
	dir    string         // of its data
	disk   *powercut.Disk // that holds the data; nil where it is one of everybody
	listen string
	admin  string // http://HOST:PORT
}

// rig is a cluster of n1, n2 and so on, all of them seeds, and one client's key that may do everything.
type rig struct {
	t     *testing.T
	ctx   context.Context
	dir   string
	nodes []*node
	key   *endpoint.Identity
	trust *endpoint.Trust
}

// ports are a node's addresses.
type ports struct{ udp, tcp string }

func newRig(t *testing.T, n int) *rig { return newRigOn(t, make([]*powercut.Disk, n)) }

// newRigOn has a node for each disk, which holds its data directory; nil is the disk of everybody.
func newRigOn(t *testing.T, disks []*powercut.Disk) *rig {
	t.Helper()
	n := len(disks)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, dir: directory(t)}
	r.key = r.identity(filepath.Join(r.dir, "keys"), "client")
	at := r.freePorts(n)
	var seeds []map[string]string
	keys := make(map[endpoint.Fingerprint]endpoint.Role)
	for i, d := range r.dataDirs(disks) {
		key := d.key
		x := &node{name: d.name, dir: d.dir, disk: d.disk, listen: at[i].udp, admin: "http://" + at[i].tcp}
		keys[key] = endpoint.RoleNode
		seeds = append(seeds, map[string]string{"name": x.name, "address": x.listen, "fingerprint": key.String()})
		said, err := os.Create(filepath.Join(r.dir, x.name+".out"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = said.Close() }) // for people to read
		x.Node = process.New(weida, filepath.Join(r.dir, x.name+".yaml"), said)
		r.nodes = append(r.nodes, x)
	}
	r.trust = endpoint.NewTrust(keys)
	if err := os.Mkdir(filepath.Join(r.dir, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.end() })
	for _, x := range r.nodes {
		r.configure(x, seeds)
	}
	r.start(r.nodes...)
	return r
}

// dataDir is a node's data directory with its key.
type dataDir struct {
	name, dir string
	disk      *powercut.Disk
	key       endpoint.Fingerprint
}

// dataDirs makes the nodes' data directories with their keys, in the order of the keys, which is that of their numbers.
func (r *rig) dataDirs(disks []*powercut.Disk) (list []dataDir) {
	r.t.Helper()
	for i, disk := range disks {
		d := dataDir{disk: disk, dir: filepath.Join(r.dir, fmt.Sprintf("made%d", i))}
		if disk != nil {
			d.dir = filepath.Join(disk.Mount(), "made")
		}
		d.key = r.identity(d.dir, "node").Fingerprint()
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b dataDir) int { return bytes.Compare(a.key[:], b.key[:]) })
	for i := range list {
		d := &list[i]
		d.name = fmt.Sprintf("n%d", i+1)
		made := d.dir
		d.dir = filepath.Join(filepath.Dir(made), d.name)
		if err := os.Rename(made, d.dir); err != nil {
			r.t.Fatal(err)
		}
	}
	return list
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

func (r *rig) identity(dir, name string) *endpoint.Identity {
	r.t.Helper()
	err := os.MkdirAll(dir, 0o700)
	if err == nil && name == "node" {
		err = initStore(dir)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// freePorts finds ports on the loopback interface that nobody has. Every life of a node has the same.
func (r *rig) freePorts(n int) (list []ports) {
	r.t.Helper()
	for range n {
		udp, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		defer func() { _ = udp.Close() }() // nothing was sent
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		defer func() { _ = tcp.Close() }() // nobody came
		list = append(list, ports{udp.LocalAddr().String(), tcp.Addr().String()})
	}
	return list
}

func (r *rig) configure(x *node, seeds []map[string]string) {
	r.t.Helper()
	b, err := yaml.Marshal(map[string]any{
		"name": x.name, "data": x.dir, "listen": x.listen, "admin": strings.TrimPrefix(x.admin, "http://"),
		"trust": []map[string]string{{"fingerprint": r.key.Fingerprint().String(), "role": "admin"}},
		"seeds": seeds, "connectors": map[string]string{"dir": "files"},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, x.name+".yaml"), b, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// start begins a life of each and waits until all are ready.
func (r *rig) start(list ...*node) {
	r.t.Helper()
	for _, x := range list {
		if err := x.Launch(); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, x := range list {
		if _, err := x.Ready(); err != nil {
			r.t.Fatal(err)
		}
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
		if x.Alive() {
			if err := x.Kill(); err != nil {
				r.t.Error(err)
			}
		}
	}
	if r.t.Failed() {
		for _, x := range r.nodes {
			b, err := os.ReadFile(filepath.Join(r.dir, x.name+".out"))
			if err != nil {
				r.t.Log(err)
				continue
			}
			r.t.Logf("%s said last:\n%s", x.name, b[max(0, len(b)-3000):])
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
	i := slices.IndexFunc(r.nodes, func(x *node) bool { return x.name == name })
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
	var addrs []string
	for _, x := range r.nodes {
		addrs = append(addrs, x.listen)
	}
	var c *client.Client
	r.within(time.Minute, "a client connects", func() (err error) {
		c, err = client.Dial(r.ctx, client.Options{Addrs: addrs, Identity: r.key, Trust: r.trust})
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
