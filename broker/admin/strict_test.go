package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"weida/broker/control"
)

// A body that is not one resource is refused with the path of the first wrong field and what would be right.
func TestStrictJSON(t *testing.T) {
	r := newRig(t, Options{})
	spec := func(s string) string { return `{"spec":{` + s + `}}` }
	for _, c := range []struct{ body, field, hint string }{
		{``, "", "empty"},
		{" \n ", "", "empty"},
		{`null`, "", "null"},
		{`[]`, "", "an object is expected, not an array"},
		{`"x"`, "", `not "x"`},
		{`{`, "", "line 1, column 2"},
		{"{\n \"spec\": {,}}", "", "line 2, column 11"},
		{`{"spec":{}}{"spec":{}}`, "", "one resource a request"},
		{`{"spec":{}} x`, "", "one resource a request"},
		{`{"spec":{}}` + "\x00", "", "one resource a request"},
		{"\xef\xbb\xbf{}", "", "line 1, column 1"},
		{"{\"kind\":\"Queue\xff\"}", "", "not UTF-8"},
		{`{"kind":"\q"}`, "", "line 1, column 11"},
		{`{"kind":"\u12"}`, "", "line 1"},
		{`{"kind":"\ud800"}`, "", "half a character"},
		{`{"kind":"\udc00"}`, "", "half a character"},
		{`{"kind":"\ud800\u0041"}`, "", "half a character"},
		{`{"kind":"\ud800\n"}`, "", "half a character"},
		{`{"kind":"\\\ud83d"}`, "", "half a character"},
		{`{"\udfff":1}`, "", "half a character"},
		{strings.Repeat("[", 100000), "", "nests more than 32"},
		{strings.Repeat(`{"status":`, 33) + "1" + strings.Repeat("}", 33), "", "nests more than 32"},

		{`{}`, "spec", "{} takes every default"},
		{`{"spec":null}`, "spec", "leave the field out"},
		{`{"kind":"Connector","spec":{}}`, "kind", "Queue"},
		{`{"kind":"queue","spec":{}}`, "kind", "Queue"},
		{`{"kind":7}`, "kind", "a string is expected, not 7"},
		{`{"apiVersion":"v1","spec":{}}`, "apiVersion", "known here: kind, metadata, spec"},
		{`{"Spec":{}}`, "Spec", "did you mean spec?"},
		{`{"spce":{}}`, "spce", "did you mean spec?"},
		{`{"replicas":1}`, "replicas", "did you mean spec.replicas?"},
		{`{"spec":{},"spec":{}}`, "spec", "stands twice"},
		{`{"metadata":{"labels":{}}}`, "metadata.labels", "known here: name, resourceVersion"},
		{`{"metadata":{"nam":"a"}}`, "metadata.nam", "did you mean metadata.name?"},
		{`{"metadata":{"resourceVersion":"7"}}`, "metadata.resourceVersion", `not "7"`},
		{`{"metadata":[]}`, "metadata", "not an array"},
		{spec(`"replica":1`), "spec.replica", "did you mean spec.replicas?"},
		{spec(`"messages":1`), "spec.messages", "did you mean spec.limits.messages?"},
		{spec(`"limits":{"message":1}`), "spec.limits.message", "did you mean spec.limits.messages?"},
		{spec(`"limits":{"messages":1,"messages":2}`), "spec.limits.messages", "stands twice"},
		{spec(`"limits":{"messages":-1}`), "spec.limits.messages", "whole number from 0"},
		{spec(`"limits":{"messages":1.5}`), "spec.limits.messages", "whole number"},
		{spec(`"limits":{"messages":1e3}`), "spec.limits.messages", "whole number"},
		{spec(`"limits":{"bytes":18446744073709551616}`), "spec.limits.bytes", "18446744073709551615"},
		{spec(`"limits":{"bytes":` + strings.Repeat("9", 999) + `}`), "spec.limits.bytes", "…"},
		{spec(`"limits":{"messages":"1"}`), "spec.limits.messages", "a number is expected"},
		{spec(`"limits":null`), "spec.limits", "null is no value"},
		{spec(`"replicas":true`), "spec.replicas", "not true"},
		{spec(`"drainDeadline":300`), "spec.drainDeadline", `"30s"`},
		{spec(`"drainDeadline":"soon"`), "spec.drainDeadline", "soon"},
		{spec(`"placement":{"nodes":["a",7]}`), "spec.placement.nodes[1]", "not 7"},
		{spec(`"placement":{"nodes":{}}`), "spec.placement.nodes", "an array is expected"},
		{spec(`"placement":{"node":[]}`), "spec.placement.node", "did you mean spec.placement.nodes?"},
	} {
		e := r.refused(http.StatusBadRequest, "E5003", "PUT", "/v1/queues/a", c.body)
		if e.Field != c.field || !strings.Contains(e.Detail, c.hint) {
			t.Errorf("%s: field %q, %s; want field %q and %q", clip(c.body), e.Field, e.Detail, c.field, c.hint)
		}
		if len(e.Message) > 1000 {
			t.Errorf("%s: the message has %d bytes", clip(c.body), len(e.Message))
		}
	}
	long := strings.Repeat("k", 5000)
	for _, c := range []struct{ body, field, hint string }{
		{`{"spec":{"policy":{"a":1}}}`, "spec.policy.a", "a string is expected"},
		{`{"spec":{"policy":{"a":"1","a":"2"}}}`, "spec.policy.a", "stands twice"},
		{`{"spec":{"policy":["a"]}}`, "spec.policy", "an object is expected"},
		{`{"spec":{"policy":{"` + long + `":1}}}`, "spec.policy." + long[:68] + "…", "string"},
	} {
		e := r.refused(http.StatusBadRequest, "E5003", "PUT", "/v1/connectors/a", c.body)
		if e.Field != c.field || !strings.Contains(e.Detail, c.hint) {
			t.Errorf("%s: field %q, %s", clip(c.body), e.Field, e.Detail)
		}
	}
	if len(r.asked) != 0 {
		t.Errorf("the node was asked %+v", r.asked)
	}
}

// Escapes that are whole characters are those characters.
func TestEscapes(t *testing.T) {
	r := newRig(t, Options{})
	for body, want := range map[string]string{
		`"\ud83d\ude00"`: "😀", `"a\u002fb"`: "a/b", `"\\ud800"`: `\ud800`, `"\"\/"`: `"/`, `"\uFFFD"`: "\uFFFD",
		`"\u00fc"`: "ü",
	} {
		got := decoded[Queue](t, r.want(http.StatusCreated, "POST", "/v1/queues", `{"metadata":{"name":`+body+`},"spec":{}}`))
		if got.Metadata.Name != want {
			t.Errorf("%s is %q", body, got.Metadata.Name)
		}
	}
}

// A body beyond its bound is refused whether it says its length or not, and what is read of it is bounded.
func TestBodyBound(t *testing.T) {
	r := newRig(t, Options{})
	pad := func(n int) string { return `{"spec":{}}` + strings.Repeat(" ", n-len(`{"spec":{}}`)) }
	r.want(http.StatusCreated, "PUT", "/v1/queues/a", pad(bodyMax))
	r.refused(http.StatusRequestEntityTooLarge, "E5003", "PUT", "/v1/queues/b", pad(bodyMax+1))

	endless := &spaces{left: 1 << 40}
	req := sent("PUT", "/v1/queues/b", endless)
	req.ContentLength = -1
	if a := r.serve(req); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body without a length: status %d: %s", a.status, a.body)
	}
	if read := 1<<40 - endless.left; read > 2*bodyMax {
		t.Errorf("%d bytes were read", read)
	}
	said := &spaces{left: 1 << 40}
	req = sent("PUT", "/v1/queues/b", said)
	req.ContentLength = 1 << 40
	if a := r.serve(req); a.status != http.StatusRequestEntityTooLarge || said.left != 1<<40 {
		t.Errorf("a body of 1 TiB: status %d, %d bytes were read", a.status, 1<<40-said.left)
	}
	req = sent("PUT", "/v1/queues/b", io.MultiReader(strings.NewReader(`{"spec":`), broken{}))
	if a := r.serve(req); a.status != http.StatusBadRequest {
		t.Errorf("a body that breaks off: status %d: %s", a.status, a.body)
	}
	r.refused(http.StatusUnsupportedMediaType, "E5009", "PUT", "/v1/queues/b", `{"spec":{}}`, "Content-Encoding", "gzip")
	if len(r.asked) != 1 {
		t.Errorf("the node was asked %+v", r.asked)
	}
}

type spaces struct{ left int }

func (s *spaces) Read(b []byte) (int, error) {
	n := min(len(b), s.left)
	for i := range n {
		b[i] = ' '
	}
	s.left -= n
	return n, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("reset") }

// What a body makes the decoder allocate is bounded by its length, whatever it holds.
func TestDecoderIsBounded(t *testing.T) {
	for name, body := range map[string]string{
		"open":     strings.Repeat("[", bodyMax),
		"objects":  strings.Repeat(`{"status":`, bodyMax/10),
		"nodes":    `{"spec":{"placement":{"nodes":[` + strings.Repeat(`"",`, bodyMax/3-20) + `""]}}}`,
		"status":   `{"status":[` + strings.Repeat(`1,`, bodyMax/2-10) + `1]}`,
		"policy":   `{"spec":{"policy":{"` + strings.Repeat("k", bodyMax-100) + `":"v"}}}`,
		"unknown":  `{"` + strings.Repeat("k", bodyMax-100) + `":"v"}`,
		"escapes":  `{"kind":"` + strings.Repeat(`\u0041`, bodyMax/6-10) + `"}`,
		"keys":     `{"spec":{"policy":{` + keys(60000) + `}}}`,
		"trailing": `{"spec":{}}` + strings.Repeat("\n", bodyMax-20),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeMutation(control.Create, control.KindConnector, nil, nil, []byte(body))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 96*bodyMax {
			t.Errorf("%s: %d bytes of %d were allocated (%v)", name, used, len(body), err)
		}
	}
}

func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%x":"v",`, i)
	}
	return b.String() + `"end":""`
}

// Every field of a spec can be sent, and none has a type that the decoder cannot read.
func TestEveryFieldIsRead(t *testing.T) {
	q := control.QueueSpec{
		Replicas: 3, Durability: control.Written, Limits: control.QueueLimits{Messages: 1, Bytes: 2, MessageBytes: 3},
		Placement:     control.PlacementSpec{Nodes: []string{"a", "b"}, PreferredLeader: "a"},
		DrainDeadline: control.Duration(90 * time.Second),
	}
	c := control.ConnectorSpec{
		Protocol: "p", Direction: "d", Address: "a", Policy: map[string]string{"k": "v"}, Queue: "q",
		Evidence: "e", Loss: "l",
	}
	for _, v := range []any{q, c} {
		for i := range reflect.ValueOf(v).NumField() {
			if reflect.ValueOf(v).Field(i).IsZero() {
				t.Errorf("%T: the test leaves %s out", v, reflect.TypeOf(v).Field(i).Name)
			}
		}
	}
	body, err := json.Marshal(request[control.QueueSpec]{Spec: &q, Metadata: requestMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeMutation(control.Create, control.KindQueue, nil, nil, body)
	if err != nil || !reflect.DeepEqual(*m.Queue, q) {
		t.Errorf("%s: %+v, %v", body, m.Queue, err)
	}
	body, err = json.Marshal(request[control.ConnectorSpec]{Spec: &c, Metadata: requestMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err = decodeMutation(control.Create, control.KindConnector, nil, nil, body)
	if err != nil || !reflect.DeepEqual(*m.Connector, c) {
		t.Errorf("%s: %+v, %v", body, m.Connector, err)
	}
}

// Everything an answer shows may be sent back: a field that is new in a resource is new in a request too.
func TestAnswersAreRequests(t *testing.T) {
	pairs := [][2]reflect.Type{
		{reflect.TypeFor[Queue](), reflect.TypeFor[request[control.QueueSpec]]()},
		{reflect.TypeFor[control.Queue](), reflect.TypeFor[request[control.QueueSpec]]()},
		{reflect.TypeFor[Connector](), reflect.TypeFor[request[control.ConnectorSpec]]()},
		{reflect.TypeFor[control.Connector](), reflect.TypeFor[request[control.ConnectorSpec]]()},
		{reflect.TypeFor[control.Metadata](), reflect.TypeFor[requestMeta]()},
	}
	for _, p := range pairs {
		known := fieldsOf(p[1])
		for name := range fieldsOf(p[0]) {
			if _, ok := known[name]; !ok && name != "" {
				t.Errorf("%v answers %q, and %v does not take it", p[0], name, p[1])
			}
		}
	}
}

// FuzzRequestJSON: no body of a request makes the decoder panic, and what it takes comes back from its own text.
func FuzzRequestJSON(f *testing.F) {
	for _, s := range []string{
		`{"kind":"Queue","metadata":{"name":"a"},"spec":{"replicas":1,"limits":{"bytes":9},"placement":{"nodes":["n"]}}}`,
		`{"metadata":{"name":"a","resourceVersion":7,"uid":3},"spec":{"drainDeadline":"1m30s"},"status":{"x":[null]}}`,
		`{"kind":"Queue","metadata":{"name":"a"},"spec":{},"live":null,"changed":true}`,
		`{"metadata":{"name":"\ud83d\ude00"},"spec":` + connectorSpec + `}`,
		`{"spec":{"policy":{"":"","a":"b"}}}`, `{"spec":{"placement":{"nodes":[]}}}`, `{"\u0073pec":{}}`,
		`{}{}`, `[[[`, `"\ud800`,
		`{"spec":{"limits":{"messages":18446744073709551615}}}`, `{"metadata":{"name":"` + "\xff" + `"}}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, queue bool) {
		kind := control.KindConnector
		if queue {
			kind = control.KindQueue
		}
		m, err := decodeMutation(control.Create, kind, nil, nil, body)
		var no *refusal
		switch {
		case errors.As(err, &no):
			if b := encode(no.body()); !json.Valid(b) || len(b) > 8000 {
				t.Fatalf("refused with %s", b)
			}
			return
		case err != nil:
			t.Fatalf("refused with %T", err)
		}
		var again any
		meta := requestMeta{Name: m.Name}
		if m.Expected != nil {
			meta.ResourceVersion = *m.Expected
		}
		if queue {
			again = request[control.QueueSpec]{Kind: kind, Metadata: meta, Spec: m.Queue}
		} else {
			again = request[control.ConnectorSpec]{Kind: kind, Metadata: meta, Spec: m.Connector}
		}
		got, err := decodeMutation(control.Create, kind, nil, nil, encode(again))
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("%s\nis %+v\nand then %+v, %v", body, m, got, err)
		}
		// The standard decoder, which is laxer, reads the same.
		if queue {
			var std struct{ Spec *control.QueueSpec }
			if err := json.Unmarshal(body, &std); err != nil || std.Spec == nil || !same(*std.Spec, *m.Queue) {
				t.Fatalf("%s\nis %+v\nand to encoding/json %+v, %v", body, *m.Queue, std.Spec, err)
			}
		}
	})
}

func same(a, b control.QueueSpec) bool {
	if len(a.Placement.Nodes) == 0 {
		a.Placement.Nodes = nil
	}
	return reflect.DeepEqual(a, b)
}
