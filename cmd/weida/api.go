package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/control"
	"weida/broker/wire"
)

// api speaks to the admin addresses of nodes: to one, and to the next where nothing listens there.
type api struct {
	bases []string // http://HOST:PORT; the first one is spoken to
	http  *http.Client
}

// base is the address that is spoken to.
func (a *api) base() string { return a.bases[0] }

const (
	// apiPatience bounds one request; a node answers a change within 30 s.
	apiPatience = 45 * time.Second
	// apiAnswerMax bounds one answer, in bytes; a list is taken in pages.
	apiAnswerMax = 64 << 20
	apiPage      = 1000
)

// asking is the method of a request that changes nothing though it has a body.
const asking = "ASK"

// kindInfo is how a kind is written on the command line, in paths and in manifests.
type kindInfo struct {
	kind         control.Kind
	word, plural string
}

var kinds = []kindInfo{
	{control.KindQueue, "queue", "queues"},
	{control.KindConnector, "connector", "connectors"},
}

// nodeKind is that of the members, which are listed as resources are and changed by verbs of their own.
var nodeKind = kindInfo{control.KindNode, "node", "nodes"}

// kindOf is how a kind is written; a kind that this version does not know is written as it is.
func kindOf(kind control.Kind) kindInfo {
	for _, k := range append([]kindInfo{nodeKind}, kinds...) {
		if k.kind == kind {
			return k
		}
	}
	return kindInfo{kind, string(kind), string(kind)}
}

// item is a resource as a node answers with it.
type item struct {
	Kind     control.Kind     `json:"kind"`
	Metadata control.Metadata `json:"metadata"`
	Spec     json.RawMessage  `json:"spec"`
	Status   control.Status   `json:"status"`
	Live     *liveItem        `json:"-"` // of a queue
	Changed  bool             `json:"changed"`

	Leader string // of a queue: the name of the node, "" if it is not known

	raw  json.RawMessage // the whole, as it came
	made bool            // by the request that it answers
}

// liveItem is what the node that answered knows of a running queue.
type liveItem struct {
	Leader        string `json:"leader"`
	Term          uint64 `json:"term"`
	In            uint64 `json:"in"`
	Ready         uint64 `json:"ready"`
	Unsettled     uint64 `json:"unsettled"`
	Accepted      uint64 `json:"accepted"`
	Rejected      uint64 `json:"rejected"`
	Purged        uint64 `json:"purged"`
	Released      uint64 `json:"released"`
	Bytes         uint64 `json:"bytes"`
	DiskBytes     uint64 `json:"diskBytes"`
	Subscriptions int    `json:"subscriptions"`
	Consumers     int    `json:"consumers"`
	Producers     int    `json:"producers"`
	Trouble       string `json:"trouble"`
}

// apiError is a request that the node refused, in the node's words.
type apiError struct {
	Code    string `json:"code"`
	Name    string `json:"name"`
	Message string `json:"message"`
	Detail  string `json:"detail"`
	Field   string `json:"field"`
	Now     *item  `json:"now"`
}

func (e *apiError) Error() string {
	s := e.Message
	if e.Field != "" && !strings.Contains(s, e.Field) {
		s = e.Field + ": " + s
	}
	if e.Now != nil {
		s += "\nnow: " + summary(e.Now)
	}
	return s
}

// Unwrap is the code, for the exit status.
func (e *apiError) Unwrap() error { return &wire.Error{Code: e.code(), Detail: e.Detail} }

func (e *apiError) code() wire.Code {
	n, err := strconv.ParseUint(strings.TrimPrefix(e.Code, "E"), 10, 32)
	if err != nil {
		return wire.NotCommitted
	}
	return wire.Code(n)
}

// contextPath is the context file that this command goes by.
func contextPath(cmd *cobra.Command) (string, error) {
	path, err := cmd.Flags().GetString("context")
	if err != nil {
		return "", err
	}
	if path == "" {
		path = os.Getenv("WEIDA_CONTEXT")
	}
	if path == "" {
		path = filepath.Join(defaultDev, "context.yaml")
	}
	return path, nil
}

// adminOf finds the node's admin address.
func adminOf(cmd *cobra.Command) (*api, error) {
	path, err := contextPath(cmd)
	if err != nil {
		return nil, err
	}
	var c contextFile
	err = readYAML(path, &c)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &exitError{statusUnreachable, fmt.Errorf("no context file at %s, so there is no address to go to; "+
			"nothing was sent; start a node with `%s dev`, or name a file with --context", path, self())}
	}
	if err != nil {
		return nil, err
	}
	bases := append([]string{c.Admin}, c.Admins...)
	if c.Admin == "" {
		bases = c.Admins
	}
	if len(bases) == 0 {
		return nil, &exitError{statusUnreachable, fmt.Errorf("%s has no `admin: http://HOST:PORT`, so there is no address "+
			"to go to with resources; nothing was sent; add the line, or start the node once more with `%s dev`",
			path, self())}
	}
	for i, base := range bases {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("%s: admin: %q is not an address of the form http://HOST:PORT; nothing was sent",
				path, base)
		}
		bases[i] = "http://" + u.Host
	}
	return newAPI(slices.Compact(bases)...), nil
}

func newAPI(bases ...string) *api {
	return &api{bases: bases, http: &http.Client{
		Timeout:   apiPatience,
		Transport: &http.Transport{}, // no proxy: the address is on this machine
		// What answers with another address is no node.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// path is that of one resource, or of all of a kind if name is empty.
func (k kindInfo) path(name string) string {
	if name == "" {
		return "/v1/" + k.plural
	}
	return "/v1/" + k.plural + "/" + url.PathEscape(name)
}

// get reads one resource.
func (a *api) get(ctx context.Context, k kindInfo, name string) (*item, error) {
	return a.item(ctx, http.MethodGet, k.path(name), nil, nil)
}

// list reads all resources of a kind, sorted by name, in pages.
func (a *api) list(ctx context.Context, k kindInfo) (items []*item, err error) {
	items, _, err = a.listAt(ctx, k)
	return items, err
}

// listAt is list, and the version behind which a watch tells of everything that may be missing in it.
func (a *api) listAt(ctx context.Context, k kindInfo) (items []*item, at uint64, err error) {
	q := url.Values{"limit": {strconv.Itoa(apiPage)}}
	for first := true; ; first = false {
		b, _, err := a.do(ctx, http.MethodGet, k.path(""), q, nil)
		if err != nil {
			return nil, 0, err
		}
		var page struct {
			Version uint64            `json:"resourceVersion"`
			Items   []json.RawMessage `json:"items"`
			Next    string            `json:"next"`
		}
		if err := json.Unmarshal(b, &page); err != nil {
			return nil, 0, a.strange(err)
		}
		if first {
			at = page.Version
		}
		for _, raw := range page.Items {
			it, err := newItem(raw)
			if err != nil {
				return nil, 0, a.strange(err)
			}
			items = append(items, it)
		}
		if page.Next == "" || len(page.Items) == 0 {
			return items, at, nil
		}
		q.Set("after", page.Next)
	}
}

// put applies a resource, or creates it; expected is nil for "whatever stands".
func (a *api) put(ctx context.Context, m *manifest, verb control.Verb, expected *uint64, dry bool) (*item, error) {
	body, err := m.body()
	if err != nil {
		return nil, err
	}
	q := dryQuery(dry)
	if expected != nil {
		q.Set("expectedVersion", strconv.FormatUint(*expected, 10))
	}
	if verb == control.Create {
		return a.item(ctx, http.MethodPost, m.kind.path(""), q, body)
	}
	return a.item(ctx, http.MethodPut, m.kind.path(m.name), q, body)
}

// remove asks for a deletion; drain is nil for the spec's own deadline.
func (a *api) remove(ctx context.Context, k kindInfo, name string, drain *time.Duration,
	expected *uint64, dry bool,
) (*item, error) {
	q := dryQuery(dry)
	if drain != nil {
		q.Set("drainDeadline", drain.String())
	}
	if expected != nil {
		q.Set("expectedVersion", strconv.FormatUint(*expected, 10))
	}
	return a.item(ctx, http.MethodDelete, k.path(name), q, nil)
}

// dryQuery asks for what would be, if dry.
func dryQuery(dry bool) url.Values {
	if dry {
		return url.Values{"dryRun": {"1"}}
	}
	return url.Values{}
}

func (a *api) item(ctx context.Context, method, path string, q url.Values, body []byte) (*item, error) {
	b, status, err := a.do(ctx, method, path, q, body)
	if err != nil {
		return nil, err
	}
	it, err := newItem(b)
	if err != nil {
		return nil, a.unsure(method, a.strange(err))
	}
	it.made = status == http.StatusCreated
	return it, nil
}

// UnmarshalJSON keeps the whole beside the fields.
func (it *item) UnmarshalJSON(b []byte) error {
	type plain item
	if err := json.Unmarshal(b, (*plain)(it)); err != nil {
		return err
	}
	if it.Kind == control.KindQueue {
		var run struct {
			Live   *liveItem `json:"live"`
			Status struct {
				Leader string `json:"leader"`
			} `json:"status"`
		}
		if err := json.Unmarshal(b, &run); err != nil {
			return err
		}
		it.Live, it.Leader = run.Live, run.Status.Leader
		if it.Leader == "" && it.Live != nil {
			it.Leader = it.Live.Leader // of a node of an earlier version
		}
	}
	it.raw = bytes.Clone(b)
	return nil
}

func newItem(b []byte) (*item, error) {
	it := &item{}
	if err := json.Unmarshal(b, it); err != nil {
		return nil, err
	}
	if it.Kind == "" || it.Metadata.Name == "" {
		return nil, errors.New("it is not a resource")
	}
	return it, nil
}
