package admin

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"weida/broker/control"
	"weida/broker/wire"
)

// route is one method on one path. The handler goes by this table, and so does the OpenAPI file.
type route struct {
	method string // GET answers HEAD as well
	// path has {name} where one segment stands for a name, percent-escaped.
	path    string
	does    string
	params  []param
	body    any // zero value of what the request carries; nil is nothing
	answers []answered
	serve   func(http.ResponseWriter, *call) error
}

// param is one parameter of a query.
type param struct{ name, does string }

// answered is what a request that is not refused ends with.
type answered struct {
	status int
	body   any    // zero value of what comes as JSON; nil if it is something else
	kind   string // of what is not JSON
}

// call is a request on its way to what answers it, with path and query read.
type call struct {
	*http.Request
	name  string            // of the path; "" where it has none
	query map[string]string // known parameters only, each once
}

func (c *call) given(name string) bool {
	_, ok := c.query[name]
	return ok
}

// flag reads a parameter that is 0 or 1; absent is 0.
func (c *call) flag(name string) (bool, error) {
	switch v, ok := c.query[name]; {
	case !ok || v == "0":
		return false, nil
	case v == "1":
		return true, nil
	default:
		return false, bad("%s is 0 or 1, not %q", name, clip(v))
	}
}

const (
	textKind   = "text/plain; charset=utf-8"
	eventKind  = "text/event-stream"
	yamlKind   = "application/yaml"
	metricKind = "text/plain; version=0.0.4"
)

func ok(v any) []answered { return []answered{{http.StatusOK, v, ""}} }

// routesOf is the table of a handler.
func (h *handler) routesOf() []route {
	list := append(h.resourceRoutes(queues, Queue{}, List[Queue]{}, QueueRequest{}),
		h.resourceRoutes(connectors, Connector{}, List[Connector]{}, ConnectorRequest{})...)
	list = append(list, h.nodeRoutes()...)
	list = append(list, h.clusterRoutes()...)
	return append(list, h.plainRoutes()...)
}

var (
	paramExpected = param{"expectedVersion", "refuse unless the resource stands at this version; 0 is \"there is none\""}
	paramDryRun   = param{"dryRun", "1 says what would be done, and does nothing"}
)

func (h *handler) resourceRoutes(k kind, one, list, body any) []route {
	base := "/v1/" + k.plural
	paramsList := []param{
		{"limit", "at most so many"},
		{"after", "only names behind this one"},
		{"watch", "1 answers with every change behind resourceVersion, as server-sent events"},
		{"resourceVersion", "where a watch begins"},
	}
	gone := answered{http.StatusOK, Gone{}, ""} // where nothing is left
	return []route{
		{
			"GET", base, "all of them, sorted by name; or a watch", paramsList, nil,
			[]answered{{http.StatusOK, list, ""}, {http.StatusOK, Event{}, eventKind}},
			func(w http.ResponseWriter, c *call) error { return h.all(w, c, k) },
		},
		{
			"POST", base, "create: refused where the name is taken",
			[]param{paramExpected, paramDryRun},
			body,
			[]answered{{http.StatusCreated, one, ""}, {http.StatusOK, one, ""}},
			func(w http.ResponseWriter, c *call) error { return h.put(w, c, k, control.Create) },
		},
		{
			"GET", base + "/{name}", "one of them", nil, nil, ok(one),
			func(w http.ResponseWriter, c *call) error { return h.one(w, c, k) },
		},
		{
			"PUT", base + "/{name}", "apply: makes it or changes its spec; the same again changes nothing",
			[]param{paramExpected, paramDryRun},
			body,
			[]answered{{http.StatusOK, one, ""}, {http.StatusCreated, one, ""}},
			func(w http.ResponseWriter, c *call) error { return h.put(w, c, k, control.Apply) },
		},
		{
			"DELETE", base + "/{name}", "asks for the deletion",
			[]param{paramExpected, {"drainDeadline", "how long consumers may go on, instead of the spec's"}, paramDryRun},
			nil,
			[]answered{{http.StatusAccepted, one, ""}, gone},
			func(w http.ResponseWriter, c *call) error { return h.remove(w, c, k) },
		},
	}
}

func (h *handler) plainRoutes() []route {
	health := []answered{
		{http.StatusOK, HealthBody{}, textKind}, {http.StatusServiceUnavailable, HealthBody{}, textKind},
	}
	verbose := []param{{"verbose", "says effect and remedy as well"}}
	list := []route{
		{"GET", "/v1/status", "the node in one look", nil, nil, ok(Status{}), h.status},
		{"GET", "/v1/openapi.yaml", "this description", nil, nil, []answered{{http.StatusOK, nil, yamlKind}}, h.openAPI},
		{"GET", "/livez", "whether the node should be restarted", verbose, nil, health, h.livez},
		{"GET", "/readyz", "whether the node takes traffic", verbose, nil, health, h.readyz},
		{
			"GET", "/metrics", "Prometheus text",
			[]param{{"queues", "1 adds each queue"}},
			nil,
			[]answered{{http.StatusOK, nil, metricKind}},
			h.metrics.sums,
		},
		{
			"GET", "/metrics/queues", "Prometheus text of each queue", nil, nil,
			[]answered{{http.StatusOK, nil, metricKind}},
			h.metrics.queues,
		},
		{"GET", "/version", "the build that answers", nil, nil, ok(Version{}), h.version},
	}
	for _, path := range []string{"/", "/page.css", "/page.js"} {
		list = append(list, route{
			"GET", path, "the page for people", nil, nil, []answered{{http.StatusOK, nil, pages[path].kind}}, page,
		})
	}
	return list
}

// fits says whether a path, as it was sent, is one of the route's, and gives the segment that is the name.
func (rt *route) fits(path string) (segment string, ok bool) {
	before, after, named := strings.Cut(rt.path, "{name}")
	if !named {
		return "", path == rt.path
	}
	rest, ok := strings.CutPrefix(path, before)
	if !ok {
		return "", false
	}
	segment, ok = strings.CutSuffix(rest, after)
	return segment, ok && (after == "" || !strings.Contains(segment, "/"))
}

// route finds what answers. The path is looked at as it was sent: a name may hold an escaped slash, and a path is
// never cleaned, because "." and ".." are names too.
func (h *handler) route(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.EscapedPath()
	var allow []string
	var found *route
	segment := ""
	for i := range h.routes {
		rt := &h.routes[i]
		s, fits := rt.fits(path)
		if !fits || found != nil && len(found.path) > len(rt.path) {
			continue
		}
		if found == nil || found.path != rt.path {
			allow = nil
		}
		found, segment = rt, s
		allow = append(allow, rt.method)
		if rt.method == "GET" {
			allow = append(allow, "HEAD")
		}
	}
	if found == nil && h.o.Profile && strings.HasPrefix(path, profilePath) {
		if !reads(r) {
			return wrongMethod(r, "GET, HEAD")
		}
		return profile(w, r)
	}
	if found == nil {
		return refuse(http.StatusNotFound, wire.BadRequest, "there is no %s here", clip(path))
	}
	for i := range h.routes {
		rt := &h.routes[i]
		if rt.path == found.path && (rt.method == r.Method || rt.method == "GET" && reads(r)) {
			return rt.answer(w, r, segment)
		}
	}
	return wrongMethod(r, strings.Join(allow, ", "))
}

// answer reads what is left of the request and answers it.
func (rt *route) answer(w http.ResponseWriter, r *http.Request, segment string) (err error) {
	c := &call{Request: r}
	if strings.Contains(rt.path, "{name}") {
		if c.name, err = unescape(segment); err != nil {
			return err
		}
	}
	known := make([]string, len(rt.params))
	for i, p := range rt.params {
		known[i] = p.name
	}
	if c.query, err = query(r, known...); err != nil {
		return err
	}
	return rt.serve(w, c)
}

func unescape(segment string) (string, error) {
	if strings.Contains(segment, "/") {
		return "", bad("a name is one segment of the path: write / in it as %%2F")
	}
	name, err := url.PathUnescape(segment)
	switch {
	case err != nil:
		return "", bad("the name in the path cannot be read: %v", err)
	case name == "":
		return "", bad("the name in the path is empty")
	case !utf8.ValidString(name):
		return "", bad("the name in the path is not UTF-8")
	}
	return name, nil
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

func wrongMethod(r *http.Request, allow string) error {
	no := refuse(http.StatusMethodNotAllowed, wire.BadRequest, "%s is not for %s, only %s", clip(r.Method),
		clip(r.URL.EscapedPath()), allow)
	no.allow = allow
	return no
}
