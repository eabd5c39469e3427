package client_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"

	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fsync"
)

func Example() {
	addr := flag.String("addr", "", "HOST:PORT of the node: `addresses` in the context file")
	node := flag.String("node", "", "fingerprint of the node's key: `nodes` in the context file")
	keys := flag.String("keys", "keys", "directory of this program's key pair")
	name := flag.String("name", "client", "name of the key pair in it")
	flag.Parse()
	ctx := context.Background()

	// The program's own key. If there is none it is made, and the node lets nobody in before it trusts it.
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), *keys, *name)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("this program's key is", id.Fingerprint())
	fingerprint, err := endpoint.ParseFingerprint(*node)
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.Dial(ctx, client.Options{
		Addrs:    []string{*addr},
		Identity: id,
		Trust:    endpoint.NewTrust(map[endpoint.Fingerprint]endpoint.Role{fingerprint: endpoint.RoleNode}),
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
