package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"weida/broker/client"
	"weida/broker/wire"
)

// A message is published with the evidence that it asks for, or it is not: nothing is weakened.
func ExampleProducer_Publish() {
	ctx := context.Background()
	c, stop := startNode(ctx)
	defer stop()

	p, err := c.Producer(ctx, "orders", client.ProducerOptions{Want: wire.Stored(wire.Flushed)})
	if err != nil {
		log.Fatal(err)
	}
	r, err := p.Publish(ctx, client.Message{Bytes: []byte("hello")})
	if err != nil {
		log.Fatal(err) // it was not taken
	}
	switch r.Outcome {
	case client.OK:
		fmt.Println("survives a power cut:", r.Evidence, "at offset", r.Offset)
	case client.Refused:
		fmt.Println("not stored:", r.Err)
	case client.BelowRequest:
		fmt.Println("stored, with less than asked:", r.Evidence)
	case client.Indeterminate:
		fmt.Println("may or may not be stored:", r.Err)
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}

	// One replica cannot show that two have the message.
	_, err = c.Producer(ctx, "orders", client.ProducerOptions{Want: wire.Replicated(2, wire.Flushed)})
	var refused *wire.Error
	if errors.As(err, &refused) {
		fmt.Println("refused:", refused.Code)
	}
	// Output:
	// survives a power cut: stored:flushed at offset 0
	// refused: not_offered
}

// Send does not wait for the answer, so many messages share a flush.
func ExampleProducer_Send() {
	ctx := context.Background()
	c, stop := startNode(ctx)
	defer stop()

	p, err := c.Producer(ctx, "orders", client.ProducerOptions{Want: wire.Stored(wire.Flushed)})
	if err != nil {
		log.Fatal(err)
	}
	confirmed := 0 // done is called by one goroutine
	for i := range 1000 {
		err := p.Send(ctx, client.Message{Bytes: fmt.Append(nil, "order ", i)}, func(r client.Result) {
			if r.Outcome == client.OK {
				confirmed++
			}
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil { // waits for all of them
		log.Fatal(err)
	}
	fmt.Println(confirmed, "confirmed")
	// Output: 1000 confirmed
}

// With an id a producer may send a message again without fear of a second copy: the library does so when
// a connection is lost, and a program that starts again does so with what it is in doubt about.
func ExampleProducer_Publish_retry() {
	ctx := context.Background()
	c, stop := startNode(ctx)
	defer stop()
	want := wire.Stored(wire.Flushed)

	p, err := c.Producer(ctx, "orders", client.ProducerOptions{Want: want, ID: "till-7"})
	if err != nil {
		log.Fatal(err)
	}
	first, err := p.Publish(ctx, client.Message{Bytes: []byte("pay 10")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("sequence", first.Seq, "is offset", first.Offset)
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}

	// The program starts again and does not know whether sequence 1 was answered.
	p, err = c.Producer(ctx, "orders", client.ProducerOptions{Want: want, ID: "till-7"})
	if err != nil {
		log.Fatal(err)
	}
	again, err := p.Publish(ctx, client.Message{Seq: 1, Bytes: []byte("pay 10")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("sequence", again.Seq, "is still offset", again.Offset)
	next, err := p.Publish(ctx, client.Message{Bytes: []byte("pay 20")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("sequence", next.Seq, "is offset", next.Offset)
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// sequence 1 is offset 0
	// sequence 1 is still offset 0
	// sequence 2 is offset 1
}

// A durable subscription goes on where it stopped: what was not settled comes again.
func ExampleConsumer_Deliveries() {
	ctx := context.Background()
	c, stop := startNode(ctx)
	defer stop()
	publish(ctx, c, "one", "two", "three")

	for range 2 {
		k, err := c.Consumer(ctx, "orders", client.ConsumerOptions{Subscription: "billing", Limit: 2})
		if err != nil {
			log.Fatal(err)
		}
		for d, err := range k.Deliveries(ctx) {
			if err != nil {
				log.Fatal(err)
			}
			body, err := io.ReadAll(d.Body()) // checked against its digest
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("offset %d attempt %d: %s\n", d.Offset, d.Attempt, body)
			if string(body) == "two" && d.Attempt == 1 {
				continue // not settled
			}
			if err := d.Accept(ctx); err != nil {
				log.Fatal(err)
			}
		}
		if _, err := k.Flush(ctx); err != nil { // what was accepted does not return
			log.Fatal(err)
		}
		k.Close()
	}
	// Output:
	// offset 0 attempt 1: one
	// offset 1 attempt 1: two
	// offset 1 attempt 2: two
	// offset 2 attempt 1: three
}

// Peek looks at messages and leaves them where they are.
func ExampleClient_Peek() {
	ctx := context.Background()
	c, stop := startNode(ctx)
	defer stop()
	publish(ctx, c, "one", "two", "three")

	for d, err := range c.Peek(ctx, "orders", client.PeekOptions{From: 1}) {
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(d.Body())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("offset %d: %s\n", d.Offset, body)
	}
	// Output:
	// offset 1: two
	// offset 2: three
}

func publish(ctx context.Context, c *client.Client, bodies ...string) {
	p, err := c.Producer(ctx, "orders", client.ProducerOptions{Want: wire.Stored(wire.Written)})
	if err != nil {
		log.Fatal(err)
	}
	for _, b := range bodies {
		if r, err := p.Publish(ctx, client.Message{Bytes: []byte(b)}); err != nil || r.Outcome != client.OK {
			log.Fatal(r.Err, err)
		}
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
