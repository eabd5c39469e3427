package client_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"strings"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

func Example() {
	addrs := flag.String("addrs", "", "HOST:PORT of some nodes, with commas: addresses in the context file")
	nodes := flag.String("nodes", "", "fingerprints of all nodes' keys, with commas: nodes in the context file")
	keys := flag.String("keys", "keys", "directory of this program's key pair")
	name := flag.String("name", "client", "name of the key pair in it")
	flag.Parse()
	ctx := context.Background()

	// The program's own key. If there is none it is made, and a node lets nobody in before it trusts it.
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), *keys, *name)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("this program's key is", id.Fingerprint())
	// All nodes of the cluster: the one that is asked names the one that leads the queue, and no other is followed.
	trust := make(map[endpoint.Fingerprint]endpoint.Role)
	for _, s := range strings.Split(*nodes, ",") {
		f, err := endpoint.ParseFingerprint(s)
		if err != nil {
			log.Fatal(err)
		}
		trust[f] = endpoint.RoleNode
	}
	c, err := client.Dial(ctx, client.Options{
		Addrs:    strings.Split(*addrs, ","),
		Identity: id,
		Trust:    endpoint.NewTrust(trust),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	p, err := c.Producer(ctx, "demo", client.ProducerOptions{Want: wire.Stored(wire.Flushed)})
	if err != nil {
		log.Print(err)
		return
	}
	r, err := p.Publish(ctx, client.Message{Bytes: []byte("hello from a program")})
	if err != nil {
		log.Print(err) // it was not taken
		return
	}
	if r.Outcome != client.OK {
		log.Printf("%s: %v", r.Outcome, r.Err) // refused, below_request or indeterminate
		return
	}
	fmt.Printf("published: %v at offset %d\n", r.Evidence, r.Offset)
	if err := p.Close(ctx); err != nil {
		log.Print(err)
		return
	}

	k, err := c.Consumer(ctx, "demo", client.ConsumerOptions{Subscription: "billing", Limit: 1})
	if err != nil {
		log.Print(err)
		return
	}
	defer k.Close()
	for d, err := range k.Deliveries(ctx) {
		if err != nil {
			log.Print(err)
			return
		}
		body, err := io.ReadAll(d.Body()) // checked against its digest
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Printf("consumed: %s (offset %d, attempt %d)\n", body, d.Offset, d.Attempt)
		if err := d.Accept(ctx); err != nil {
			log.Print(err)
			return
		}
	}
	if _, err := k.Flush(ctx); err != nil { // what was accepted does not come again
		log.Print(err)
	}
}
