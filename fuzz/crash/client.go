package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weida/broker/admin"
	"weida/broker/client"
	"weida/broker/endpoint"
	"weida/broker/wire"
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
type registry struct {
	base string
	http *http.Client
}

func newRegistry(addr string) *registry {
	return &registry{base: addr, http: &http.Client{
		// A connection of an earlier life must not make the client send a change twice.
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second,
	}}
}

// reply is an answer of the HTTP side.
type reply struct {
	status int
	code   wire.Code // of a refusal
	queue  *admin.Queue
	body   []byte
}

func (a *registry) ask(ctx context.Context, method, path string, body any) (reply, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		in = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, in)
	if err != nil {
		return reply{}, err
	}
	request.Header.Set(admin.Header, "1")
	response, err := a.http.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }() // read only
	r := reply{status: response.StatusCode}
	if r.body, err = io.ReadAll(response.Body); err != nil {
		return reply{}, err
	}
	if r.status >= 400 {
		var e struct {
			Code string       `json:"code"`
			Now  *admin.Queue `json:"now"`
		}
		if err := json.Unmarshal(r.body, &e); err != nil {
			return reply{}, fmt.Errorf("%s %s: %w: %s", method, path, err, r.body)
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(e.Code, "E"), 10, 32)
		r.code, r.queue = wire.Code(n), e.Now
		return r, err
	}
	if strings.HasPrefix(path, "/v1/queues") && path != "/v1/queues" || method == http.MethodPost {
		r.queue = new(admin.Queue)
		if err := json.Unmarshal(r.body, r.queue); err != nil {
			return reply{}, fmt.Errorf("%s %s: %w: %s", method, path, err, r.body)
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
	if err := json.Unmarshal(r.body, &s); err != nil {
		return 0, err
	}
	return s.Counters.Connections, nil
}
