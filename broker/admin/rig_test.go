package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"weida/broker/control"
)

// rig is a node with the real registry and nothing behind it, and a handler over it.
type rig struct {
	t *testing.T
	h http.Handler

	mu       sync.Mutex
	state    *control.State
	index    uint64
	asked    []control.Mutation
	live     map[uint64]Live
	health   Health
	counters Counters
	nodes    []control.Node
	history  []Change
	from     uint64 // the oldest version that a watch may begin behind
	moved    chan struct{}
	done     chan struct{}
	local    Facts
	others   []Facts
	node     func(control.Mutation) control.Result // what becomes of a change of a node
	transfer func(group, to uint64) error
	before   func(context.Context) error // in place of proposing, if it returns an error
	after    func(context.Context) error // in place of answering, once it is applied
}

func newRig(t *testing.T, o Options) *rig {
	r := &rig{
		t: t, state: control.NewState(), index: 4, live: make(map[uint64]Live), moved: make(chan struct{}),
		done: make(chan struct{}),
	}
	r.h = NewHandler(r, o)
	return r
}

func (r *rig) Mutate(ctx context.Context, m control.Mutation) (control.Result, error) {
	if r.before != nil {
		if err := r.before(ctx); err != nil {
			return control.Result{}, err
		}
	}
	r.mu.Lock()
	r.asked = append(r.asked, m)
	if m.Kind == control.KindNode {
		r.mu.Unlock()
		return r.node(m), nil
	}
	m.At = 1700000000000
	res := r.apply(control.Command{Mutation: &m})
	r.mu.Unlock()
	if r.after != nil {
		if err := r.after(ctx); err != nil {
			return control.Result{}, err
		}
	}
	return res, nil
}

// apply takes one entry; the caller holds mu or is alone.
func (r *rig) apply(c control.Command) control.Result {
	r.index++
	was := r.state
	_, before := was.QueueOf(r.uidOf(c))
	res := r.state.Apply(r.index, c)
	if res.Err == nil && res.Changed && res.Queue != nil {
		typ := Modified
		switch {
		case c.Remove != nil:
			typ = Deleted
		case !before:
			typ = Added
		}
		r.history = append(r.history, Change{r.index, typ, control.KindQueue, res.Queue})
	}
	close(r.moved)
	r.moved = make(chan struct{})
	return res
}

// uidOf is the queue that a command is about, 0 if it is not there yet.
func (r *rig) uidOf(c control.Command) uint64 {
	switch {
	case c.Mutation != nil:
		if q, ok := r.state.Queue(c.Mutation.Name); ok {
			return q.Metadata.UID
		}
	case c.Observe != nil:
		return c.Observe.UID
	case c.Remove != nil:
		return c.Remove.UID
	}
	return 0
}

func (r *rig) Try(m control.Mutation) control.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Kind == control.KindNode {
		return r.node(m)
	}
	m.At = 1700000000000
	s, err := control.Restore(r.state.Snapshot())
	if err != nil {
		panic(err)
	}
	return s.Apply(r.index+1, control.Command{Mutation: &m})
}

func (r *rig) Changes(after uint64, most int) Changes {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Changes{UpTo: r.index, Gone: after < r.from}
	for _, c := range r.history {
		if c.Version <= after || p.Gone {
			continue
		}
		if n := len(p.List); n >= most && p.List[n-1].Version != c.Version {
			p.UpTo = p.List[n-1].Version
			break
		}
		p.List = append(p.List, c)
	}
	return p
}

func (r *rig) Moved() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moved
}

func (r *rig) Done() <-chan struct{}          { return r.done }
func (r *rig) Local() Facts                   { return r.local }
func (r *rig) Others(context.Context) []Facts { return r.others }

func (r *rig) Transfer(_ context.Context, group, to uint64, _ bool) error {
	return r.transfer(group, to)
}

func (r *rig) Registry() Registry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Registry{
		Version: r.state.Version(), Nodes: r.nodes, Queues: r.state.Queues(), Connectors: r.state.Connectors(),
	}
}

func (r *rig) Live(uid uint64) (Live, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.live[uid]
	return l, ok
}

func (r *rig) Health() Health     { return r.health }
func (r *rig) Counters() Counters { return r.counters }

// version is the index of the last entry: a refused mutation has one too (T-22).
func (r *rig) version() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// sent makes a request as a well-behaved client sends it. Headers come in pairs; an empty value takes one away.
func sent(method, target string, body io.Reader, headers ...string) *http.Request {
	req := httptest.NewRequest(method, target, body)
	req.Host = "localhost:7444"
	if method != http.MethodGet && method != http.MethodHead {
		req.Header.Set(Header, "1")
	}
	for i := 0; i < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; {
		case name == "Host":
			req.Host = value
		case value == "":
			req.Header.Del(name)
		default:
			req.Header.Set(name, value)
		}
	}
	return req
}

func (r *rig) do(method, target, body string, headers ...string) answer {
	r.t.Helper()
	return r.serve(sent(method, target, strings.NewReader(body), headers...))
}

func (r *rig) serve(req *http.Request) answer {
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, req)
	return answer{w.Code, w.Header(), w.Body.Bytes()}
}

// want does a request and checks its status.
func (r *rig) want(status int, method, target, body string, headers ...string) answer {
	r.t.Helper()
	a := r.do(method, target, body, headers...)
	if a.status != status {
		r.t.Fatalf("%s %s %s: status %d, want %d: %s", method, target, clip(body), a.status, status, a.body)
	}
	return a
}

// refused does a request and checks how it is refused.
func (r *rig) refused(status int, code, method, target, body string, headers ...string) ErrorBody {
	r.t.Helper()
	a := r.want(status, method, target, body, headers...)
	e := decoded[ErrorBody](r.t, a)
	if e.Code != code {
		r.t.Errorf("%s %s %s: %s, want %s", method, target, clip(body), a.body, code)
	}
	return e
}

// decoded reads an answer, which has no field that T does not know.
func decoded[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(a.body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	if kind := a.header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("JSON is sent as %q", kind)
	}
	return v
}
