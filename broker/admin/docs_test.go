package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
)

// apiPage is the page that describes the API, with the code blocks of one language.
func apiPage(t *testing.T) (text string, blocks func(language string) []string) {
	raw, err := os.ReadFile("../../docs/reference/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw), func(language string) (list []string) {
		for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(string(raw), -1) {
			list = append(list, m[1])
		}
		return list
	}
}

// The page's examples are what the handler answers and takes, field by field.
func TestPageExamples(t *testing.T) {
	_, blocks := apiPage(t)
	list := blocks("json")
	if len(list) != 3 {
		t.Fatalf("%d examples", len(list))
	}
	queue, change, refused := list[0], list[1], list[2]

	q := strictly[Queue](t, queue)
	r := newRig(t, Options{})
	r.index = 6
	made := decoded[Queue](t, r.want(http.StatusCreated, "POST", "/v1/queues", queueOnly(t, queue))).Metadata
	r.apply(control.Command{Mutation: &control.Mutation{
		Verb: control.Apply, Kind: control.KindConnector, Name: "c", At: 1, Connector: &control.ConnectorSpec{},
	}})
	r.apply(control.Command{Rules: 1, Observe: &control.Observe{
		Kind: control.KindQueue, UID: made.UID, Generation: 1, Status: q.Status.Status,
	}})
	r.live[made.UID] = *q.Live
	got := decoded[map[string]any](t, r.want(http.StatusOK, "GET", "/v1/queues/orders", ""))
	if want := strictly[map[string]any](t, queue); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the page shows\n%v\nand the node answers\n%v", want, got)
	}
	l := q.Live
	if l.In != l.Ready+l.Unsettled+l.Accepted+l.Rejected+l.Purged {
		t.Errorf("the page's messages do not add up: %+v", l)
	}

	r.want(http.StatusOK, "PUT", "/v1/queues/orders", change)

	e := strictly[ErrorBody](t, refused)
	body := `{"spec":{"limits":{"messages":1}}}`
	r = newRig(t, Options{})
	r.index = 8
	r.want(http.StatusCreated, "PUT", "/v1/queues/orders", body)
	answer := r.refused(http.StatusConflict, "E5001", "PUT", "/v1/queues/orders?expectedVersion=7", body)
	if e.Now, answer.Now = nil, nil; e != answer {
		t.Errorf("the page shows\n%+v\nand the node answers\n%+v", e, answer)
	}
}

// queueOnly is the part of an example that counts when it is sent.
func queueOnly(t *testing.T, example string) string {
	var q struct{ Metadata, Spec map[string]any }
	if err := json.Unmarshal([]byte(example), &q); err != nil {
		t.Fatal(err)
	}
	return string(encode(map[string]any{"metadata": map[string]any{"name": q.Metadata["name"]}, "spec": q.Spec}))
}

func strictly[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// The page's commands do what they say, as curl would send them.
func TestPageCommands(t *testing.T) {
	_, blocks := apiPage(t)
	r := newRig(t, Options{})
	played := 0
	for line := range strings.Lines(strings.Join(blocks("sh"), "")) {
		var words []string
		for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
			words = append(words, m[1]+m[2])
		}
		req := sent("GET", "/", nil, Header, "")
		for i := 0; i < len(words); i++ {
			switch w := words[i]; w {
			case "curl":
			case "-X":
				i++
				req.Method = words[i]
			case "-H":
				i++
				name, value, _ := strings.Cut(words[i], ": ")
				req.Header.Set(name, value)
			case "-d":
				i++
				fresh := sent("PUT", "/", strings.NewReader(words[i]))
				req.Body, req.ContentLength = fresh.Body, fresh.ContentLength
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl does
			default:
				u, err := url.Parse(w)
				if err != nil {
					t.Fatal(err)
				}
				req.URL, req.Host = u, u.Host
			}
		}
		if a := r.serve(req); a.status/100 != 2 {
			t.Errorf("%s: %d %s", line, a.status, a.body)
		}
		played++
	}
	if played < 3 {
		t.Errorf("%d commands", played)
	}
}

// The page's table of refusals names codes by their names, and holds every one that a handler may give.
func TestPageCodes(t *testing.T) {
	text, _ := apiPage(t)
	listed := make(map[string]bool)
	row := regexp.MustCompile("(?m)^\\| ([0-9, ]+) \\| E([0-9]+) `([a-z_]+)` \\|")
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		var code wire.Code
		if _, err := fmt.Sscan(m[2], &code); err != nil {
			t.Fatal(err)
		}
		if info, ok := wire.Lookup(code); !ok || info.Name != m[3] {
			t.Errorf("the page calls E%s %q", m[2], m[3])
		}
		for status := range strings.SplitSeq(m[1], ", ") {
			listed[status+" "+m[3]] = true
		}
	}
	want := []string{
		"400 invalid_resource", "413 invalid_resource", "503 not_committed", "504 mutation_indeterminate",
		"400 bad_request", "403 bad_request", "404 bad_request", "405 bad_request", "415 bad_request",
		"409 change_pending", "409 unsafe", "409 no_group", "409 not_leader", "503 not_leader", "410 watch_compacted",
		"503 overloaded",
	}
	for _, how := range reasons {
		want = append(want, fmt.Sprintf("%d %s", how.status, how.code))
	}
	for _, w := range want {
		if !listed[w] {
			t.Errorf("the page does not list %s", w)
		}
	}
}

// The page names every route that there is.
func TestPageRoutes(t *testing.T) {
	text, _ := apiPage(t)
	h := &handler{}
	for _, rt := range h.routesOf() {
		path := strings.ReplaceAll(rt.path, "{name}", "NAME")
		if strings.HasPrefix(path, "/v1/connectors") || strings.HasPrefix(path, "/page.") {
			continue // as those of queues; and what the page loads
		}
		tail := path[strings.LastIndexByte(path, '/'):]
		node := strings.Replace(path, "NAME", "NODE", 1)
		if !strings.Contains(text, rt.method+" "+path+"`") && !strings.Contains(text, "`"+path+"`") &&
			!strings.Contains(text, "`…"+tail+"`") && !strings.Contains(text, rt.method+" "+node+"`") {
			t.Errorf("the page does not name %s %s", rt.method, path)
		}
	}
	for name := range sinceVersion {
		if !strings.Contains(text, fmt.Sprintf("`%s` | %d |", name, sinceVersion[name])) {
			t.Errorf("the page does not say since when there is %s", name)
		}
	}
}

// The page's numbers are the code's.
func TestPageLimits(t *testing.T) {
	text, _ := apiPage(t)
	s, o := NewServer(nil), Options{}.withDefaults()
	span := func(d time.Duration) string { return fmt.Sprintf("%d s", int(d.Seconds())) }
	for _, row := range []string{
		fmt.Sprintf("| body | %d MiB |", bodyMax>>20),
		fmt.Sprintf("| depth of a body | %d |", depthMax),
		fmt.Sprintf("| header | %d KiB |", s.MaxHeaderBytes>>10),
		fmt.Sprintf("| header to be read in; whole request; answer | %s; %s; %s |", span(s.ReadHeaderTimeout),
			span(s.ReadTimeout), span(s.WriteTimeout)),
		fmt.Sprintf("| connections | %d |", connectionsMax),
		fmt.Sprintf("| idle connection | %s |", span(s.IdleTimeout)),
		fmt.Sprintf("| changes under way | %d |", o.MutationsMax),
		fmt.Sprintf("| a change to be committed in | %s |", span(o.MutationTime)),
		fmt.Sprintf("| scrapes under way | %d |", scrapesMax),
		fmt.Sprintf("| watches | %d |", watchesMax),
		fmt.Sprintf("| a comment of a watch; one write of it | every %s; %s |", span(watchBeat), span(watchPatience)),
		fmt.Sprintf("| the other nodes to answer in | %s |", span(factsPatience)),
		fmt.Sprintf("| a voter's last answer | %s ago |", span(HeardMaxMS*time.Millisecond)),
	} {
		if !strings.Contains(text, row) {
			t.Errorf("the page does not say %s", row)
		}
	}
	if s.WriteTimeout <= o.MutationTime+s.ReadTimeout {
		t.Error("a change may take longer than its answer")
	}
}
