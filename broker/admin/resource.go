package admin

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sort"
	"strconv"
	"sync"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
)

// bodyMax bounds the body of a request.
const bodyMax = 1 << 20

// chunk is how much of a list is put together before it is sent.
const chunk = 32 << 10

// Queue is a queue as it is answered: the committed resource, and what is known of its run time.
type Queue struct {
	control.Queue
	Status  QueueStatus `json:"status"`
	Live    *Live       `json:"live"`              // nil: this node does not serve it
	Changed *bool       `json:"changed,omitempty"` // of a mutation's answer
	DryRun  *bool       `json:"dryRun,omitempty"`  // of an answer that says what would be
}

// QueueStatus is a queue's status with what is merged in when it is read.
type QueueStatus struct {
	control.Status
	Leader string `json:"leader"` // name of the node that leads or owns it, "" if it is not known
}

// Connector is a connector as it is answered.
type Connector struct {
	control.Connector
	Live    *Live `json:"live"`              // nil: this node does not serve it
	Changed *bool `json:"changed,omitempty"` // of a mutation's answer
	DryRun  *bool `json:"dryRun,omitempty"`  // of an answer that says what would be
}

// Gone is the answer to a deletion that left nothing.
type Gone struct {
	Kind     control.Kind     `json:"kind"`
	Metadata control.Metadata `json:"metadata"`
	Changed  bool             `json:"changed"`
	DryRun   *bool            `json:"dryRun,omitempty"`
}

// List is the resources of one kind, or a part of them.
type List[T any] struct {
	Kind            string `json:"kind"`
	ResourceVersion uint64 `json:"resourceVersion"` // a watch goes on behind it
	Items           []T    `json:"items"`
	Next            string `json:"next,omitempty"` // name of the last item, where more follow
}

// kind is one kind of resource with its ways through the registry.
type kind struct {
	kind   control.Kind
	plural string // in paths
	list   string // the kind of a list of them
	count  func(*Registry) int
	meta   func(*Registry, int) *control.Metadata
	view   func(*sight, int) any
}

var queues = kind{
	kind: control.KindQueue, plural: "queues",
	list:  "QueueList",
	count: func(r *Registry) int { return len(r.Queues) },
	meta:  func(r *Registry, i int) *control.Metadata { return &r.Queues[i].Metadata },
	view:  func(s *sight, i int) any { return s.queue(&s.reg.Queues[i], answerOf{}) },
}

var connectors = kind{
	kind: control.KindConnector, plural: "connectors",
	list:  "ConnectorList",
	count: func(r *Registry) int { return len(r.Connectors) },
	meta:  func(r *Registry, i int) *control.Metadata { return &r.Connectors[i].Metadata },
	view:  func(s *sight, i int) any { return viewConnector(&s.reg.Connectors[i], answerOf{}) },
}

func viewConnector(c *control.Connector, how answerOf) *Connector {
	return &Connector{Connector: *c, Changed: how.changed, DryRun: how.dry}
}

// find returns the place of the first resource whose name is not below name, and whether it is that one.
func (k kind) find(r *Registry, name string) (int, bool) {
	n := k.count(r)
	i := sort.Search(n, func(i int) bool { return k.meta(r, i).Name >= name })
	return i, i < n && k.meta(r, i).Name == name
}

// now is a resource as it stands, nil if there is none.
func (h *handler) now(k kind, name string) any {
	reg := h.node.Registry()
	if i, ok := k.find(&reg, name); ok {
		return k.view(h.look(nil, reg), i)
	}
	return nil
}

// all answers a list, item by item, so that a long one is not held twice.
func (h *handler) all(w http.ResponseWriter, c *call, k kind) error {
	watch, err := c.flag("watch")
	switch {
	case err != nil:
		return err
	case watch:
		return h.watch(w, c, k)
	case c.given("resourceVersion"):
		return bad("resourceVersion goes with watch=1")
	}
	q, reg := c.query, h.node.Registry()
	from, to := 0, k.count(&reg)
	if after, ok := q["after"]; ok {
		var found bool
		if from, found = k.find(&reg, after); found {
			from++
		}
	}
	next := ""
	if text, ok := q["limit"]; ok {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return bad("limit is a whole number above 0, not %q", clip(text))
		}
		if limit < to-from {
			to = from + limit
			next = k.meta(&reg, to-1).Name
		}
	}
	seen := h.look(c, reg)
	w.Header().Set("Content-Type", "application/json")
	b := []byte(`{"kind":"` + k.list + `","resourceVersion":` + strconv.FormatUint(reg.Version, 10) + `,"items":[`)
	for i := from; i < to; i++ {
		if i > from {
			b = append(b, ',')
		}
		b = append(b, bytes.TrimSpace(encode(k.view(seen, i)))...)
		if len(b) > chunk {
			if _, gone := w.Write(b); gone != nil {
				return nil // nobody reads the rest
			}
			b = b[:0]
		}
	}
	b = append(b, ']')
	if next != "" {
		b = append(append(b, `,"next":`...), bytes.TrimSpace(encode(next))...)
	}
	_, err = w.Write(append(b, "}\n"...))
	missed(err)
	return nil
}

func (h *handler) one(w http.ResponseWriter, c *call, k kind) error {
	reg := h.node.Registry()
	i, ok := k.find(&reg, c.name)
	if !ok {
		return refuse(http.StatusNotFound, wire.NoSuchResource, "%s %q", k.kind, clip(c.name))
	}
	writeJSON(w, http.StatusOK, k.view(h.look(c, reg), i))
	return nil
}

// put answers an apply, whose name is in the path, or a create, whose name is in the body.
func (h *handler) put(w http.ResponseWriter, c *call, k kind, verb control.Verb) error {
	expected, err := version(c.query)
	if err != nil {
		return err
	}
	var name *string
	if verb == control.Apply {
		name = &c.name
	}
	done, err := h.begin()
	if err != nil {
		return err
	}
	defer done()
	m, err := h.decode(w, c.Request, verb, k.kind, name, expected)
	if err != nil {
		return err
	}
	return h.mutate(w, c, k, m)
}

// decode reads a request's body. Large ones are parsed one at a time, and their memory is used again: many at once must
// not take the processors from messages.
func (h *handler) decode(w http.ResponseWriter, r *http.Request, verb control.Verb, kind control.Kind, name *string,
	expected *uint64,
) (control.Mutation, error) {
	memory := bodyMemory.Get().(*bytes.Buffer)
	defer func() {
		memory.Reset()
		bodyMemory.Put(memory)
	}()
	body, err := readBody(w, r, memory)
	if err != nil {
		return control.Mutation{}, err
	}
	const large = 64 << 10 // bytes
	if len(body) > large {
		h.parsing.Lock()
		defer h.parsing.Unlock()
	}
	return decodeMutation(verb, kind, name, expected, body)
}

// bodyMemory holds *bytes.Buffer. Nothing that is made of a body refers to its bytes.
var bodyMemory = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (h *handler) remove(w http.ResponseWriter, c *call, k kind) error {
	m := control.Mutation{Verb: control.Delete, Kind: k.kind, Name: c.name}
	var err error
	if m.Expected, err = version(c.query); err != nil {
		return err
	}
	if text, ok := c.query["drainDeadline"]; ok {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return bad("drainDeadline is a duration such as 30s or 5m, not %q", clip(text))
		}
		m.Drain = (*control.Duration)(&d)
	}
	done, err := h.begin()
	if err != nil {
		return err
	}
	defer done()
	body, err := readBody(w, c.Request, new(bytes.Buffer))
	if err != nil {
		return err
	}
	if len(body) != 0 {
		return wrongField("", "a deletion takes no body")
	}
	return h.mutate(w, c, k, m)
}

// version is the expected version of a query, nil where there is none.
func version(q map[string]string) (*uint64, error) {
	text, ok := q["expectedVersion"]
	if !ok {
		return nil, nil
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, bad("expectedVersion is a whole number, not %q", clip(text))
	}
	return &v, nil
}

// begin takes a place among the mutations under way; done gives it back. It stands before the body is read, so that
// the bodies in memory are bounded too.
func (h *handler) begin() (done func(), err error) {
	select {
	case h.mutating <- struct{}{}:
		return func() { <-h.mutating }, nil
	default:
		return nil, refuse(http.StatusServiceUnavailable, wire.NotCommitted, "%d changes are under way, no more are taken",
			cap(h.mutating))
	}
}

func readBody(w http.ResponseWriter, r *http.Request, memory *bytes.Buffer) ([]byte, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" {
		return nil, refuse(http.StatusUnsupportedMediaType, wire.BadRequest, "the body is encoded as %q; send it plain",
			clip(e))
	}
	tooLarge := refuse(http.StatusRequestEntityTooLarge, wire.InvalidResource, "the body has more than %d bytes", bodyMax)
	if r.ContentLength > bodyMax {
		return nil, tooLarge
	}
	_, err := memory.ReadFrom(http.MaxBytesReader(w, r.Body, bodyMax))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case err != nil:
		return nil, wrongField("", "the body ended early: %v", err)
	}
	return memory.Bytes(), nil
}

// mutate asks for a mutation and answers what became of it.
func (h *handler) mutate(w http.ResponseWriter, c *call, k kind, m control.Mutation) error {
	dry, err := c.flag("dryRun")
	if err != nil {
		return err
	}
	res, err := h.propose(c, k, m, dry)
	if err != nil {
		return err
	}
	return h.answer(w, res, m, dry)
}

// propose has a mutation committed, or, if dry, says what it would do. An error is a *refusal; what the registry
// refuses is in the result.
func (h *handler) propose(c *call, k kind, m control.Mutation, dry bool) (control.Result, error) {
	if dry {
		return h.node.Try(m), nil
	}
	ctx, cancel := context.WithTimeout(c.Context(), h.o.MutationTime)
	defer cancel()
	log := h.o.Log.With("verb", m.Verb, "kind", m.Kind, "name", clip(m.Name), "from", c.RemoteAddr)
	res, err := h.node.Mutate(ctx, m)
	if err != nil {
		no := notAnswered(err)
		no.now = h.now(k, m.Name)
		if no.code == wire.NotCommitted {
			h.outcomes[outcomeNotCommitted].Add(1)
		} else {
			h.outcomes[outcomeIndeterminate].Add(1)
		}
		log.Warn("admin mutation has no result", "code", no.code.String(), "err", err)
		return res, no
	}
	if res.Err != nil {
		h.outcomes[outcomeRefused].Add(1)
		log.Info("admin mutation refused", "reason", res.Err.Reason)
	} else {
		h.outcomes[outcomeDone].Add(1)
		log.Info("admin mutation done", "changed", res.Changed)
	}
	return res, nil
}

// answer tells what a mutation did, or would do if it is dry.
func (h *handler) answer(w http.ResponseWriter, res control.Result, m control.Mutation, dry bool) error {
	if res.Err != nil {
		now, _ := h.result(&res, answerOf{})
		return refusedBy(res.Err, now)
	}
	how := answerOf{changed: &res.Changed}
	if dry {
		how.dry = &dry
	}
	view, meta := h.result(&res, how)
	status := http.StatusOK
	switch {
	case meta == nil: // deleted, and nothing is left to show
		view = Gone{m.Kind, control.Metadata{Name: m.Name}, res.Changed, how.dry}
	case dry:
	case meta.DeletionTimestamp != 0:
		status = http.StatusAccepted
	case res.Changed && meta.UID == meta.ResourceVersion: // made by the entry that changed it last
		status = http.StatusCreated
	}
	writeJSON(w, status, view)
	return nil
}

// answerOf is what an answer to a mutation has besides the resource; nil is not shown.
type answerOf struct{ changed, dry *bool }

// result is the resource that stands after a mutation, also after a refused one; nil if there is none.
func (h *handler) result(res *control.Result, how answerOf) (view any, meta *control.Metadata) {
	switch {
	case res.Queue != nil:
		return h.look(nil, h.node.Registry()).queue(res.Queue, how), &res.Queue.Metadata
	case res.Connector != nil:
		return viewConnector(res.Connector, how), &res.Connector.Metadata
	case res.Node != nil:
		return &Member{Node: *res.Node, Changed: how.changed, DryRun: how.dry}, &res.Node.Metadata
	}
	return nil, nil
}
