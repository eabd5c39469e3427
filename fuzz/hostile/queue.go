package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"weida/broker/admin"
	"weida/broker/client"
	"weida/broker/wire"
)

// queue asks for one queue by the node's HTTP side. nil, and no error, is none.
func (n *node) queue(ctx context.Context, method, name, body string) (*admin.Queue, error) {
	path := "/v1/queues/" + name
	if method == http.MethodDelete {
		path += "?drainDeadline=0s" // nobody waits for what is in it
	}
	resp, err := n.ask(ctx, method, path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // read only
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return nil, fmt.Errorf("%s %s: %s: %s", method, name, resp.Status, b)
	}
	q := new(admin.Queue)
	return q, json.Unmarshal(b, q)
}

// make applies a queue and waits until it takes messages.
func (n *node) make(ctx context.Context, name string) (*admin.Queue, error) {
	if _, err := n.queue(ctx, http.MethodPut, name, `{"spec":{"limits":{"messageBytes":1048576}}}`); err != nil {
		return nil, err
	}
	q, err := n.until(ctx, name, func(q *admin.Queue) bool {
		return q != nil && q.Live != nil && q.Status.ObservedGeneration == q.Metadata.Generation
	})
	if err != nil {
		return nil, err
	}
	c, err := n.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for { // the registry says so a moment before streams may be opened
		p, err := c.Producer(ctx, name, client.ProducerOptions{Want: wire.Stored(wire.Written)})
		var refused *wire.Error
		if errors.As(err, &refused) && refused.Code == wire.NotReady {
			continue
		}
		if err != nil {
			return nil, err
		}
		return q, p.Close(ctx)
	}
}

// dial connects as the good client does.
func (n *node) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, client.Options{Addrs: []string{n.listen}, Identity: n.good, Trust: n.trust})
}

// beside makes a queue on the shard of another one, which feels what is done to it.
func (n *node) beside(ctx context.Context, other *admin.Queue) (*admin.Queue, error) {
	for k := range 8 {
		q, err := n.make(ctx, fmt.Sprintf("bait-%d", k))
		if err != nil {
			return nil, err
		}
		if q.Metadata.UID%2 == other.Metadata.UID%2 {
			return q, nil
		}
		if err := n.remove(ctx, q.Metadata.Name); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no queue came to the shard of the good client's queue")
}

func (n *node) remove(ctx context.Context, name string) error {
	if _, err := n.queue(ctx, http.MethodDelete, name, ""); err != nil {
		return err
	}
	_, err := n.until(ctx, name, func(q *admin.Queue) bool { return q == nil })
	return err
}

func (n *node) until(ctx context.Context, name string, done func(*admin.Queue) bool) (*admin.Queue, error) {
	for {
		q, err := n.queue(ctx, http.MethodGet, name, "")
		if err != nil || done(q) {
			return q, err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("queue %s: %w", name, ctx.Err())
		}
	}
}

// fill publishes messages of one size.
func (n *node) fill(ctx context.Context, queue string, count, size int) error {
	c, err := n.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := c.Producer(ctx, queue, client.ProducerOptions{Want: wire.Stored(wire.Written)})
	if err != nil {
		return err
	}
	refused := make(chan error, 1)
	body := make([]byte, size)
	for range count {
		err := p.Send(ctx, client.Message{Bytes: body}, func(r client.Result) {
			if r.Err != nil {
				select {
				case refused <- r.Err:
				default:
				}
			}
		})
		if err != nil {
			return err
		}
	}
	err = p.Close(ctx)
	select {
	case r := <-refused:
		return errors.Join(err, r)
	default:
		return err
	}
}
