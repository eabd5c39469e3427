package broker

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"weida/broker/wire"
)

// ask sends one request to the HTTP side and returns the status and the answer.
func (r *rig) ask(method, path, body string, header map[string]string) (int, string) {
	r.t.Helper()
	at := "http://" + r.node.AdminAddr().String() + path
	q, err := http.NewRequestWithContext(r.ctx, method, at, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("X-Weida", "1")
	for k, v := range header {
		q.Header.Set(k, v)
		if k == "Host" {
			q.Host = v
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// A name is bytes and no path: whatever it looks like, it is one queue, the same over HTTP and the wire.
func TestNamesAreNoPaths(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Admin = "127.0.0.1:0" })
	for _, name := range []string{
		"a/b", "/", "//", ".", "..", "../../etc", "a%2Fb", "%", "a b", "+", "?x=1", "#", "\u00e9", "e\u0301", "日本", "~x",
		"-o", "\"", "\\", "<b>", strings.Repeat("n", 512), strings.Repeat("/", 512),
	} {
		path := "/v1/queues/" + url.PathEscape(name)
		made, answer := r.ask(http.MethodPut, path, `{"spec":{}}`, nil)
		if made >= 400 && made < 500 {
			t.Logf("%.20q: %d %.100s", name, made, answer)
			if status, _ := r.ask(http.MethodGet, path, "", nil); status != http.StatusNotFound {
				t.Errorf("%.20q was refused, and is there: %d", name, status)
			}
			continue
		}
		if made != http.StatusCreated {
			t.Errorf("%.20q: %d %.200s", name, made, answer)
			continue
		}
		r.until("it takes messages", func() bool { q := r.node.lookup(name); return q != nil && q.serves.Load() })
		p := r.line(r.dial(), &wire.OpenProducer{Queue: name, Want: wire.Stored(wire.Written)})
		frame[*wire.Opened](p)
		if e := p.put(1, "x"); e.Offset != 0 {
			t.Errorf("%.20q is another queue: %+v", name, e)
		}
		if status, answer := r.ask(http.MethodGet, path, "", nil); status != http.StatusOK {
			t.Errorf("%.20q: %d %.200s", name, status, answer)
		}
	}
	before := r.node.Registry().Version
	for _, c := range []struct {
		method, path, body string
		header             map[string]string
	}{
		{"PUT", "/v1/queues/evil", `{"spec":{}}`, map[string]string{"Host": "evil.example"}},
		{"PUT", "/v1/queues/evil", `{"spec":{}}`, map[string]string{"Host": "127.0.0.1.evil.example"}},
		{"PUT", "/v1/queues/evil", `{"spec":{}}`, map[string]string{"Host": "localhost@evil.example"}},
		{"PUT", "/v1/queues/evil", `{"spec":{}}`, map[string]string{"Origin": "http://127.0.0.1"}},
		{"PUT", "/v1/queues/evil", `{"spec":{}}` + strings.Repeat(" ", 2<<20), nil},
		{"PUT", "/v1/queues/evil", `{"spec":{},"spec":{}}`, nil},
		{"PUT", "/v1/queues/evil", `{"spec":{}}{"spec":{}}`, nil},
		{"PUT", "/v1/queues/evil", `{"spec":` + strings.Repeat("[", 100_000), nil},
		{"PUT", "/v1/queues/a%00b", `{"spec":{}}`, nil},
		{"PUT", "/v1/queues/%ff", `{"spec":{}}`, nil},
		{"PUT", "/v1/queues/" + strings.Repeat("n", 513), `{"spec":{}}`, nil},
		{"DELETE", "/v1/queues/demo?drainDeadline=-1s", "", nil},
		{"DELETE", "/v1/queues/demo?drainDeadline=9999999h", "", nil},
		{"DELETE", "/v1/queues/demo?drainDeadline=1s&drainDeadline=2s", "", nil},
		{"POST", "/v1/queues/demo", `{"spec":{}}`, nil},
	} {
		status, answer := r.ask(c.method, c.path, c.body, c.header)
		if status < 400 || status >= 500 {
			t.Errorf("%s %.40s %.40s %v: %d %.200s", c.method, c.path, c.body, c.header, status, answer)
		}
	}
	for _, q := range r.node.Registry().Queues {
		if q.Metadata.DeletionTimestamp != 0 || q.Metadata.ResourceVersion > before {
			t.Errorf("%+v", q.Metadata)
		}
	}
}
