package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/fsync"
)

// contextFile is what `weida dev` tells its clients: where it is, which keys it has, and which key they show.
type contextFile struct {
	Addresses []string `yaml:"addresses"`
	Nodes     []string `yaml:"nodes"`
	Keys      string   `yaml:"keys"`
	Name      string   `yaml:"name"`
}

// dial connects as a user's client does, by the file that the node has just written.
func (n *node) dial(ctx context.Context) (*client.Client, error) {
	text, err := os.ReadFile(n.context())
	if err != nil {
		return nil, err
	}
	var f contextFile
	if err := yaml.UnmarshalWithOptions(text, &f, yaml.DisallowUnknownField()); err != nil {
		return nil, fmt.Errorf("%s: %w", n.context(), err)
	}
	roles := make(map[endpoint.Fingerprint]endpoint.Role)
	for _, s := range f.Nodes {
		key, err := endpoint.ParseFingerprint(s)
		if err != nil {
			return nil, err
		}
		roles[key] = endpoint.RoleNode
	}
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), filepath.Join(n.dir, f.Keys), f.Name)
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, client.Options{Addrs: f.Addresses, Identity: id, Trust: endpoint.NewTrust(roles)})
}
