package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weida/broker/control"
)

func problem(object string) Problem {
	return Problem{Object: object, What: "Its log is\nread only.", Effect: "nothing is lost", Remedy: "mend the disk"}
}

// Health is "ok", or one problem a line; a node that is not alive is not ready either.
func TestHealth(t *testing.T) {
	r := newRig(t, Options{})
	text := func(status int, target, want string) {
		t.Helper()
		if a := r.want(status, "GET", target, ""); string(a.body) != want ||
			a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %q as %s, want %q", target, a.body, a.header.Get("Content-Type"), want)
		}
	}
	text(http.StatusOK, "/livez", "ok\n")
	text(http.StatusOK, "/readyz", "ok\n")
	text(http.StatusOK, "/readyz?verbose", "ok\n")

	r.health.Ready = []Problem{problem("queue a"), problem("queue b")}
	text(http.StatusOK, "/livez", "ok\n")
	text(http.StatusServiceUnavailable, "/readyz", "queue a: Its log is read only\nqueue b: Its log is read only\n")
	text(http.StatusServiceUnavailable, "/readyz?verbose",
		"queue a: Its log is read only; nothing is lost; mend the disk\n"+
			"queue b: Its log is read only; nothing is lost; mend the disk\n")

	r.health.Alive, r.health.Ready = []Problem{problem("node")}, nil
	text(http.StatusServiceUnavailable, "/livez", "node: Its log is read only\n")
	text(http.StatusServiceUnavailable, "/readyz", "node: Its log is read only\n")
	if a := r.want(http.StatusServiceUnavailable, "HEAD", "/livez", ""); a.header.Get("Content-Type") == "" {
		t.Error("a HEAD has no type")
	}
}

// A group that has something waiting and commits nothing is no longer healthy, whatever the node says.
func TestHealthIsProgress(t *testing.T) {
	r := newRig(t, Options{})
	look := func(at int64, committed uint64) int {
		r.local = Facts{At: at, Groups: []Group{{ID: 7, Queue: "a", Role: RoleLeader, Waiting: 3, Committed: committed}}}
		return r.do("GET", "/readyz", "").status
	}
	for i, row := range []struct {
		at        int64
		committed uint64
		want      int
	}{
		{1000, 5, http.StatusOK},
		{1000 + stalledMax - 1, 5, http.StatusOK},
		{1000 + stalledMax, 5, http.StatusServiceUnavailable},
		{9000, 5, http.StatusServiceUnavailable},
		{9100, 6, http.StatusOK},
		{9200, 7, http.StatusOK},
	} {
		if got := look(row.at, row.committed); got != row.want {
			t.Errorf("look %d: %d, want %d", i, got, row.want)
		}
	}
	look(10_000, 7)
	look(20_000, 7)
	a := r.want(http.StatusServiceUnavailable, "GET", "/readyz", "")
	if want := "queue a: 3 proposals wait and nothing was committed for 10800 ms\n"; string(a.body) != want {
		t.Errorf("told %q, want %q", a.body, want)
	}
}

// Many problems are counted, not listed, until somebody asks.
func TestHealthIsBounded(t *testing.T) {
	r := newRig(t, Options{})
	for i := range 1000 {
		r.health.Ready = append(r.health.Ready, problem(fmt.Sprint("queue q", i)))
	}
	a := r.want(http.StatusServiceUnavailable, "GET", "/readyz", "")
	if n := strings.Count(string(a.body), "\n"); n != 101 || !strings.HasSuffix(string(a.body), "\nand 900 more\n") {
		t.Errorf("%d lines", n)
	}
	a = r.want(http.StatusServiceUnavailable, "GET", "/readyz?verbose", "")
	if n := strings.Count(string(a.body), "\n"); n != 1000 {
		t.Errorf("verbose: %d lines", n)
	}
	if s := decoded[Status](t, r.want(http.StatusOK, "GET", "/v1/status", "")); len(s.Ready) != 100 {
		t.Errorf("the status lists %d problems", len(s.Ready))
	}
}

func TestHealthAsJSON(t *testing.T) {
	r := newRig(t, Options{})
	accept := []string{"Accept", "text/html, application/json;q=0.9"}
	b := decoded[HealthBody](t, r.want(http.StatusOK, "GET", "/readyz", "", accept...))
	if !b.OK || b.Problems == nil || len(b.Problems) != 0 {
		t.Errorf("%+v", b)
	}
	r.health.Ready = []Problem{problem("queue a")}
	b = decoded[HealthBody](t, r.want(http.StatusServiceUnavailable, "GET", "/readyz", "", accept...))
	if b.OK || len(b.Problems) != 1 || b.Problems[0] != r.health.Ready[0] {
		t.Errorf("%+v", b)
	}
}

// The status adds up what the queues hold, and does not grow with them.
func TestStatus(t *testing.T) {
	r := filled(t)
	s := decoded[Status](t, r.want(http.StatusOK, "GET", "/v1/status", ""))
	q := s.Queues
	if q.Count != 3 || q.Phases[control.Pending] != 2 || q.Phases[control.Deleting] != 1 || q.Served != 2 ||
		q.Troubled != 1 || q.Ready != 40 || q.Unsettled != 10 || q.Bytes != 12800 || q.DiskBytes != 65536 ||
		q.Subscriptions != 2 || q.Consumers != 1 || q.Producers != 4 {
		t.Errorf("queues are %+v", q)
	}
	if s.Connectors.Count != 1 || s.Connectors.Phases[control.Pending] != 1 || s.Node != "n1" || len(s.Ready) != 1 ||
		s.Alive == nil || s.ResourceVersion != r.version() || s.Counters.Delivered != 63 ||
		s.Counters.FlushSeconds.Count != 9 {
		t.Errorf("%+v", s)
	}
	v := decoded[Version](t, r.want(http.StatusOK, "GET", "/version", ""))
	if v.Version != "v0.1.0" || v.StoreFormat != 1 {
		t.Errorf("version is %+v", v)
	}
}
