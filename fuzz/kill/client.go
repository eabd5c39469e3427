package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"weida/broker/admin"
	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
	"weida/fuzz/internal/process"
)

// dial connects to the node as a user's client does.
func (r *run) dial(ctx context.Context) (*client.Client, error) {
	addr, trust := r.node.where()
	return client.Dial(ctx, client.Options{Addrs: []string{addr}, Identity: r.node.identity, Trust: trust})
}

// codeOf is the broker's code in an error: ConnectionLost for what a dead node is a reason for, OK for what has none.
func codeOf(err error) wire.Code {
	var coded *wire.Error
	var protocol *client.ProtocolError
	var digest *client.DigestError
	var untrusted *endpoint.UntrustedError
	switch {
	case errors.As(err, &protocol), errors.As(err, &digest), errors.As(err, &untrusted):
		return wire.OK
	case errors.As(err, &coded):
		return coded.Code
	}
	return wire.ConnectionLost
}

// registry is the node's HTTP side.
type registry struct{ base string }

// reply is an answer of it.
type reply struct {
	process.Reply
	queue *admin.Queue
}

func (a *registry) ask(ctx context.Context, method, path string, body any) (r reply, err error) {
	if r.Reply, err = process.Ask(ctx, a.base, method, path, body); err != nil {
		return reply{}, err
	}
	if r.Status >= 400 {
		if len(r.Now) > 0 {
			err = json.Unmarshal(r.Now, &r.queue)
		}
		return r, err
	}
	if strings.HasPrefix(path, "/v1/queues") && path != "/v1/queues" || method == http.MethodPost {
		r.queue = new(admin.Queue)
		if err := json.Unmarshal(r.Body, r.queue); err != nil {
			return reply{}, fmt.Errorf("%s %s: %w: %s", method, path, err, r.Body)
		}
		if r.queue.Metadata.UID == 0 { // a deletion that left nothing
			r.queue = nil
		}
	}
	return r, nil
}

func queuePath(name string) string { return "/v1/queues/" + url.PathEscape(name) }

// resourceOf is what a run looks at of a resource.
func resourceOf(q *admin.Queue) *resource {
	if q == nil {
		return nil
	}
	m, l := q.Metadata, q.Spec.Limits
	return &resource{
		UID: m.UID, Generation: m.Generation, Version: m.ResourceVersion, Observed: q.Status.ObservedGeneration,
		Spec:     spec{string(q.Spec.Durability), l.Messages, l.Bytes, l.MessageBytes},
		Deleting: m.DeletionTimestamp != 0, DrainUntil: m.DrainUntil, Destroying: q.Status.Destroying,
		Phase: string(q.Status.Phase),
	}
}

func (s spec) json() map[string]any {
	return map[string]any{"durability": s.Durability, "limits": map[string]any{
		"messages": s.Messages, "bytes": s.Bytes, "messageBytes": s.MessageBytes,
	}}
}

// connections is how many clients the node has.
func (a *registry) connections(ctx context.Context) (int, error) {
	r, err := a.ask(ctx, http.MethodGet, "/v1/status", nil)
	if err != nil {
		return 0, err
	}
	var s admin.Status
	if err := json.Unmarshal(r.Body, &s); err != nil {
		return 0, err
	}
	return s.Counters.Connections, nil
}
