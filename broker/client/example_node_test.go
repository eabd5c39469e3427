package client_test

import (
	"context"
	"log"
	"os"
	"path/filepath"

	"weida/broker"
	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/endpoint"
	"weida/fsync"
)

// startNode starts a node on a free port and a directory of its own, makes the queue "orders" on it and
// connects to it. A program of yours has the identity and the trust from files, and only dials.
func startNode(ctx context.Context) (c *client.Client, stop func()) {
	dir, err := os.MkdirTemp("", "weida-example-")
	if err != nil {
		log.Fatal(err)
	}
	key, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "me")
	if err != nil {
		log.Fatal(err)
	}
	own, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "node")
	if err != nil {
		log.Fatal(err)
	}
	node, err := broker.Open(broker.Config{
		Dir: filepath.Join(dir, "n1"), Listen: "127.0.0.1:0", Identity: own,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{key.Fingerprint(): endpoint.RoleAdmin}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := node.MakeQueue(ctx, "orders", control.QueueSpec{}); err != nil {
		log.Fatal(err)
	}
	c, err = client.Dial(ctx, client.Options{
		Addrs:    []string{node.Addr().String()},
		Identity: key,
		Trust:    endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{own.Fingerprint(): endpoint.RoleNode}),
	})
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		c.Close()
		if err := node.Close(); err != nil {
			log.Print(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			log.Print(err)
		}
	}
}
