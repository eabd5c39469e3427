package broker_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"weida/broker"
	"weida/broker/control"
	"weida/broker/endpoint"
)

// A node that waits for its first majority can be stopped.
func TestClosedBeforeTheClusterBegins(t *testing.T) {
	r := &clusterRig{t: t, dir: t.TempDir()}
	var seeds []control.Seed
	for i := range 3 {
		seeds = append(seeds, control.Seed{
			Name: fmt.Sprint("n", i+1), Fingerprint: r.identity(fmt.Sprint("n", i+1)).Fingerprint().String(),
			Address: freeAddr(t),
		})
	}
	n, err := broker.Open(broker.Config{
		Dir: filepath.Join(r.dir, "data"), Listen: seeds[0].Address, Identity: r.identity("n1"), Name: "n1", Seeds: seeds,
		Trust: endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(clusterPatience):
		t.Fatal("it does not stop")
	}
}
