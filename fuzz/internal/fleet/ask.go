package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"weida/broker/admin"
	"weida/fuzz/internal/process"
)

// QueuePath is where a queue's resource is.
func QueuePath(name string) string { return "/v1/queues/" + url.PathEscape(name) }

// Ask sends a request to the node's HTTP side. A refusal is a Reply.
func (x *Node) Ask(ctx context.Context, method, path string, body any) (process.Reply, error) {
	if x.http != nil {
		return process.AskBy(ctx, x.http, x.Admin, method, path, body)
	}
	return process.Ask(ctx, x.Admin, method, path, body)
}

// read asks for something that is read only.
func (x *Node) read(ctx context.Context, path string, into any) error {
	a, err := x.Ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if a.Status >= http.StatusBadRequest {
		return fmt.Errorf("%v: %s", a.Code, a.Message)
	}
	return json.Unmarshal(a.Body, into)
}

// Queue is what the node knows of a queue. An error is also that there is none.
func (x *Node) Queue(ctx context.Context, name string) (q admin.Queue, err error) {
	return q, x.read(ctx, QueuePath(name), &q)
}

// Status is what all nodes that run say of all groups, asked by way of this one.
func (x *Node) Status(ctx context.Context) (s admin.ClusterStatus, err error) {
	return s, x.read(ctx, "/v1/cluster", &s)
}
