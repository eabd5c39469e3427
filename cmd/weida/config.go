package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/cobra"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/fsync"
)

// nodeFile is a node's configuration: identity, paths, addresses and node-wide numbers, never a queue (T-26).
type nodeFile struct {
	Name       string `yaml:"name"`
	Data       string `yaml:"data"`            // data directory, relative to the file
	Listen     string `yaml:"listen"`          // UDP address
	Admin      string `yaml:"admin,omitempty"` // TCP address of the HTTP side, on the loopback interface
	MessageMax int64  `yaml:"messageMax,omitempty"`
	// Seeds are the nodes that the cluster begins with, this one included: one, or three or more. None is a cluster of
	// this node alone.
	Seeds []seedEntry `yaml:"seeds,omitempty"`
	// Number is that of a node that joins later, as `node add` prints it; one of the seeds has none here.
	Number uint64 `yaml:"number,omitempty"`
	// Trust is last, so that an entry can be written to the end of a file.
	Trust []trustEntry `yaml:"trust"`
	// Connectors lets this node run connectors.
	Connectors *connectorsEntry `yaml:"connectors,omitempty"`
	// Scrub says how what is stored is read again to find damage.
	Scrub *scrubEntry `yaml:"scrub,omitempty"`
	// Consensus holds the numbers of replicated groups, which are the same on all nodes of a cluster.
	Consensus consensusEntry `yaml:"consensus,omitempty"`
}

// consensusEntry is broker.Consensus.
type consensusEntry struct {
	Election  control.Duration `yaml:"election,omitempty"`  // 1.5s if not there
	Heartbeat control.Duration `yaml:"heartbeat,omitempty"` // 200ms if not there
	Streams   int              `yaml:"streams,omitempty"`   // 1024 if not there
}

// scrubEntry says how much is read again, and how often.
type scrubEntry struct {
	BytesPerSecond int64            `yaml:"bytesPerSecond,omitempty"` // 8 MiB if it is not there; below 0 is not at all
	Every          control.Duration `yaml:"every,omitempty"`          // from one beginning to the next; 24h if not there
}

func (c consensusEntry) numbers() broker.Consensus {
	return broker.Consensus{
		Election: time.Duration(c.Election), Heartbeat: time.Duration(c.Heartbeat), Streams: c.Streams,
	}
}

// connectorsEntry says what connectors may touch on this machine.
type connectorsEntry struct {
	Dir string `yaml:"dir"` // the files of file connectors lie in it, relative to the node file
}

// seedEntry is one node that a cluster begins with.
type seedEntry struct {
	Name        string `yaml:"name"`
	Address     string `yaml:"address"` // of its messaging port
	Fingerprint string `yaml:"fingerprint"`
}

type trustEntry struct {
	Fingerprint string `yaml:"fingerprint"`
	Role        string `yaml:"role"`
}

// contextFile says where a client finds its broker and as whom it comes.
type contextFile struct {
	Addresses []string `yaml:"addresses"`
	Nodes     []string `yaml:"nodes"`            // fingerprints
	Admin     string   `yaml:"admin,omitempty"`  // http://HOST:PORT of a node's HTTP side
	Admins    []string `yaml:"admins,omitempty"` // those of other nodes, which are asked where it does not answer
	Keys      string   `yaml:"keys"`             // directory, relative to the file
	Name      string   `yaml:"name"`             // of the key in it
}

const configFileMax = 1 << 20

// readYAML decodes a file strictly: an unknown key is shown with its line and the nearest known one.
func readYAML(path string, into any) error {
	b, err := fsync.ReadFile(fsync.OS(), path, configFileMax)
	if err != nil {
		return err
	}
	return decodeYAML(path, b, into)
}

// decodeYAML is readYAML for a file's bytes.
func decodeYAML(path string, b []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.DisallowUnknownField())
	if err := dec.Decode(into); err != nil {
		if file, unread := parser.ParseBytes(b, 0); unread == nil && len(file.Docs) > 0 && file.Docs[0].Body != nil {
			// What is wrong with a value is told better here.
			if slip := (valueCheck{tag: "yaml"}).check(file.Docs[0].Body, reflect.TypeOf(into), ""); slip != nil {
				err = slip
			}
		}
		return fmt.Errorf("%s: %w%s\nnothing was started or changed", path, err, nearest(err.Error(), into))
	}
	return nil
}

var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// nearest names the known key that an unknown one is most like.
func nearest(message string, into any) string {
	m := unknownField.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	if m[1] == "queues" || m[1] == "queue" {
		return "\nqueues are not configured in a node file"
	}
	best, distance := "", 4
	for _, k := range keys(reflect.TypeOf(into)) {
		if d := editDistance(m[1], k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("\ndid you mean %q?", best)
}

func keys(t reflect.Type) (names []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		names = append(append(names, name), keys(t.Field(i).Type)...)
	}
	return names
}

// editDistance counts the letters to change, add or leave out.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

func writeYAML(path string, v any) error {
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	return fsync.WriteFileAtomic(fsync.OS(), filepath.Dir(path), filepath.Base(path), b)
}

// beside makes a path of a file absolute from the file's own place.
func beside(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

func (n *nodeFile) trust() (*endpoint.Trust, error) {
	roles := make(map[endpoint.Fingerprint]endpoint.Role)
	for i, e := range n.Trust {
		f, err := endpoint.ParseFingerprint(e.Fingerprint)
		if err != nil {
			return nil, fmt.Errorf("trust[%d]: %w", i, err)
		}
		role := endpoint.Role(e.Role)
		if !role.Valid() {
			return nil, fmt.Errorf("trust[%d]: role %q: the roles are client, admin and node", i, e.Role)
		}
		roles[f] = role
	}
	return endpoint.NewTrust(roles), nil
}

// readContext finds the context file and reads it.
func readContext(cmd *cobra.Command) (c contextFile, path string, err error) {
	if path, err = cmd.Flags().GetString("context"); err != nil {
		return c, "", err
	}
	if path == "" {
		path = os.Getenv("WEIDA_CONTEXT")
	}
	if path == "" {
		path = filepath.Join(defaultDev, "context.yaml")
	}
	err = readYAML(path, &c)
	if errors.Is(err, fs.ErrNotExist) {
		err = &exitError{statusUnreachable, fmt.Errorf("no context file at %s, so there is no "+
			"address to go to; nothing was sent; start a node with `%s dev`, or name a file with --context", path, self())}
	}
	return c, path, err
}

func loadContext(cmd *cobra.Command) (client.Options, error) {
	c, path, err := readContext(cmd)
	if err != nil {
		return client.Options{}, err
	}
	roles := make(map[endpoint.Fingerprint]endpoint.Role)
	for _, s := range c.Nodes {
		f, err := endpoint.ParseFingerprint(s)
		if err != nil {
			return client.Options{}, fmt.Errorf("%s: nodes: %w", path, err)
		}
		roles[f] = endpoint.RoleNode
	}
	// A client never makes a key: nobody would trust it.
	key := filepath.Join(beside(path, c.Keys), c.Name+".key")
	if _, err := fsync.Mode(key); err != nil {
		return client.Options{}, fmt.Errorf("%s names a key that cannot be used: %w; nothing was sent; "+
			"correct keys and name there, or make the key with `%s key new`", path, err, self())
	}
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), beside(path, c.Keys), c.Name)
	if err != nil {
		return client.Options{}, err
	}
	return client.Options{Addrs: c.Addresses, Identity: id, Trust: endpoint.NewTrust(roles)}, nil
}

// seeds checks the seeds: a cluster of two is refused (T-37), and so is a list in which a node stands twice, or lacks
// what makes it one. Whether this node is among them is a matter of its key.
func (n *nodeFile) seeds() error {
	if len(n.Seeds) == 2 {
		return errors.New("seeds: two nodes are no cluster: when one is away the other has no majority, so two are worse " +
			"than one; name one seed, or three")
	}
	seen := make(map[string]string)
	for i, s := range n.Seeds {
		at := fmt.Sprintf("seeds[%d]", i)
		if _, err := endpoint.ParseFingerprint(s.Fingerprint); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if _, _, err := net.SplitHostPort(s.Address); err != nil {
			return fmt.Errorf("%s: address %q is not of the form HOST:PORT", at, s.Address)
		}
		if s.Name == "" {
			return fmt.Errorf("%s: it has no name", at)
		}
		for _, value := range []string{s.Name, s.Address, s.Fingerprint} {
			if other, twice := seen[value]; twice {
				return fmt.Errorf("%s: %q stands in %s already", at, value, other)
			}
			seen[value] = at
		}
	}
	return nil
}

// cluster is the nodes that the cluster begins with.
func (n *nodeFile) cluster() []control.Seed {
	var list []control.Seed
	for _, s := range n.Seeds {
		list = append(list, control.Seed{Name: s.Name, Address: s.Address, Fingerprint: s.Fingerprint})
	}
	return list
}

// scrub is how many bytes a second are read again, and how often all of them; 0 is the default.
func (n *nodeFile) scrub() (bytes int64, every time.Duration) {
	if n.Scrub == nil {
		return 0, 0
	}
	return n.Scrub.BytesPerSecond, max(time.Duration(n.Scrub.Every), 0)
}

// connectors is the directory of connectors' files, "" for none.
func (n *nodeFile) connectors(config string) string {
	if n.Connectors == nil || n.Connectors.Dir == "" {
		return ""
	}
	return beside(config, n.Connectors.Dir)
}
