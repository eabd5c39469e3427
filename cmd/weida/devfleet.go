package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
	"weida/wal"
)

// devReplicated says that the nodes of `dev` are one cluster, and that its queue has three replicas.
const devReplicated = true

// devFleet runs several nodes, each a process of its own, until ctx ends.
func devFleet(ctx context.Context, dir string, nodes int) (err error) {
	door, err := listenDev(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, door.close()) }()
	for i := range nodes {
		if err := awaitLeft(ctx, nodeName(i+1), filepath.Join(dir, nodeName(i+1)), os.Stderr); err != nil {
			return err
		}
	}
	files, err := prepareFleet(dir, nodes)
	if err != nil {
		return err
	}
	f := newFleet(dir, files)
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := f.startAll(ctx); err != nil {
		return err
	}
	contextPath := filepath.Join(dir, "context.yaml")
	_, made := os.Lstat(contextPath) // written last: without it nothing was ever made here
	c := fleetContext(files)
	if errors.Is(made, fs.ErrNotExist) {
		if err := makeDemo(ctx, c, nodes); err != nil {
			return err
		}
	}
	if err := writeYAML(contextPath, c); err != nil {
		return err
	}
	awaitLeaders(ctx, c)
	announceFleet(dir, contextPath, files)
	door.serve(f)
	<-ctx.Done()
	return nil
}

// devNode is one node of a directory: its file, and its key.
type devNode struct {
	config string
	file   nodeFile
	key    endpoint.Fingerprint
}

// prepareFleet makes keys and node files, once, and reads what is there.
func prepareFleet(dir string, nodes int) ([]devNode, error) {
	files := fsync.OS()
	keys := filepath.Join(dir, "keys")
	if err := fsync.MkdirAll(files, keys); err != nil {
		return nil, err
	}
	id, err := endpoint.LoadOrCreateIdentity(files, keys, "client")
	if err != nil {
		return nil, err
	}
	list := make([]devNode, nodes)
	fresh := false
	for i := range list {
		n := &list[i]
		n.config = nodeConfig(dir, i+1)
		err := readYAML(n.config, &n.file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		fresh = fresh || err != nil
	}
	for i := range list {
		data, wanted := filepath.Join(dir, nodeName(i+1)), func(endpoint.Fingerprint) bool { return true }
		if fresh {
			wanted = func(f endpoint.Fingerprint) bool { return int(f[0])*nodes/256 == i }
		}
		if list[i].key, err = keyOfNode(files, data, wanted); err != nil {
			return nil, err
		}
	}
	if !fresh {
		return list, nil
	}
	// Some file is missing: all are written anew, so that they name the same seeds.
	ports, err := freePorts(nodes)
	if err != nil {
		return nil, err
	}
	var seeds []seedEntry
	for i := range list {
		list[i].file = nodeFile{
			Name: nodeName(i + 1), Data: nodeName(i + 1), Listen: ports[i].udp, Admin: ports[i].tcp,
			Trust: []trustEntry{{id.Fingerprint().String(), string(endpoint.RoleAdmin)}},
		}
		seeds = append(seeds, seedEntry{nodeName(i + 1), ports[i].udp, list[i].key.String()})
	}
	for i := len(list) - 1; i >= 0; i-- { // n1 last: a directory has its nodes once it has that one
		list[i].file.Seeds = seeds
		if err := writeYAML(list[i].config, list[i].file); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// keyTries bounds the keys that are made to find one that is wanted.
const keyTries = 1000

// keyOfNode makes a node's data directory and the key in it, which the others have to know before it starts. The
// nodes of a cluster are numbered in the order of their keys: of new ones such are wanted that n1 is number 1.
func keyOfNode(files fsync.FS, data string, wanted func(endpoint.Fingerprint) bool) (
	f endpoint.Fingerprint, err error,
) {
	if err := wal.InitStore(files, data, nil); err != nil {
		return f, err
	}
	for range keyTries {
		id, err := endpoint.LoadOrCreateIdentity(files, data, "node")
		if err != nil {
			return f, err
		}
		if f = id.Fingerprint(); wanted(f) {
			break
		}
		for _, name := range []string{"node.crt", "node.key"} { // the key last: without it there is none
			if err := os.Remove(filepath.Join(data, name)); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// portPair is a node's addresses.
type portPair struct{ udp, tcp string }

// freePorts finds ports on the loopback interface that nobody has. They are written down, so that a node that is
// started again has the same.
func freePorts(n int) (pairs []portPair, err error) {
	ports, err := endpoint.FreePorts(n)
	for _, p := range ports {
		addr := fmt.Sprint("127.0.0.1:", p)
		pairs = append(pairs, portPair{addr, addr})
	}
	return pairs, err
}

// fleetContext says where a client finds the nodes.
func fleetContext(nodes []devNode) contextFile {
	c := contextFile{Keys: "keys", Name: "client"}
	for i, n := range nodes {
		c.Addresses = append(c.Addresses, n.file.Listen)
		c.Nodes = append(c.Nodes, n.key.String())
		if base := "http://" + n.file.Admin; i == 0 {
			c.Admin = base
		} else {
			c.Admins = append(c.Admins, base)
		}
	}
	return c
}

// makeDemo makes the queue demo, with a replica on every one of three nodes, and waits until it is there.
func makeDemo(ctx context.Context, c contextFile, nodes int) error {
	spec := "{}"
	if devReplicated && nodes >= 3 {
		spec = `{"replicas": 3}`
	}
	a := newAPI(append([]string{c.Admin}, c.Admins...)...)
	m := &manifest{kind: kinds[0], name: "demo", spec: []byte(spec)}
	var it *item
	return poll(ctx, func() (_ bool, err error) {
		if it != nil {
			it, err = a.get(ctx, m.kind, m.name)
			return err == nil && it.Status.Phase == control.Ready, err
		}
		it, err = a.put(ctx, m, control.Apply, nil, false) // the same again changes nothing
		var refused *wire.Error
		if errors.As(err, &refused) && (refused.Code == wire.NotCommitted || refused.Code == wire.MutationIndeterminate) {
			return false, nil // the nodes have not found each other yet
		}
		return false, err
	})
}

// leadersPatience is how long a start waits until every group has a leader.
const leadersPatience = 15 * time.Second

// awaitLeaders waits until the lines that are printed work: nodes that have just come up elect first. Where that takes
// too long it is told why, and the nodes go on.
func awaitLeaders(ctx context.Context, c contextFile) {
	ctx, cancel := context.WithTimeout(ctx, leadersPatience)
	defer cancel()
	a := newAPI(append([]string{c.Admin}, c.Admins...)...)
	var v admin.Verdict
	err := poll(ctx, func() (bool, error) {
		b, _, err := a.do(ctx, http.MethodGet, "/v1/check/"+admin.CheckLeaderless, nil, nil)
		if err == nil {
			err = json.Unmarshal(b, &v)
		}
		return err == nil && v.OK, err
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "weida: not every group has a leader yet: %v\n", err)
		tellVerdict(os.Stderr, &v, pauseAway)
	}
}

// announceFleet prints lines that work as they stand.
func announceFleet(dir, contextPath string, nodes []devNode) {
	with, me, where := "", self(), ""
	if dir != defaultDev || os.Getenv("WEIDA_CONTEXT") != "" {
		with = " --context " + quoted(contextPath)
	}
	if dir != defaultDev {
		where = " --data " + quoted(dir)
	}
	for _, n := range nodes {
		fmt.Printf("weida %s is ready at %s, loopback only, data in %s\n", n.file.Name, n.file.Listen,
			filepath.Join(dir, n.file.Name))
	}
	want := "stored:flushed"
	if devReplicated {
		want = "replicated:2:flushed"
	}
	pid := quoted(filepath.Join(dir, nodes[0].file.Name, "pid"))
	fmt.Printf("\npublish   %s pub demo 'hello'%s --want %s\n", me, with, want)
	fmt.Printf("consume   %s sub demo%s --count 1\n", me, with)
	fmt.Printf("who leads %s get queues -o wide%s\n", me, with)
	fmt.Printf("watch     %s status --watch%s\n", me, with)
	fmt.Printf("kill -9   kill -9 $(cat %s)     # a node; the others go on\n", pid)
	fmt.Printf("again     %s dev restart %s%s\n", me, nodes[0].file.Name, where)
	fmt.Printf("admin     http://%s/     # a page for your browser\n\nCtrl-C stops all %d nodes in order.\n",
		nodes[0].file.Admin, len(nodes))
}

// names are those of nodes, for people.
func names(nodes []devNode) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.file.Name)
	}
	return strings.Join(list, ", ")
}
