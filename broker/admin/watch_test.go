package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weida/broker/control"
)

// sse reads the events of one watch.
type sse struct {
	t    *testing.T
	conn net.Conn
	body *bufio.Reader
	last uint64 // the last id
}

// told is one event as a client gets it.
type told struct {
	Event
	id     uint64 // 0: none
	object Queue
}

// watching opens a watch over a connection of its own.
func watching(t *testing.T, conn net.Conn, target string, headers ...string) *sse {
	t.Helper()
	req := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", target, strings.Join(headers, "\r\n"))
	if _, err := io.WriteString(conn, req); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != eventKind {
		t.Fatalf("%s: %s %v", target, res.Status, res.Header)
	}
	return &sse{t: t, conn: conn, body: bufio.NewReader(res.Body)}
}

// next is the next event that is no comment; nil where the stream ends.
func (s *sse) next() *told {
	s.t.Helper()
	var e told
	for {
		line, err := s.body.ReadString('\n')
		if err != nil {
			return nil
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			if e.id, err = strconv.ParseUint(value, 10, 64); err != nil {
				s.t.Fatal(err)
			}
		case "event":
			e.Type = EventType(value)
		case "data":
			typ := e.Type
			e.Object = &e.object
			if err := json.Unmarshal([]byte(value), &e.Event); err != nil || e.Type != typ {
				s.t.Fatalf("%s of %s, %v", value, typ, err)
			}
		case "":
			if e.Type == "" {
				continue // a comment has ended
			}
			if e.id != 0 {
				s.last = e.id
			}
			return &e
		}
	}
}

// change makes a random change to the queues of a rig.
func (r *rig) randomly(rng *rand.Rand) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := string(rune('a' + rng.IntN(4)))
	q, there := r.state.Queue(name)
	switch n := rng.IntN(4); {
	case n == 0 && there && q.Metadata.DeletionTimestamp != 0:
		r.apply(control.Command{Rules: 1, Remove: &control.Remove{Kind: control.KindQueue, UID: q.Metadata.UID}})
	case n == 0:
		r.apply(control.Command{Mutation: &control.Mutation{
			Verb: control.Delete, Kind: control.KindQueue, Name: name, At: 1,
		}})
	case n == 1:
		r.apply(control.Command{Mutation: &control.Mutation{
			Verb: control.Apply, Kind: control.KindConnector, Name: name, At: 1, Connector: &control.ConnectorSpec{
				Protocol: "file", Direction: "sink", Address: "/x", Queue: "a", Evidence: "none", Loss: "none",
			},
		}})
	default:
		r.apply(control.Command{Mutation: &control.Mutation{
			Verb: control.Apply, Kind: control.KindQueue, Name: name, At: 1,
			Queue: &control.QueueSpec{Limits: control.QueueLimits{Messages: rng.Uint64N(3)}},
		}})
	}
}

// B-229.3: whatever a watcher's connection does, following the events from any version leads to what stands, each
// change is told once, and in order.
func TestWatchFollows(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			r := newRig(t, Options{})
			dial := dialed(t, r.h)
			for range rng.IntN(20) {
				r.randomly(rng)
			}
			have := make(map[string]uint64) // version by name, as a list gives it
			reg := r.Registry()
			for _, q := range reg.Queues {
				have[q.Metadata.Name] = q.Metadata.ResourceVersion
			}
			at := reg.Version
			s := watching(t, dial(), fmt.Sprintf("/v1/queues?watch=1&resourceVersion=%d", at))
			s.last = at
			changes := 100
			for changes > 0 || len(r.behind(s.last)) > 0 {
				for range min(rng.IntN(10), changes) {
					r.randomly(rng)
					changes--
				}
				if len(r.behind(s.last)) == 0 {
					continue
				}
				if rng.IntN(5) == 0 { // the connection is cut, and the client goes on behind the last id
					s.conn.Close()
					from := s.last
					s = watching(t, dial(), "/v1/queues?watch=1", fmt.Sprintf("Last-Event-ID: %d\r\n", from))
					s.last = from
				}
				want := r.behind(s.last)[0]
				e := s.next()
				for e != nil && e.Type == Progress {
					e = s.next()
				}
				if e == nil || e.ResourceVersion != want.Version || e.Type != want.Type || e.id != want.Version ||
					e.object.Metadata.Name != want.Object.(*control.Queue).Metadata.Name {
					t.Fatalf("seed %d: told %+v, want version %d %s", seed, e, want.Version, want.Type)
				}
				if e.Type == Deleted {
					delete(have, e.object.Metadata.Name)
				} else {
					have[e.object.Metadata.Name] = e.object.Metadata.ResourceVersion
				}
			}
			stands := make(map[string]uint64)
			for _, q := range r.Registry().Queues {
				stands[q.Metadata.Name] = q.Metadata.ResourceVersion
			}
			if !maps.Equal(have, stands) {
				t.Fatalf("seed %d: followed to %v, stands %v", seed, have, stands)
			}
			s.conn.Close()
		})
	}
}

// behind is the history of queues behind a version.
func (r *rig) behind(v uint64) (list []Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.history {
		if c.Version > v && c.Kind == control.KindQueue {
			list = append(list, c)
		}
	}
	return list
}

// A version that is not held is refused with 410 at the start, and ends a watch that has fallen behind: a watcher is
// never told a part in silence.
func TestWatchCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		dial := dialed(t, r.h)
		for i := range 4 {
			r.want(http.StatusCreated, "PUT", fmt.Sprintf("/v1/queues/q%d", i), `{"spec":{}}`)
		}
		r.from = 6
		e := r.refused(http.StatusGone, "E5010", "GET", "/v1/queues?watch=1&resourceVersion=5", "")
		if !strings.Contains(e.Message, "list queues again") || !strings.Contains(e.Detail, "the last is 8") {
			t.Errorf("refused with %s", e.Message)
		}
		s := watching(t, dial(), "/v1/queues?watch=1&resourceVersion=6")
		if e := s.next(); e.ResourceVersion != 7 || e.Type != Added {
			t.Errorf("told %+v", e)
		}
		// The watcher does not read: the pipe holds the node up while the history moves on.
		synctest.Wait()
		s8 := s.next()
		if s8.ResourceVersion != 8 {
			t.Errorf("told %+v", s8)
		}
		r.mu.Lock()
		r.from, r.history = 100, nil
		r.index = 100
		r.mu.Unlock()
		r.want(http.StatusCreated, "PUT", "/v1/queues/late", `{"spec":{}}`)
		end := s.next()
		if end == nil || end.Type != Ended || end.Error == nil || end.Error.Code != "E5010" || end.id != 0 {
			t.Fatalf("ended with %+v", end)
		}
		if more := s.next(); more != nil {
			t.Errorf("and then %+v", more)
		}
	})
}

// A watch outlives the bounds of other requests, says that it is there, and how far it is where only others changed.
func TestWatchBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.want(http.StatusCreated, "PUT", "/v1/connectors/b", `{"spec":`+connectorSpec+`}`)
		s := watching(t, dialed(t, r.h)(), "/v1/queues?watch=1&resourceVersion=5")
		begin := time.Now() // the bubble's clock
		beats := 0
		go func() {
			time.Sleep(5 * time.Minute)
			r.want(http.StatusCreated, "PUT", "/v1/connectors/c", `{"spec":`+connectorSpec+`}`)
			time.Sleep(time.Minute)
			r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`)
		}()
		line := ""
		for !strings.HasPrefix(line, "id") {
			var err error
			if line, err = s.body.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, ":") {
				beats++
			}
		}
		if d := time.Since(begin); d < 5*time.Minute || beats < 29 {
			t.Errorf("the first id after %v and %d comments", d, beats)
		}
		if line != "id: 6\n" {
			t.Errorf("the connector's entry is told as %q", line)
		}
		for {
			e := s.next()
			if e == nil {
				t.Fatal("the watch ended")
			}
			if e.Type == Added {
				if e.ResourceVersion != 7 {
					t.Errorf("told %+v", e)
				}
				return
			}
		}
	})
}

// When the node stops, a watch is told, with where to go on.
func TestWatchEndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		s := watching(t, dialed(t, r.h)(), "/v1/connectors?watch=1")
		close(r.done)
		if e := s.next(); e == nil || e.Type != Ended || e.Error.Code != "E2004" {
			t.Errorf("told %+v", e)
		}
	})
}

// Watches are bounded, and one that has gone makes room.
func TestWatchesMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		dial := dialed(t, r.h)
		var first *sse
		for range watchesMax {
			s := watching(t, dial(), "/v1/queues?watch=1")
			if first == nil {
				first = s
			}
		}
		r.refused(http.StatusServiceUnavailable, "E2003", "GET", "/v1/queues?watch=1", "")
		first.conn.Close()
		time.Sleep(2 * watchBeat) // of the bubble: what is written to a connection that has gone tells
		watching(t, dial(), "/v1/queues?watch=1")
	})
}

// Of several changes of one entry only the last has an id, also where that is of another kind: a client that is cut off
// between them gets them again.
func TestWatchIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		q := &control.Queue{Kind: control.KindQueue}
		r.index = 30
		r.history = []Change{
			{10, Added, control.KindQueue, q},
			{10, Modified, control.KindQueue, q},
			{20, Added, control.KindQueue, q},
			{20, Modified, control.KindNode, &control.Node{}},
			{21, Modified, control.KindNode, &control.Node{}},
			{30, Deleted, control.KindQueue, q},
		}
		r.state.Apply(30, control.Command{Remove: &control.Remove{Kind: control.KindQueue, UID: 1}})
		s := watching(t, dialed(t, r.h)(), "/v1/queues?watch=1&resourceVersion=0")
		for _, want := range []struct {
			typ EventType
			id  uint64
		}{{Added, 0}, {Modified, 10}, {Added, 0}, {Progress, 20}, {Deleted, 30}} {
			if e := s.next(); e == nil || e.Type != want.typ || e.id != want.id {
				t.Errorf("told %+v, want %+v", e, want)
			}
		}
	})
}

// A version that another node has told of is waited for; one that never comes is refused, so that the client lists.
func TestWatchOfALaterVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		go func() {
			time.Sleep(watchCatchUp / 2) // of the bubble
			r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`)
			time.Sleep(watchCatchUp)
			r.want(http.StatusCreated, "PUT", "/v1/queues/b", `{"spec":{}}`)
		}()
		s := watching(t, dialed(t, r.h)(), "/v1/queues?watch=1&resourceVersion=5")
		if e := s.next(); e == nil || e.ResourceVersion != 6 {
			t.Errorf("told %+v", e)
		}
		e := r.refused(http.StatusGone, "E5010", "GET", "/v1/queues?watch=1&resourceVersion=99", "")
		if !strings.Contains(e.Detail, "is not there, the last is 6") {
			t.Errorf("%+v", e)
		}
	})
}

func TestWatchQuery(t *testing.T) {
	r := newRig(t, Options{})
	for target, hint := range map[string]string{
		"/v1/queues?watch=yes":                 "0 or 1",
		"/v1/queues?watch=1&limit=3":           "does not go with watch",
		"/v1/queues?watch=1&after=a":           "does not go with watch",
		"/v1/queues?watch=1&resourceVersion=x": "whole number",
		"/v1/queues?resourceVersion=1":         "goes with watch=1",
	} {
		if e := r.refused(http.StatusBadRequest, "E5009", "GET", target, ""); !strings.Contains(e.Detail, hint) {
			t.Errorf("%s: %s", target, e.Detail)
		}
	}
	r.want(http.StatusOK, "HEAD", "/v1/queues?watch=1", "")
}

// A dry run answers as the change would, with the same refusals, and nothing is proposed.
func TestDryRun(t *testing.T) {
	r := newRig(t, Options{})
	v := r.version()
	got := decoded[Queue](t, r.want(http.StatusOK, "PUT", "/v1/queues/a?dryRun=1", `{"spec":{"limits":{"messages":3}}}`))
	if got.DryRun == nil || !*got.DryRun || !*got.Changed || got.Spec.Replicas != 1 || got.Spec.Limits.Messages != 3 {
		t.Errorf("would be %+v", got)
	}
	r.refused(http.StatusNotFound, "E5004", "GET", "/v1/queues/a", "")
	r.refused(http.StatusBadRequest, "E5003", "PUT", "/v1/queues/a?dryRun=1", `{"spec":{"replicas":2}}`)
	r.refused(http.StatusNotFound, "E5004", "DELETE", "/v1/queues/a?dryRun=1", "")
	r.refused(http.StatusConflict, "E5001", "PUT", "/v1/queues/a?dryRun=1&expectedVersion=3", `{"spec":{}}`)
	r.want(http.StatusOK, "POST", "/v1/queues?dryRun=1", `{"metadata":{"name":"a"},"spec":{}}`)
	if r.version() != v || len(r.asked) != 0 {
		t.Errorf("a dry run proposed %+v", r.asked)
	}
	r.want(http.StatusCreated, "PUT", "/v1/queues/a", `{"spec":{}}`)
	same := decoded[Queue](t, r.want(http.StatusOK, "PUT", "/v1/queues/a?dryRun=1", `{"spec":{}}`))
	if *same.Changed {
		t.Errorf("the same again would change %+v", same)
	}
	gone := decoded[Queue](t, r.want(http.StatusOK, "DELETE", "/v1/queues/a?dryRun=1&drainDeadline=3s", ""))
	if gone.Metadata.DrainUntil != 1700000003000 || gone.Status.Phase != control.Deleting {
		t.Errorf("would be %+v", gone)
	}
	// What a dry run answered can be sent.
	text := r.want(http.StatusOK, "PUT", "/v1/queues/a?dryRun=1", `{"spec":{"limits":{"messages":9}}}`).body
	text = []byte(strings.Replace(string(text), `"resourceVersion":`+strconv.FormatUint(r.version()+1, 10),
		`"resourceVersion":0`, 1))
	now := decoded[Queue](t, r.want(http.StatusOK, "PUT", "/v1/queues/a", string(text)))
	if now.Spec.Limits.Messages != 9 || now.Metadata.DeletionTimestamp != 0 {
		t.Errorf("stands %+v", now)
	}
}
