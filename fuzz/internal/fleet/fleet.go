package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"weida/broker/endpoint"
	"weida/fsync"
	"weida/fuzz/internal/process"
	"weida/wal"
)

// Options say what a fleet is made of. Bin, Dir and Nodes are required.
type Options struct {
	Bin   string // the binary
	Dir   string // of node files, keys and what the nodes say; it exists
	Nodes int
	// Data is where a node's data directory is made, Dir/NAME if nil. The directory above it exists.
	Data func(node int, name string) string
	// Scrub is how often the nodes read again what they store, to find damage; their default if zero.
	Scrub time.Duration
	// Ports are the nodes' addresses; free ones of the loopback interface if nil.
	Ports []Ports
	// By is the command that starts a node's lives, see process.Node.By; HTTP asks it. Both may be nil.
	By   func(node int) []string
	HTTP func(node int) *http.Client
}

// Ports are a node's addresses.
type Ports struct{ UDP, TCP string }

// Node is one process of a fleet. Every life of it has the same addresses.
type Node struct {
	*process.Node
	Name   string
	Dir    string // of its data
	Listen string // UDP address
	Admin  string // http://HOST:PORT
	config string
	http   *http.Client
	said   *os.File
}

// Fleet is n1, n2 and so on, all of them seeds, and one client's key that may do everything.
type Fleet struct {
	Dir   string
	Nodes []*Node
	Key   *endpoint.Identity
	Trust *endpoint.Trust
	scrub time.Duration
}

// New makes everything that nodes need and starts none.
func New(o Options) (*Fleet, error) {
	f := &Fleet{Dir: o.Dir, scrub: o.Scrub}
	var err error
	if f.Key, err = identity(filepath.Join(o.Dir, "keys"), "client"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(o.Dir, "files"), 0o700); err != nil {
		return nil, err
	}
	if o.Ports == nil {
		if o.Ports, err = freePorts(o.Nodes); err != nil {
			return nil, err
		}
	}
	keys, err := f.make(o)
	if err != nil {
		return nil, errors.Join(err, f.End())
	}
	trust := make(map[endpoint.Fingerprint]endpoint.Role)
	var seeds []map[string]string
	for i, x := range f.Nodes {
		trust[keys[i]] = endpoint.RoleNode
		seeds = append(seeds, map[string]string{"name": x.Name, "address": x.Listen, "fingerprint": keys[i].String()})
	}
	f.Trust = endpoint.NewTrust(trust)
	for _, x := range f.Nodes {
		if err := f.configure(x, seeds); err != nil {
			return nil, errors.Join(err, f.End())
		}
	}
	return f, nil
}

// make makes the nodes with their data directories, in the order of their keys, which is that of their numbers.
func (f *Fleet) make(o Options) (keys []endpoint.Fingerprint, err error) {
	made := make(map[endpoint.Fingerprint]string)
	for i := range o.Nodes {
		dir := filepath.Join(o.Dir, "keys", fmt.Sprint(i))
		id, err := identity(dir, "node")
		if err != nil {
			return nil, err
		}
		made[id.Fingerprint()] = dir
		keys = append(keys, id.Fingerprint())
	}
	slices.SortFunc(keys, func(a, b endpoint.Fingerprint) int { return bytes.Compare(a[:], b[:]) })
	for i, key := range keys {
		x := &Node{Name: fmt.Sprintf("n%d", i+1), Listen: o.Ports[i].UDP, Admin: "http://" + o.Ports[i].TCP}
		x.Dir = filepath.Join(o.Dir, x.Name)
		if o.Data != nil {
			x.Dir = o.Data(i, x.Name)
		}
		x.config = filepath.Join(o.Dir, x.Name+".yaml")
		if o.HTTP != nil {
			x.http = o.HTTP(i)
		}
		if x.said, err = os.Create(filepath.Join(o.Dir, x.Name+".out")); err != nil {
			return nil, err
		}
		x.Node = process.New(o.Bin, x.config, x.said)
		if o.By != nil {
			x.By(o.By(i)...)
		}
		f.Nodes = append(f.Nodes, x)
		if err := wal.InitStore(fsync.OS(), x.Dir, nil); err != nil {
			return nil, err
		}
		if err := move(made[key], x.Dir); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// move brings an identity's files to a data directory, which may be on another file system.
func move(from, to string) error {
	list, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(from)
}

func identity(dir, name string) (*endpoint.Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
}

// freePorts finds ports on the loopback interface that nobody has, and that nobody is given while a node is down.
func freePorts(n int) (list []Ports, err error) {
	ports, err := endpoint.FreePorts(n)
	for _, p := range ports {
		addr := fmt.Sprint("127.0.0.1:", p)
		list = append(list, Ports{addr, addr})
	}
	return list, err
}

func (f *Fleet) configure(x *Node, seeds []map[string]string) error {
	file := map[string]any{
		"name": x.Name, "data": x.Dir, "listen": x.Listen, "admin": strings.TrimPrefix(x.Admin, "http://"),
		"trust": []map[string]string{{"fingerprint": f.Key.Fingerprint().String(), "role": "admin"}},
		"seeds": seeds, "connectors": map[string]string{"dir": "files"},
	}
	if f.scrub > 0 {
		file["scrub"] = map[string]string{"every": f.scrub.String()}
	}
	b, err := yaml.Marshal(file)
	if err != nil {
		return err
	}
	return os.WriteFile(x.config, b, 0o600)
}

// Start begins a life of each and waits until all are ready.
func (f *Fleet) Start(list ...*Node) error {
	for _, x := range list {
		if err := x.Launch(); err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	for _, x := range list {
		if _, err := x.Ready(); err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	return nil
}

// End kills whatever still runs, and closes the files that the nodes wrote to. A node that ended by itself in the
// very moment is an error.
func (f *Fleet) End() (err error) {
	for _, x := range f.Nodes {
		if x.Alive() {
			err = errors.Join(err, x.Kill())
		}
		_ = x.said.Close() // for people to read
	}
	return err
}

// Addrs are all nodes' UDP addresses.
func (f *Fleet) Addrs() (list []string) {
	for _, x := range f.Nodes {
		list = append(list, x.Listen)
	}
	return list
}

// Said is the end of what a node's lives wrote.
func (x *Node) Said(most int) string {
	b, err := os.ReadFile(x.said.Name())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}
