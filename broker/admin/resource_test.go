package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
)

const connectorSpec = `{"protocol":"file","direction":"sink","address":"/var/out","queue":"a","evidence":"written",` +
	`"loss":"none","policy":{"rotate":"day"}}`

// T-14, T-22, T-23: a change is answered with what was committed, at the index of its entry.
func TestApplyMakesChangesAndRepeats(t *testing.T) {
	r := newRig(t, Options{})
	made := decoded[Queue](t, r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`))
	m := made.Metadata
	if m.UID != r.version() || m.ResourceVersion != m.UID || m.Generation != 1 || made.Spec.Replicas != 1 {
		t.Errorf("made as %+v", made)
	}
	if made.Changed == nil || !*made.Changed || made.Status.Phase != control.Pending || made.Live != nil {
		t.Errorf("what is wanted stands, and nothing more: %+v", made)
	}
	again := decoded[Queue](t, r.want(http.StatusOK, "PUT", "/v1/queues/a", `{"spec":{}}`))
	if *again.Changed || again.Metadata != m {
		t.Errorf("T-17: the same again is %+v, was %+v", again.Metadata, m)
	}
	changed := decoded[Queue](t, r.want(http.StatusOK, "PUT", "/v1/queues/a", `{"spec":{"limits":{"messages":9}}}`))
	if !*changed.Changed || changed.Metadata.Generation != 2 || changed.Metadata.ResourceVersion != r.version() ||
		changed.Metadata.UID != m.UID || changed.Spec.Limits.Messages != 9 {
		t.Errorf("changed to %+v", changed)
	}
	got := decoded[Queue](t, r.want(http.StatusOK, "GET", "/v1/queues/a", ""))
	if changed.Changed = nil; !reflect.DeepEqual(got, changed) {
		t.Errorf("got %+v, stands %+v", got, changed)
	}
}

// T-18: create refuses a taken name; two kinds share one.
func TestCreate(t *testing.T) {
	r := newRig(t, Options{})
	r.want(http.StatusCreated, "POST", "/v1/queues", `{"kind":"Queue","metadata":{"name":"a"},"spec":{}}`)
	e := r.refused(http.StatusConflict, "E5002", "POST", "/v1/queues", `{"metadata":{"name":"a"},"spec":{"replicas":1}}`)
	if now, ok := e.Now.(map[string]any); !ok || now["kind"] != "Queue" {
		t.Errorf("what stands is %v", e.Now)
	}
	c := decoded[Connector](t, r.want(http.StatusCreated, "POST", "/v1/connectors",
		`{"kind":"Connector","metadata":{"name":"a"},"spec":`+connectorSpec+`}`))
	if c.Spec.Policy["rotate"] != "day" || c.Kind != control.KindConnector {
		t.Errorf("made %+v", c)
	}
	e = r.refused(http.StatusBadRequest, "E5003", "POST", "/v1/queues", `{"spec":{}}`)
	if e.Field != "metadata.name" {
		t.Errorf("refused for %q", e.Field)
	}
}

// T-15, T-16: of two changes that expect the same version one wins, and the loser is told both versions.
func TestExpectedVersion(t *testing.T) {
	r := newRig(t, Options{})
	v := decoded[Queue](t, r.want(http.StatusCreated, "PUT", "/v1/queues/a?expectedVersion=0", `{"spec":{}}`)).
		Metadata.ResourceVersion
	spec := func(n int) string { return fmt.Sprintf(`{"spec":{"limits":{"messages":%d}}}`, n) }
	target := fmt.Sprintf("/v1/queues/a?expectedVersion=%d", v)
	won := decoded[Queue](t, r.want(http.StatusOK, "PUT", target, spec(1))).Metadata.ResourceVersion
	e := r.refused(http.StatusConflict, "E5001", "PUT", target, spec(2))
	for _, n := range []uint64{v, won} {
		if !strings.Contains(e.Detail, fmt.Sprint(n)) {
			t.Errorf("the conflict does not name version %d: %s", n, e.Detail)
		}
	}
	if meta := e.Now.(map[string]any)["metadata"].(map[string]any); meta["resourceVersion"] != float64(won) {
		t.Errorf("what stands is %v", e.Now)
	}
	r.refused(http.StatusConflict, "E5001", "PUT", "/v1/queues/a?expectedVersion=0", spec(2))
	r.refused(http.StatusConflict, "E5001", "PUT", "/v1/queues/none?expectedVersion=3", spec(2))
	r.refused(http.StatusConflict, "E5001", "DELETE", target, "")

	// In the body it is the same; 0 there says nothing.
	body := func(v uint64) string { return fmt.Sprintf(`{"metadata":{"resourceVersion":%d},"spec":{}}`, v) }
	r.refused(http.StatusConflict, "E5001", "PUT", "/v1/queues/a", body(v))
	r.want(http.StatusOK, "PUT", "/v1/queues/a", body(0))
	at := r.version()
	r.want(http.StatusOK, "PUT", fmt.Sprintf("/v1/queues/a?expectedVersion=%d", at), body(at))
	e = r.refused(http.StatusBadRequest, "E5003", "PUT", fmt.Sprintf("/v1/queues/a?expectedVersion=%d", at), body(at+1))
	if e.Field != "metadata.resourceVersion" {
		t.Errorf("refused for %q", e.Field)
	}
	if last := r.asked[len(r.asked)-1]; *last.Expected != at {
		t.Errorf("two versions reached the registry: %+v", last)
	}
}

// What get prints can be applied: status and what the node sets are passed over.
func TestApplyWhatGetGave(t *testing.T) {
	r := newRig(t, Options{})
	uid := decoded[Queue](t, r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`)).Metadata.UID
	r.want(http.StatusCreated, "PUT", "/v1/connectors/c", `{"spec":`+connectorSpec+`}`)
	r.apply(control.Command{Rules: 1, Observe: &control.Observe{
		Kind: control.KindQueue, UID: uid, Generation: 1, Status: control.Status{
			ObservedGeneration: 1, Phase: control.Ready,
			Placement: []control.Replica{{Node: "n", Disk: "d", Owner: true}}, Conditions: []control.Condition{},
		},
	}})
	r.live[uid] = Live{Leader: "n1", Term: 1, In: 3, Ready: 3}
	for _, target := range []string{"/v1/queues/a", "/v1/connectors/c"} {
		got := r.want(http.StatusOK, "GET", target, "")
		back := r.want(http.StatusOK, "PUT", target, string(got.body))
		if !strings.Contains(string(back.body), `"changed":false`) {
			t.Errorf("%s: its own text changed it: %s", target, back.body)
		}
		r.want(http.StatusOK, "PUT", target, string(back.body)) // and what PUT gave
	}
}

// T-20: a deletion is an intent that is seen; asked again it may only end sooner.
func TestDelete(t *testing.T) {
	r := newRig(t, Options{})
	r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`)
	q := decoded[Queue](t, r.want(http.StatusAccepted, "DELETE", "/v1/queues/a?drainDeadline=30s", ""))
	if q.Metadata.DrainUntil-q.Metadata.DeletionTimestamp != 30_000 || q.Status.Phase != control.Deleting || !*q.Changed {
		t.Errorf("deleted as %+v", q)
	}
	if q = decoded[Queue](t, r.want(http.StatusAccepted, "DELETE", "/v1/queues/a?drainDeadline=1h", "")); *q.Changed {
		t.Errorf("the end of draining went away: %+v", q)
	}
	if q = decoded[Queue](t, r.want(http.StatusAccepted, "DELETE", "/v1/queues/a?drainDeadline=0s", "")); !*q.Changed {
		t.Errorf("the end of draining did not come nearer: %+v", q)
	}
	if got := decoded[Queue](t, r.want(http.StatusOK, "GET", "/v1/queues/a", "")); got.Status.Phase != control.Deleting {
		t.Errorf("get shows %+v", got)
	}
	r.refused(http.StatusConflict, "E5005", "PUT", "/v1/queues/a", `{"spec":{}}`)
	r.refused(http.StatusConflict, "E5002", "POST", "/v1/queues", `{"metadata":{"name":"a"},"spec":{}}`)
	r.refused(http.StatusNotFound, "E5004", "DELETE", "/v1/queues/none", "")
	r.refused(http.StatusBadRequest, "E5003", "DELETE", "/v1/queues/a", "{}")
	r.refused(http.StatusBadRequest, "E5009", "DELETE", "/v1/queues/a?drainDeadline=soon", "")
	r.refused(http.StatusBadRequest, "E5009", "DELETE", "/v1/queues/a?drainDeadline=-1s", "")
	if e := r.refused(http.StatusBadRequest, "E5003", "DELETE", "/v1/queues/a?drainDeadline=1000h", ""); e.Field !=
		"drainDeadline" {
		t.Errorf("refused for %q", e.Field)
	}

	// T-19: the record goes; a queue of that name is another one.
	r.apply(control.Command{Rules: 1, Remove: &control.Remove{Kind: control.KindQueue, UID: q.Metadata.UID}})
	r.refused(http.StatusNotFound, "E5004", "GET", "/v1/queues/a", "")
	again := decoded[Queue](t, r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`))
	if again.Metadata.UID == q.Metadata.UID || again.Metadata.Generation != 1 {
		t.Errorf("made again as %+v", again.Metadata)
	}
}

// What the registry refuses is answered with the field and the reason, and nothing is changed.
func TestInvalid(t *testing.T) {
	r := newRig(t, Options{})
	for _, c := range []struct{ target, body, field string }{
		{"/v1/queues/a", `{"spec":{"replicas":2}}`, "spec.replicas"},
		{"/v1/queues/a", `{"spec":{"replicas":-1}}`, "spec.replicas"},
		{"/v1/queues/a", `{"spec":{"durability":"memory"}}`, "spec.durability"},
		{"/v1/queues/a", `{"spec":{"drainDeadline":"9000h"}}`, "spec.drainDeadline"},
		{"/v1/queues/a%00", `{"spec":{}}`, "metadata.name"},
		{"/v1/queues/" + strings.Repeat("n", 513), `{"spec":{}}`, "metadata.name"},
		{"/v1/connectors/a", `{"spec":{}}`, "spec.protocol"},
		{
			"/v1/connectors/a", `{"spec":` + strings.Replace(connectorSpec, `"evidence":"written",`, "", 1) + `}`,
			"spec.evidence",
		},
	} {
		if e := r.refused(http.StatusBadRequest, "E5003", "PUT", c.target, c.body); e.Field != c.field || e.Now != nil ||
			!strings.Contains(e.Message, c.field) || !strings.Contains(e.Message, "Nothing was changed.") {
			t.Errorf("%s %s: %+v", clip(c.target), c.body, e)
		}
	}
	if reg := r.Registry(); len(reg.Queues)+len(reg.Connectors) != 0 {
		t.Errorf("the registry holds %+v", reg)
	}
}

// The registry at its bound refuses one more, and says so.
func TestRegistryFull(t *testing.T) {
	r := newRig(t, Options{})
	for i := range control.QueuesMax {
		r.apply(control.Command{Mutation: &control.Mutation{
			Verb: control.Create, Kind: control.KindQueue, Name: fmt.Sprint("q", i), Queue: new(control.QueueSpec), At: 1,
		}})
	}
	e := r.refused(http.StatusConflict, "E5006", "PUT", "/v1/queues/more", `{"spec":{}}`)
	if e.Now != nil || e.Retry != string(wire.RetryFix) {
		t.Errorf("%+v", e)
	}
	r.want(http.StatusOK, "PUT", "/v1/queues/q1", `{"spec":{}}`)
}

// Every reason that control has is answered in its own way.
func TestReasonsAreAnswered(t *testing.T) {
	for _, reason := range []control.Reason{
		control.Conflict, control.Exists, control.NotFound, control.Invalid, control.Removing, control.TooMany,
	} {
		refusedBy(&control.Error{Reason: reason}, nil).body()
	}
}

// Names are one segment, escaped as they like, and come back byte for byte.
func TestNames(t *testing.T) {
	r := newRig(t, Options{})
	names := []string{"a/b", "..", ".", "//", "a b", "ü", "%2F", "?x=1", "#", "a;b", `"`, "+", "queues", "a\u2028b", "<b>"}
	for _, name := range names {
		target := "/v1/queues/" + url.PathEscape(name)
		made := decoded[Queue](t, r.want(http.StatusCreated, "PUT", target, `{"spec":{}}`))
		got := decoded[Queue](t, r.want(http.StatusOK, "GET", target, ""))
		if made.Metadata.Name != name || got.Metadata.Name != name {
			t.Errorf("%q is %q and %q", name, made.Metadata.Name, got.Metadata.Name)
		}
	}
	if n := len(r.Registry().Queues); n != len(names) {
		t.Errorf("%d queues of %d names", n, len(names))
	}
	for _, target := range []string{"/v1/queues/", "/v1/queues/a/b", "/v1/queues/%FF", "/v1/queues/a/"} {
		r.refused(http.StatusBadRequest, "E5009", "GET", target, "")
		r.refused(http.StatusBadRequest, "E5009", "PUT", target, `{"spec":{}}`)
	}
	e := r.refused(http.StatusBadRequest, "E5003", "PUT", "/v1/queues/a", `{"metadata":{"name":"b"},"spec":{}}`)
	if e.Field != "metadata.name" {
		t.Errorf("refused for %q", e.Field)
	}
}

// Lists are whole or in parts, and every part goes on where the last one ended.
func TestLists(t *testing.T) {
	r := newRig(t, Options{})
	type list struct {
		Kind            string
		ResourceVersion uint64
		Items           []Queue
		Next            string
	}
	if l := decoded[list](t, r.want(http.StatusOK, "GET", "/v1/queues", "")); l.Kind != "QueueList" || l.Items == nil {
		t.Errorf("an empty list is %+v", l)
	}
	var want []string
	for i := range 7 {
		name := fmt.Sprintf(`q<%d"`, i)
		want = append(want, name)
		r.want(http.StatusCreated, "PUT", "/v1/queues/"+url.PathEscape(name), `{"spec":{}}`)
	}
	for limit := range 9 {
		var got []string
		target, parts := "/v1/queues", 0
		if limit > 0 {
			target += fmt.Sprintf("?limit=%d", limit)
		}
		for next := target; next != ""; parts++ {
			l := decoded[list](t, r.want(http.StatusOK, "GET", next, ""))
			for _, q := range l.Items {
				got = append(got, q.Metadata.Name)
			}
			if l.ResourceVersion != r.version() {
				t.Errorf("a list of version %d, not %d", l.ResourceVersion, r.version())
			}
			if next = ""; l.Next != "" {
				next = target + "&after=" + url.QueryEscape(l.Next)
			}
		}
		if !reflect.DeepEqual(got, want) || limit > 0 && parts != (6+limit)/limit {
			t.Errorf("limit %d: %d parts with %q", limit, parts, got)
		}
	}
	l := decoded[list](t, r.want(http.StatusOK, "GET", "/v1/queues?after=q%3C2~", "")) // there is none of that name
	if len(l.Items) != 4 || l.Items[0].Metadata.Name != want[3] {
		t.Errorf("after a name that is not there: %+v", l.Items)
	}
	r.refused(http.StatusBadRequest, "E5009", "GET", "/v1/queues?limit=0", "")
	r.refused(http.StatusBadRequest, "E5009", "GET", "/v1/queues?limit=many", "")
}

// Leader, term and depth are merged in when read, and never kept.
func TestLive(t *testing.T) {
	r := newRig(t, Options{})
	uid := decoded[Queue](t, r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`)).Metadata.UID
	want := Live{
		Leader: "n1", Term: 3, In: 10, Ready: 2, Unsettled: 1, Accepted: 4, Rejected: 2, Purged: 1, Trouble: "read only",
	}
	r.live[uid] = want
	before := r.version()
	got := decoded[Queue](t, r.want(http.StatusOK, "GET", "/v1/queues/a", ""))
	if got.Live == nil || *got.Live != want {
		t.Errorf("live is %+v", got.Live)
	}
	if list := r.want(http.StatusOK, "GET", "/v1/queues", ""); !strings.Contains(string(list.body), `"leader":"n1"`) {
		t.Errorf("the list is %s", list.body)
	}
	if r.version() != before {
		t.Error("reading made an entry")
	}
}

// What the node says instead of a result decides between "not done" and "perhaps".
func TestNotCommittedOrIndeterminate(t *testing.T) {
	r := newRig(t, Options{})
	r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`)
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{&wire.Error{Code: wire.NotCommitted, Detail: "no quorum"}, 503, "E5007"},
		{&wire.Error{Code: wire.Stopping}, 503, "E5007"},
		{&wire.Error{Code: wire.ReadOnly}, 503, "E5007"},
		{&wire.Error{Code: wire.DiskFull, Detail: "9 bytes are free"}, 503, "E5007"},
		{fmt.Errorf("control: propose: %w", &wire.Error{Code: wire.Overloaded}), 503, "E5007"},
		{&wire.Error{Code: wire.MutationIndeterminate, Detail: "no answer"}, 504, "E5008"},
		{&wire.Error{Code: wire.StoreFailed}, 504, "E5008"},
		{&wire.Error{Code: 999999}, 504, "E5008"},
		{context.DeadlineExceeded, 504, "E5008"},
		{errors.New("anything"), 504, "E5008"},
	} {
		r.before = func(context.Context) error { return c.err }
		e := r.refused(c.status, c.code, "PUT", "/v1/queues/a", `{"spec":{"limits":{"messages":1}}}`)
		if now, ok := e.Now.(map[string]any); !ok || now["kind"] != "Queue" {
			t.Errorf("%v: what stands is %v", c.err, e.Now)
		}
		var known *wire.Error
		if errors.As(c.err, &known) && known.Detail != "" && !strings.Contains(e.Detail, known.Detail) {
			t.Errorf("%v: the detail is %q", c.err, e.Detail)
		}
		if strings.Contains(e.Message, "message was not stored") {
			t.Errorf("%v: speaks of messages: %s", c.err, e.Message)
		}
	}
	r.before = func(context.Context) error { return &wire.Error{Code: wire.Stopping} }
	if a := r.do("DELETE", "/v1/queues/a", ""); a.header.Get("Retry-After") == "" {
		t.Error("503 does not say when to come again")
	}
	// The entry is applied and its answer is lost: 504, and the same again is safe.
	r.before = nil
	r.after = func(context.Context) error { return &wire.Error{Code: wire.MutationIndeterminate} }
	body := `{"spec":{"limits":{"messages":5}}}`
	r.refused(http.StatusGatewayTimeout, "E5008", "PUT", "/v1/queues/a", body)
	r.after = nil
	q := decoded[Queue](t, r.want(http.StatusOK, "PUT", "/v1/queues/a", body))
	if *q.Changed || q.Spec.Limits.Messages != 5 {
		t.Errorf("again it is %+v", q)
	}
}

// A mutation that is not committed in time is indeterminate, and so is one whose client has gone.
func TestMutationTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.before = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		begin := time.Now() // the bubble's clock
		r.refused(http.StatusGatewayTimeout, "E5008", "PUT", "/v1/queues/a", `{"spec":{}}`)
		if d := time.Since(begin); d != 30*time.Second {
			t.Errorf("answered after %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		req := sent("PUT", "/v1/queues/a", strings.NewReader(`{"spec":{}}`)).WithContext(ctx)
		if a := r.serve(req); a.status != http.StatusGatewayTimeout || time.Since(begin) != 30*time.Second {
			t.Errorf("status %d after %v", a.status, time.Since(begin))
		}
	})
}

// The mutations under way are bounded; what is too many is not done, and reading goes on.
func TestMutationsAreBounded(t *testing.T) {
	const most = 3
	r := newRig(t, Options{MutationsMax: most})
	in, out := make(chan struct{}), make(chan struct{})
	r.before = func(context.Context) error {
		in <- struct{}{}
		<-out
		return nil
	}
	var wg sync.WaitGroup
	for i := range most {
		wg.Go(func() {
			if a := r.do("PUT", fmt.Sprintf("/v1/queues/q%d", i), `{"spec":{}}`); a.status != http.StatusCreated {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
		<-in
	}
	r.refused(http.StatusServiceUnavailable, "E5007", "PUT", "/v1/queues/x", `{"spec":{}}`)
	r.refused(http.StatusServiceUnavailable, "E5007", "DELETE", "/v1/queues/x", "")
	r.want(http.StatusOK, "GET", "/v1/queues", "")
	close(out)
	wg.Wait()
	r.before = nil
	r.want(http.StatusCreated, "PUT", "/v1/queues/x", `{"spec":{}}`)
}
