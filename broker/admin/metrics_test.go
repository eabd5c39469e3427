package admin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"weida/broker/control"
	"weida/broker/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file under testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got); -update writes it anew:\n%s", name, d)
	}
}

// ours leaves out what the Go runtime and the operating system say of the process.
func ours(text []byte) string {
	foreign := regexp.MustCompile(`(?m)^(# (HELP|TYPE) )?(go|process)_.*\n`)
	return foreign.ReplaceAllString(string(text), "")
}

// filled is a node with something in every number.
func filled(t *testing.T) *rig {
	r := newRig(t, Options{
		Node: "n1", Version: Version{Version: "v0.1.0", Commit: "4f1c9ab", Go: "go1.26", StoreFormat: 1},
	})
	for _, name := range []string{"orders", `odd "name"\`, "gone soon"} {
		r.apply(control.Command{Mutation: &control.Mutation{
			Verb: control.Create, Kind: control.KindQueue, Name: name, Queue: new(control.QueueSpec), At: 1,
		}})
	}
	r.want(http.StatusCreated, "PUT", "/v1/connectors/out", `{"spec":`+connectorSpec+`}`)
	r.refused(http.StatusConflict, "E5002", "POST", "/v1/queues", `{"metadata":{"name":"orders"},"spec":{}}`)
	r.want(http.StatusAccepted, "DELETE", "/v1/queues/gone%20soon", "")
	for _, err := range []error{&wire.Error{Code: wire.NotCommitted}, errors.New("lost")} {
		r.before = func(context.Context) error { return err }
		r.do("PUT", "/v1/queues/x", `{"spec":{}}`)
	}
	r.before = nil
	r.refused(http.StatusForbidden, "E5009", "GET", "/", "", "Host", "attacker.example")
	r.live = map[uint64]Live{
		5: {
			Leader: "n1", Term: 2, In: 100, Ready: 40, Unsettled: 10, Accepted: 30, Rejected: 5, Purged: 15, Released: 3,
			Bytes: 12800, DiskBytes: 65536, Subscriptions: 2, Consumers: 1, Producers: 4,
		},
		6: {Leader: "n1", Term: 1, Trouble: "a flush failed"},
	}
	r.health = Health{Ready: []Problem{{
		Object: "queue orders", What: "Its log is read only.", Effect: "Nothing is lost.", Remedy: "Mend the disk.",
	}}}
	r.counters = Counters{
		Connections: 3, ConnectionsTotal: 17, Refusals: map[string]uint64{"too_large": 2, "queue_full": 1},
		Published:     map[string]uint64{"stored:flushed": 90, "accepted": 10},
		Indeterminate: 1, Delivered: 63, Settled: 50, BodyBytes: 1 << 20,
		FlushRounds: 9, FlushFiles: 20, FlushErrors: 1,
		Disk:    Disk{State: "ok", FreeBytes: 7 << 30, TotalBytes: 9 << 30, ReserveBytes: 64 << 20},
		Damaged: map[string]uint64{"Corrupt": 2, "Poisoned": 1}, SetAside: 3, LyingAside: 4,
		FlushSeconds: Histogram{Bounds: []float64{0.001, 0.01, 0.1}, Counts: []uint64{2, 7, 8}, Count: 9, Sum: 0.512},
		Links: []LinkCounters{
			{
				Peer: 2, Up: true, RoundTrip: 0.0005, RaftBytes: 4096, PayloadBytes: 1 << 20, Sent: 12, Received: 13,
				UnderWay: 3, Saturated: 1, Gaps: 2, Dropped: map[string]uint64{"down": 5}, Dials: 1,
			},
			{Peer: 3, Dials: 9},
		},
	}
	return r
}

// The text that is scraped, to the letter.
func TestMetricsGolden(t *testing.T) {
	r := filled(t)
	r.want(http.StatusOK, "GET", "/metrics", "") // flows count from the first scrape
	l := r.live[5]
	l.In, l.Accepted, l.Rejected, l.Purged, l.Released = l.In+11, l.Accepted+7, l.Rejected+2, l.Purged+1, l.Released+4
	r.live[5] = l
	a := r.want(http.StatusOK, "GET", "/metrics", "")
	if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
		t.Errorf("the text is sent as %q", kind)
	}
	golden(t, "metrics.txt", ours(a.body))
	each := r.want(http.StatusOK, "GET", "/metrics/queues", "")
	golden(t, "metrics-queues.txt", string(each.body))

	both := ours(r.want(http.StatusOK, "GET", "/metrics?queues=1", "").body)
	for _, part := range []string{ours(a.body), string(each.body)} {
		for line := range strings.Lines(part) {
			if !strings.Contains(both, line) {
				t.Errorf("?queues=1 leaves out %q", line)
			}
		}
	}
	for _, own := range []string{"go_goroutines", "process_open_fds"} {
		if !strings.Contains(string(a.body), "\n"+own+" ") {
			t.Errorf("%s is not told", own)
		}
	}
}

// What is scraped by default is of one size, whatever the number of queues.
func TestSumsAreOfOneSize(t *testing.T) {
	series := func(queues int) int {
		r := newRig(t, Options{})
		for i := range queues {
			uid := r.apply(control.Command{Mutation: &control.Mutation{
				Verb: control.Create, Kind: control.KindQueue, Name: fmt.Sprint("q", i), Queue: new(control.QueueSpec), At: 1,
			}}).Queue.Metadata.UID
			r.live[uid] = Live{Leader: "n1", Ready: 1, In: 1}
		}
		text := ours(r.want(http.StatusOK, "GET", "/metrics", "").body)
		if want := fmt.Sprintf("\nweida_queues_messages{state=\"ready\"} %d\n", queues); !strings.Contains(text, want) {
			t.Errorf("%d queues are not summed up", queues)
		}
		if strings.Contains(text, `queue="`) {
			t.Error("a queue stands by itself")
		}
		return strings.Count(text, "\n")
	}
	if one, many := series(1), series(1000); one != many {
		t.Errorf("%d lines for one queue, %d for 1000", one, many)
	}
}

// A sum that counts never falls: not when a queue is deleted, not when one is not served for a while, and not when the
// node starts again with queues that counted before.
func TestFlowsNeverFall(t *testing.T) {
	r := newRig(t, Options{})
	makeQueue := func(name string, l Live) uint64 {
		uid := r.apply(control.Command{Mutation: &control.Mutation{
			Verb: control.Create, Kind: control.KindQueue, Name: name, Queue: new(control.QueueSpec), At: 1,
		}}).Queue.Metadata.UID
		r.live[uid] = l
		return uid
	}
	var now tally
	look := func(want flows) {
		t.Helper()
		reg := r.Registry()
		if _, got := now.add(r, &reg); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
	}
	old := makeQueue("old", Live{In: 1000, Accepted: 900})
	later := makeQueue("later", Live{})
	delete(r.live, later) // it opens after the first look
	look(flows{})
	r.live[old] = Live{In: 1003, Accepted: 901}
	r.live[later] = Live{In: 500, Purged: 500}
	look(flows{in: 3, accepted: 1})
	fresh := makeQueue("fresh", Live{In: 20, Rejected: 6, Released: 2})
	look(flows{in: 23, accepted: 1, rejected: 6, released: 2})

	delete(r.live, old)
	look(flows{in: 23, accepted: 1, rejected: 6, released: 2})
	r.live[old] = Live{In: 1010, Accepted: 901}
	look(flows{in: 30, accepted: 1, rejected: 6, released: 2})
	r.live[old] = Live{In: 1008, Accepted: 901} // it lost its tail
	look(flows{in: 30, accepted: 1, rejected: 6, released: 2})

	r.apply(control.Command{Mutation: &control.Mutation{
		Verb: control.Delete, Kind: control.KindQueue, Name: "fresh", At: 1,
	}})
	r.apply(control.Command{Rules: 1, Remove: &control.Remove{Kind: control.KindQueue, UID: fresh}})
	look(flows{in: 30, accepted: 1, rejected: 6, released: 2})
	if len(now.last) != 2 {
		t.Errorf("%d queues are remembered", len(now.last))
	}
}

// One queue that cannot be told does not hide the others.
func TestScrapeGoesOnBesideTrouble(t *testing.T) {
	r := filled(t)
	r.counters.FlushSeconds = Histogram{Bounds: []float64{1, 2}, Counts: []uint64{1}} // shorter than its bounds
	if a := r.want(http.StatusOK, "GET", "/metrics", ""); !strings.Contains(string(a.body), "\nweida_queues_served 2\n") {
		t.Errorf("%s", ours(a.body))
	}
	n := &oddNode{rig: r}
	h := NewHandler(n, Options{})
	r.h = h
	a := r.want(http.StatusOK, "GET", "/metrics/queues", "")
	if !strings.Contains(string(a.body), "weida_queue_phase{phase=\"Ready\",queue=\"a\uFFFD\"} 1") {
		t.Errorf("%s", a.body)
	}
}

// oddNode shows a name that no registry takes.
type oddNode struct{ *rig }

func (n *oddNode) Registry() Registry {
	return Registry{Queues: []control.Queue{{
		Metadata: control.Metadata{Name: "a\xff", UID: 1}, Status: control.Status{Phase: control.Ready},
	}}}
}

// The page of metrics lists every family with its type, its labels and its help, in the order of the catalogue, and
// names no other.
func TestMetricsPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile("(?m)^\\| `weida_[a-z_]+` \\|.*$").FindAllString(string(text), -1)
	kinds := map[prometheus.ValueType]string{counter: "counter", gauge: "gauge", histogram: "histogram"}
	known := make(map[string]bool)
	var want []string
	for _, m := range append(append([]metric(nil), sumFamilies...), queueFamilies...) {
		label := ""
		if len(m.labels) > 0 {
			label = " `" + strings.Join(m.labels, "`, `") + "`"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s |%s | %s |", m.name, kinds[m.kind], label, m.help))
		known[m.name] = true
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("docs/reference/metrics.md (-want +got):\n%s\nthe rows are:\n%s", d, strings.Join(want, "\n"))
	}
	for _, name := range regexp.MustCompile(`weida_[a-z_]*[a-z]\b`).FindAllString(string(text), -1) {
		if !known[name] && name != "weida_queue" && name != "weida_queues" {
			t.Errorf("the page names %s", name)
		}
	}
}

// Names follow the house of Prometheus: base units, and _total where something is counted.
func TestMetricNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range append(append([]metric(nil), sumFamilies...), queueFamilies...) {
		switch {
		case seen[m.name]:
			t.Errorf("%s stands twice", m.name)
		case !strings.HasPrefix(m.name, "weida_") || strings.ToLower(m.name) != m.name:
			t.Errorf("%s is no name of ours", m.name)
		case (m.kind == counter) != strings.HasSuffix(m.name, "_total"):
			t.Errorf("%s and its kind do not agree", m.name)
		case m.kind == histogram && !strings.HasSuffix(m.name, "_seconds"):
			t.Errorf("%s has no unit", m.name)
		case !strings.HasSuffix(m.help, "."):
			t.Errorf("%s: %q is no sentence", m.name, m.help)
		}
		seen[m.name] = true
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, queues := range []int{1, 1000} {
		b.Run(fmt.Sprint("queues=", queues), func(b *testing.B) {
			t := new(testing.T)
			r := newRig(t, Options{})
			for i := range queues {
				uid := r.apply(control.Command{Mutation: &control.Mutation{
					Verb: control.Create, Kind: control.KindQueue, Name: fmt.Sprint("q", i), Queue: new(control.QueueSpec), At: 1,
				}}).Queue.Metadata.UID
				r.live[uid] = Live{Leader: "n1", Ready: 1, In: 1}
			}
			b.ReportAllocs()
			for b.Loop() {
				r.want(http.StatusOK, "GET", "/metrics", "")
			}
		})
	}
}
