package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"weida/broker/control"
	"weida/broker/wire"
)

// fakeAdmin answers as docs/reference/admin.md says, from a map, and badly where a name asks for it:
//
//	stuck     the answer does not come in time (504)
//	cut       the change is made and the connection ends without an answer
//	full      not committed (503)
//	proxy     something else answers, 502
type fakeAdmin struct {
	mu      sync.Mutex
	version uint64                // guarded by mu
	queues  map[string]*fakeQueue // guarded by mu
	asked   []string              // guarded by mu; method, path and query of each request
}

type fakeQueue struct {
	Kind     control.Kind      `json:"kind"`
	Metadata control.Metadata  `json:"metadata"`
	Spec     control.QueueSpec `json:"spec"`
	Status   control.Status    `json:"status"`
	Live     *liveItem         `json:"live"`
	Changed  *bool             `json:"changed,omitempty"`
}

// startFake starts one and returns its address.
func startFake(t interface{ Defer(func()) }) (*fakeAdmin, string) {
	f := &fakeAdmin{queues: make(map[string]*fakeQueue)}
	srv := httptest.NewServer(f)
	t.Defer(srv.Close)
	return f, srv.URL
}

func (f *fakeAdmin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.Method+" "+r.URL.RequestURI())
	path, name, ok := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/v1/"), "/")
	switch {
	case path == "connectors" && !ok:
		fmt.Fprint(w, `{"kind":"ConnectorList","resourceVersion":1,"items":[]}`)
		return
	case path != "queues":
		f.refuse(w, 404, 5009, "There is no such path", "", nil)
		return
	}
	unescaped, err := unescape(name)
	if err != nil || r.Method != http.MethodGet && r.Header.Get("X-Weida") != "1" {
		f.refuse(w, 403, 5009, "A header is missing", "", nil)
		return
	}
	switch r.Method {
	case http.MethodGet:
		f.get(w, r, unescaped, ok)
	case http.MethodDelete:
		f.remove(w, r, unescaped)
	default:
		f.put(w, r, unescaped)
	}
}

func unescape(s string) (string, error) {
	r, err := http.NewRequest(http.MethodGet, "http://x/"+s, nil)
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(r.URL.Path, "/"), nil
}

func (f *fakeAdmin) get(w http.ResponseWriter, r *http.Request, name string, one bool) {
	if one {
		if q := f.queues[name]; q != nil {
			f.answer(w, 200, q)
			return
		}
		f.refuse(w, 404, wire.NoSuchResource, "Its name was "+strconv.Quote(name), "", nil)
		return
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit")) // absent is 0, all
	items, next := []*fakeQueue{}, ""
	for _, q := range f.queues {
		if q.Metadata.Name > r.URL.Query().Get("after") {
			items = append(items, q)
		}
	}
	slices.SortFunc(items, func(a, b *fakeQueue) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	if limit = min(limit, 2); limit > 0 && len(items) > limit { // small pages, so that there are several
		items = items[:limit]
		next = items[limit-1].Metadata.Name
	}
	f.answer(w, 200, map[string]any{"kind": "QueueList", "resourceVersion": f.version, "items": items, "next": next})
}

func (f *fakeAdmin) put(w http.ResponseWriter, r *http.Request, name string) {
	var body fakeQueue
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		f.refuse(w, 400, wire.InvalidResource, err.Error(), "spec", nil)
		return
	}
	if name == "" {
		name = body.Metadata.Name
	}
	old := f.queues[name]
	switch {
	case f.trouble(w, name), f.stale(w, r, old, body.Metadata.ResourceVersion):
	case r.Method == http.MethodPost && old != nil:
		f.refuse(w, 409, wire.AlreadyExists, "", "", old)
	case body.Spec.Replicas == 2:
		f.refuse(w, 400, wire.InvalidResource, "spec.replicas is 2: two copies cannot agree", "spec.replicas", nil)
	case old != nil && old.Metadata.DeletionTimestamp != 0:
		f.refuse(w, 409, wire.BeingDeleted, "", "", old)
	default:
		f.take(w, name, body.Spec, old)
	}
}

// take makes or changes a queue.
func (f *fakeAdmin) take(w http.ResponseWriter, name string, spec control.QueueSpec, old *fakeQueue) {
	spec.Replicas = max(spec.Replicas, 1)
	spec.Durability = cmp.Or(spec.Durability, control.Flushed)
	spec.DrainDeadline = cmp.Or(spec.DrainDeadline, control.Duration(5*time.Minute))
	changed, code := true, 200
	switch {
	case old == nil:
		f.version++
		old = &fakeQueue{Kind: control.KindQueue, Live: &liveItem{Leader: "n1", Term: 1}}
		old.Metadata = control.Metadata{
			Name: name, UID: f.version, Generation: 1, ResourceVersion: f.version,
			CreationTimestamp: time.Now().UnixMilli(),
		}
		old.Status = control.Status{
			ObservedGeneration: 1, Phase: control.Ready, Placement: []control.Replica{{Node: "4f1c", Disk: "9a02", Owner: true}},
		}
		f.queues[name] = old
		code = 201
	case fmt.Sprint(old.Spec) == fmt.Sprint(spec):
		changed = false
	default:
		f.version++
		old.Metadata.Generation++
		old.Metadata.ResourceVersion = f.version
		old.Status.ObservedGeneration = old.Metadata.Generation
	}
	old.Spec = spec
	with := *old
	with.Changed = &changed
	if name == "cut" {
		panic(http.ErrAbortHandler)
	}
	f.answer(w, code, with)
}

func (f *fakeAdmin) remove(w http.ResponseWriter, r *http.Request, name string) {
	old := f.queues[name]
	if f.trouble(w, name) || f.stale(w, r, old, 0) {
		return
	}
	if old == nil {
		f.refuse(w, 404, wire.NoSuchResource, "Its name was "+strconv.Quote(name), "", nil)
		return
	}
	drain := time.Duration(old.Spec.DrainDeadline)
	if s := r.URL.Query().Get("drainDeadline"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			f.refuse(w, 400, 5009, err.Error(), "", nil)
			return
		}
		drain = d
	}
	changed := true
	old.Metadata.DeletionTimestamp = time.Now().UnixMilli()
	old.Metadata.DrainUntil = old.Metadata.DeletionTimestamp + drain.Milliseconds()
	old.Status.Phase = control.Deleting
	with := *old
	with.Changed = &changed
	if drain == 0 {
		delete(f.queues, name)
	}
	f.answer(w, 202, with)
}

func (f *fakeAdmin) trouble(w http.ResponseWriter, name string) bool {
	switch name {
	case "stuck":
		f.refuse(w, 504, wire.MutationIndeterminate, "", "", nil)
	case "full":
		f.refuse(w, 503, wire.NotCommitted, "The disk is full", "", nil)
	case "proxy":
		http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
	default:
		return false
	}
	return true
}

func (f *fakeAdmin) stale(w http.ResponseWriter, r *http.Request, old *fakeQueue, version uint64) bool {
	s := r.URL.Query().Get("expectedVersion")
	if s == "" && version == 0 {
		return false
	}
	want, stands := version, uint64(0)
	if s != "" {
		want, _ = strconv.ParseUint(s, 10, 64)
	}
	if old != nil {
		stands = old.Metadata.ResourceVersion
	}
	if want == stands {
		return false
	}
	f.refuse(w, 409, wire.Conflict, fmt.Sprintf("Version %d was expected, %d stands", want, stands), "", old)
	return true
}

func (f *fakeAdmin) refuse(w http.ResponseWriter, status int, code wire.Code, detail, field string, now *fakeQueue) {
	f.answer(w, status, map[string]any{
		"code": fmt.Sprintf("E%d", code), "name": code.String(), "detail": detail, "field": field, "now": now,
		"message": (&wire.Error{Code: code, Detail: detail}).Error(),
	})
}

func (f *fakeAdmin) answer(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who asked may have gone
}

// cmdFake starts a fake and names it in fake.yaml; `fake asked` prints what it was asked; `fake broker` starts
// a scripted one, in scripted.yaml.
func cmdFake(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 1 && args[0] == "asked" {
		f, _ := ts.Value(fakeKey{}).(*fakeHolder)
		f.admin.mu.Lock()
		defer f.admin.mu.Unlock()
		fmt.Fprintln(ts.Stdout(), strings.Join(f.admin.asked, "\n"))
		return
	}
	if len(args) == 1 && args[0] == "broker" {
		startScripted(ts)
		return
	}
	f, url := startFake(ts)
	holder, _ := ts.Value(fakeKey{}).(*fakeHolder)
	holder.admin = f
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), "fake.yaml"), []byte("admin: "+url+"\n"), 0o600))
}

type fakeKey struct{}

type fakeHolder struct{ admin *fakeAdmin }

// TestParseManifests: what a document may be, and how a slip is shown.
func TestParseManifests(t *testing.T) {
	const good = "kind: Queue\nmetadata: {name: a}\nspec: {replicas: 1, drainDeadline: 30s}\n"
	const body = `{"kind":"Queue","metadata":{"name":"a"},"spec":{"drainDeadline":"30s","replicas":1}}`
	for _, c := range []struct {
		name, text string
		count      int
		err        []string // parts of it
	}{
		{"one", good, 1, nil},
		{"several", "---\n" + good + "---\n# nothing\n---\n" + good, 2, nil},
		{"documents of comments", "# a\n---\n# b\n\n---\n" + good + "---\n# c\n--- # d\n" + good + "...\n---\n", 2, nil},
		{"on the line of the marker", "--- " + body + "\n---\n" + good, 2, nil},
		{
			"unknown key in the third document", good + "---\n# x\n---\n" + good + "---\nkinds: Queue\n", 0,
			[]string{"[11:1] unknown field \"kinds\"", "did you mean \"kind\"?"},
		},
		{"json", body, 1, nil},
		{"json objects", body + "\n" + body + body, 3, nil},
		{"json with tabs", "{\n\t\"kind\":\t\"Queue\",\n\t\"metadata\": {\"name\": \"a\"},\n\t\"spec\": " +
			"{\"replicas\": 1, \"drainDeadline\": \"30s\"}\n}", 1, nil},
		{"what a node sets", strings.TrimSuffix(body, "}") +
			`,"status":{"phase":"Ready"},"live":{"x":1},"changed":true}`, 1, nil},
		{"empty", "", 0, nil},
		{
			"unknown key", "kind: Queue\nmetadata: {name: a}\nspec:\n  replica: 1\n", 0,
			[]string{"[4:3] unknown field \"replica\"", "\n         ^", "did you mean \"spec.replicas\"?"},
		},
		{
			"key of another place", "kind: Queue\nmetadata: {name: a}\nspec:\n  messageBytes: 1\n", 0,
			[]string{"[4:3]", "did you mean \"spec.limits.messageBytes\"?"},
		},
		{
			"wrong case", "kind: Queue\nmetadata: {name: a}\nspec: {Replicas: 1}\n", 0,
			[]string{"did you mean \"spec.replicas\"?"},
		},
		{
			"unknown key in the second object", body + "\n " + strings.Replace(body, "replicas", "replics", 1), 0,
			[]string{"[2:72] unknown field \"replics\"", "did you mean"},
		},
		{"nothing near", "kind: Queue\nmetadata: {name: a}\nspec: {zzzzzz: 1}\n", 0, []string{"unknown field \"zzzzzz\""}},
		{"a text for a number", "kind: Queue\nmetadata: {name: a}\nspec: {replicas: one}\n", 0, []string{"[3:18]"}},
		{"a fraction", "kind: Queue\nmetadata: {name: a}\nspec: {replicas: 1.5}\n", 0, []string{"replicas"}},
		{
			"a duration without a unit", "kind: Queue\nmetadata: {name: a}\nspec: {drainDeadline: 30}\n", 0,
			[]string{"a number with a unit"},
		},
		{"twice", "kind: Queue\nmetadata: {name: a}\nspec: {replicas: 1, replicas: 2}\n", 0, []string{"already defined"}},
		{"no kind", "metadata: {name: a}\n", 0, []string{`[1:1] kind is ""; the kinds are Queue and Connector`}},
		{"no name", "kind: Queue\nspec: {}\n", 0, []string{"metadata.name is missing"}},
		{"no spec", "kind: Queue\nmetadata: {name: a}\n", 0, []string{"spec is missing"}},
		{"a list", "- a\n", 0, []string{"[1:1]"}},
		{"torn", "kind: [", 0, []string{"[1:7]"}},
		{"torn json", body + "{", 0, []string{"document 2"}},
	} {
		all, err := parseManifests([]byte(c.text))
		if len(all) != c.count || (err != nil) != (len(c.err) > 0) {
			t.Errorf("%s: %d documents, %v", c.name, len(all), err)
			continue
		}
		for _, part := range c.err {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in:\n%v", c.name, part, err)
			}
		}
		for _, m := range all {
			if b, err := m.body(); err != nil || string(b) != body {
				t.Errorf("%s: %s, %v", c.name, b, err)
			}
		}
	}
}

// TestWorse: of many answers the worst counts: 4 before 5 before 3, then those that sent nothing.
func TestWorse(t *testing.T) {
	order := []int{0, statusUsage, statusUnreachable, statusRefused, statusBelow, statusIndeterminate}
	for i, a := range order {
		for j, b := range order {
			if got := worse(a, b); got != order[max(i, j)] {
				t.Errorf("worse(%d, %d) = %d", a, b, got)
			}
		}
	}
}

func TestForPeople(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536 << 20: "1.5 GiB", 1 << 63: "8388608.0 TiB",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	now := time.UnixMilli(1_700_000_000_000)
	for ago, want := range map[time.Duration]string{
		0: "0s", -time.Second: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 3 * time.Hour: "3h",
		72 * time.Hour: "3d",
	} {
		if got := age(now.Add(-ago).UnixMilli(), now); got != want {
			t.Errorf("age of %v = %q, want %q", ago, got, want)
		}
	}
	for text, want := range map[string]uint64{"0": 0, "65536": 65536, "64KiB": 65536, "2 GiB": 2 << 30, "1TiB": 1 << 40} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5GiB", "64kb", "99999999TiB", "GiB"} {
		if n, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d", text, n)
		}
	}
}
