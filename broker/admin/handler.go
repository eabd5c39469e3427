package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a handler. The zero value works.
type Options struct {
	// Version is what GET /version answers. Default: empty.
	Version Version
	// Node is the node's name, for people. Default: empty.
	Node string
	// Profile serves net/http/pprof under /debug/pprof. Default: no.
	Profile bool
	// MutationsMax bounds the mutations under way; one more is answered 503. Default: 64.
	MutationsMax int
	// MutationTime is how long a mutation may take to be committed; then it is answered 504. Default: 30 s.
	MutationTime time.Duration
	// Log tells of mutations and of requests that were refused at the door. Default: silent.
	Log *slog.Logger
}

// Version says which build answers.
type Version struct {
	Version     string `json:"version"`
	Commit      string `json:"commit"`
	Go          string `json:"go"`
	StoreFormat int    `json:"store_format"`
}

func (o Options) withDefaults() Options {
	if o.MutationsMax == 0 {
		o.MutationsMax = 64
	}
	if o.MutationTime == 0 {
		o.MutationTime = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// handler answers all requests. Requests count things in it, and change nothing else.
type handler struct {
	node     Node
	o        Options
	mutating chan struct{} // holds one for each mutation under way
	parsing  sync.Mutex    // held while a large body is parsed
	door     door
	metrics  metrics
	routes   []route
	watches  atomic.Int64
	stalls   stalls
	seen     fetches
	api      described
	outcomes [outcomesEnd]atomic.Uint64
}

// outcome is what became of a mutation.
type outcome int

const (
	outcomeDone outcome = iota
	outcomeRefused
	outcomeNotCommitted
	outcomeIndeterminate
	outcomesEnd
)

var outcomeNames = [outcomesEnd]string{"done", "refused", "not_committed", "indeterminate"}

// NewHandler returns the handler of a node's admin port. It reads and changes state through n alone, and may serve any
// number of requests at a time.
func NewHandler(n Node, o Options) http.Handler {
	o = o.withDefaults()
	h := &handler{node: n, o: o, mutating: make(chan struct{}, o.MutationsMax), door: door{log: o.Log, now: time.Now}}
	h.metrics = newMetrics(h)
	h.routes = h.routesOf()
	return h
}

// NewServer returns a server for the handler with the limits of the admin port. The caller listens, on the loopback
// interface, calls Serve and, at the end, Shutdown.
func NewServer(handler http.Handler) *http.Server {
	g := newGuests()
	return &http.Server{
		Handler:           g.serve(handler),
		ConnContext:       g.enter,
		ConnState:         g.changed,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      60 * time.Second, // more than a mutation may take
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range answerHeaders {
		w.Header().Set(name, value)
	}
	err := h.door.admit(r)
	if err == nil {
		err = h.route(w, r)
	}
	if err == nil {
		return
	}
	var no *refusal
	if !errors.As(err, &no) {
		panic("bug: admin: a handler ended in " + err.Error())
	}
	if no.allow != "" {
		w.Header().Set("Allow", no.allow)
	}
	if no.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(no.status)
		return
	}
	writeJSON(w, no.status, no.body())
}

// answerHeaders keep a browser from showing an answer inside another page, from guessing its type and from keeping it.
var answerHeaders = map[string]string{
	"Cache-Control":                "no-store",
	"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
}

// query reads the query's parameters, each of them known and standing at most once.
func query(r *http.Request, known ...string) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("the query cannot be read: %v", err)
	}
	m := make(map[string]string, len(values))
	for name, list := range values {
		if !contains(known, name) {
			hint := ""
			if best := nearest(name, known); best != "" {
				hint = "; did you mean " + best + "?"
			}
			return nil, bad("%q is no parameter here%s", clip(name), hint)
		}
		if len(list) != 1 {
			return nil, bad("the parameter %s stands more than once", name)
		}
		m[name] = list[0]
	}
	return m, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// encode is the JSON of a value of ours, with a line end.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("bug: admin: a value of ours has no JSON: " + err.Error())
	}
	return b.Bytes()
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	write(w, status, "application/json", encode(v))
}

// write sends an answer whole. A client that has gone misses it; nothing hangs on that.
func write(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, err := w.Write(body)
	missed(err)
}

// missed takes the error of writing an answer: the client has gone. What it asked for is done or refused all the same.
func missed(error) {}
