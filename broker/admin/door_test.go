package admin

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Only who names the loopback interface comes in: a page that has made its own name lead here does not.
func TestHost(t *testing.T) {
	r := newRig(t, Options{})
	for _, host := range []string{
		"localhost", "localhost:7444", "LocalHost:1", "127.0.0.1", "127.0.0.1:7444", "127.1.2.3:7444", "[::1]:7444", "[::1]",
		"[::ffff:127.0.0.1]:7444",
	} {
		r.want(http.StatusOK, "GET", "/v1/queues", "", "Host", host)
		r.want(http.StatusCreated, "PUT", "/v1/queues/"+strings.NewReplacer("[", "", "]", "", ":", "").Replace(host),
			`{"spec":{}}`, "Host", host)
	}
	made := r.version()
	for _, host := range []string{
		"", "attacker.example", "attacker.example:7444", "localhost.attacker.example", "127.0.0.1.attacker.example:7444",
		"localhost.:7444", "0.0.0.0:7444", "[::]:7444", "192.168.1.5:7444", "10.0.0.1", "[fe80::1%lo]:7444", "[::1%lo]:7444",
		"2130706433", "0x7f.1", "127.1", "017700000001", "localhost:7444:1", "localhost:http", "localhost@attacker.example",
		"[::1", "::1]", "[localhost", "localhost ", " localhost", "localhost/",
	} {
		for _, path := range []string{"/v1/queues", "/metrics", "/livez", "/", "/version", "/no/such/path"} {
			r.refused(http.StatusForbidden, "E5009", "GET", path, "", "Host", host)
		}
		if a := r.want(http.StatusForbidden, "HEAD", "/", "", "Host", host); len(a.body) != 0 {
			t.Errorf("a HEAD has a body: %s", a.body)
		}
		r.refused(http.StatusForbidden, "E5009", "PUT", "/v1/queues/x", `{"spec":{}}`, "Host", host)
	}
	if r.version() != made {
		t.Error("a request that was turned away made an entry")
	}
}

// A change needs the header that no page can send, and none that a page cannot help sending.
func TestMutationHeaders(t *testing.T) {
	r := newRig(t, Options{})
	for _, c := range [][2]string{
		{"PUT", "/v1/queues/a"}, {"POST", "/v1/queues"}, {"DELETE", "/v1/queues/a"}, {"PATCH", "/"},
	} {
		for _, headers := range [][]string{
			{Header, ""},
			{Header, "0"},
			{Header, "1, 1"},
			{Header, "1", "Origin", "http://localhost:7444"},
			{Header, "1", "Origin", "null"},
			{Header, "1", "Cross-Origin", "yes"},
			{Header, "1", "Sec-Fetch-Site", "same-origin"},
		} {
			r.refused(http.StatusForbidden, "E5009", c[0], c[1], `{"spec":{},"metadata":{"name":"a"}}`, headers...)
		}
		req := sent(c[0], c[1], strings.NewReader(`{"spec":{}}`))
		req.Header[Header] = []string{"1", "1"}
		if a := r.serve(req); a.status != http.StatusForbidden {
			t.Errorf("two headers: status %d", a.status)
		}
	}
	if len(r.asked) != 0 {
		t.Errorf("the node was asked %+v", r.asked)
	}
	// Reading is harmless: a page of another site may ask and gets nothing to see.
	r.want(http.StatusOK, "GET", "/v1/queues", "", "Origin", "http://attacker.example")
}

// No answer allows a page of another site anything, not even to ask what is allowed.
func TestNoCORS(t *testing.T) {
	r := newRig(t, Options{Profile: true})
	check := func(a answer) {
		t.Helper()
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("the answer carries %s", name)
			}
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cache-Control") != "no-store" ||
			!strings.Contains(a.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("headers are %v", a.header)
		}
	}
	preflight := []string{"Origin", "http://attacker.example", "Access-Control-Request-Method", "PUT"}
	check(r.want(http.StatusForbidden, "OPTIONS", "/v1/queues/a", "", preflight...))
	check(r.want(http.StatusMethodNotAllowed, "OPTIONS", "/v1/queues/a", ""))
	for _, path := range []string{
		"/", "/page.js", "/v1/queues", "/v1/status", "/metrics", "/livez", "/nothing", "/debug/pprof/",
	} {
		check(r.do("GET", path, "", "Origin", "http://attacker.example"))
	}
}

// Refusals at the door are counted, and told once a second however many there are.
func TestDoorIsTold(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	d := door{log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }}
	turn := func(n int) {
		for range n {
			if d.admit(sent("GET", "/", nil, "Host", "attacker.example")) == nil {
				t.Fatal("came in")
			}
		}
	}
	turn(1000)
	now = now.Add(time.Second)
	turn(1)
	if lines := strings.Count(out.String(), "\n"); lines != 2 || !strings.Contains(out.String(), "count=1000") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	if d.count() != 1001 {
		t.Errorf("counted %d", d.count())
	}
}

// Every path and method that is not served says so in JSON.
func TestRoutes(t *testing.T) {
	r := newRig(t, Options{})
	for _, path := range []string{
		"/v1", "/v1/", "/v1/queue", "/v1/queuesx", "/v1/status/x", "/v2/queues", "/metrics/", "/metrics/x", "/livez/x",
		"/debug/pprof/", "/debug/pprof/heap", "/page", "/page/index.html", "/..", "//", "/v1//queues",
	} {
		r.refused(http.StatusNotFound, "E5009", "GET", path, "")
	}
	for _, c := range []struct{ method, path, allow string }{
		{"PUT", "/v1/queues", "GET, HEAD, POST"},
		{"DELETE", "/v1/connectors", "GET, HEAD, POST"},
		{"POST", "/v1/queues/a", "GET, HEAD, PUT, DELETE"},
		{"PATCH", "/v1/queues/a", "GET, HEAD, PUT, DELETE"},
		{"POST", "/v1/status", "GET, HEAD"},
		{"POST", "/metrics", "GET, HEAD"},
		{"DELETE", "/livez", "GET, HEAD"},
		{"POST", "/", "GET, HEAD"},
	} {
		a := r.want(http.StatusMethodNotAllowed, c.method, c.path, "")
		if got := a.header.Get("Allow"); got != c.allow {
			t.Errorf("%s %s: allowed is %q", c.method, c.path, got)
		}
		decoded[ErrorBody](t, a)
	}
}

// A parameter that is not known is refused: a slip of the pen must not drop an expected version.
func TestQuery(t *testing.T) {
	r := newRig(t, Options{})
	r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`)
	for _, c := range []struct{ method, target, body, hint string }{
		{"PUT", "/v1/queues/a?expectedVerison=1", `{"spec":{}}`, "expectedVersion"},
		{"PUT", "/v1/queues/a?ExpectedVersion=1", `{"spec":{}}`, "expectedVersion"},
		{"PUT", "/v1/queues/a?expectedVersion=1&expectedVersion=2", `{"spec":{}}`, "more than once"},
		{"PUT", "/v1/queues/a?expectedVersion=", `{"spec":{}}`, "whole number"},
		{"PUT", "/v1/queues/a?expectedVersion=-1", `{"spec":{}}`, "whole number"},
		{"PUT", "/v1/queues/a?expectedVersion=18446744073709551616", `{"spec":{}}`, "whole number"},
		{"PUT", "/v1/queues/a?drainDeadline=3s", `{"spec":{}}`, "drainDeadline"},
		{"PUT", "/v1/queues/a?a;b", `{"spec":{}}`, "semicolon"},
		{"PUT", "/v1/queues/a?%zz", `{"spec":{}}`, "cannot be read"},
		{"DELETE", "/v1/queues/a?drainDeadlin=3s", "", "drainDeadline"},
		{"GET", "/v1/queues?limit=1&limit=2", "", "more than once"},
		{"GET", "/v1/queues/a?watch=1", "", "no parameter"},
		{"GET", "/v1/status?x", "", "no parameter"},
		{"GET", "/metrics?queues=yes", "", "0 or 1"},
		{"GET", "/metrics/queues?queues=1", "", "no parameter"},
		{"GET", "/readyz?verbos", "", "verbose"},
	} {
		if e := r.refused(http.StatusBadRequest, "E5009", c.method, c.target, c.body); !strings.Contains(e.Detail, c.hint) {
			t.Errorf("%s: %s", c.target, e.Detail)
		}
	}
	if len(r.asked) != 1 {
		t.Errorf("the node was asked %+v", r.asked)
	}
}
