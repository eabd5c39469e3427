package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"weida/broker"
)

// A node file never names a queue, and an unknown key is shown with the nearest known one (T-26).
func TestNodeFileKeys(t *testing.T) {
	for text, want := range map[string]string{
		"name: n1\nqueues: [demo]\n":       "queues are not configured in a node file",
		"name: n1\nlissten: 127.0.0.1:0\n": `did you mean "listen"?`,
		"name: n1\nadmins: x\n":            `did you mean "admin"?`,
	} {
		var f nodeFile
		err := decodeYAML("node.yaml", []byte(text), &f)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "nothing was started") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// The numbers of consensus are the node's, and what cannot be is refused before anything starts (T-55).
func TestConsensusOfANodeFile(t *testing.T) {
	var f nodeFile
	text := "name: n1\nconsensus:\n  election: 3s\n  heartbeat: 300ms\n  streams: 64\n"
	if err := decodeYAML("node.yaml", []byte(text), &f); err != nil {
		t.Fatal(err)
	}
	want := broker.Consensus{Election: 3 * time.Second, Heartbeat: 300 * time.Millisecond, Streams: 64}
	if got := f.Consensus.numbers(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	path := filepath.Join(t.TempDir(), "n1.yaml")
	text = "name: n1\ndata: data\nlisten: 127.0.0.1:0\nconsensus:\n  election: 200ms\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	err := serve(t.Context(), path, func(*broker.Node, *nodeFile) error { return errors.New("it started") })
	if err == nil || !strings.Contains(err.Error(), "three heartbeats") {
		t.Errorf("%v", err)
	}
}

// Any bytes are a node file or an error, and what was read is written in a form that reads the same.
func FuzzNodeFile(f *testing.F) {
	f.Add([]byte("name: n1\ndata: n1\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:0\n" +
		"trust:\n- fingerprint: sha256:00\n  role: admin\n"))
	f.Add([]byte("{name: n1, messageMax: 100}"))
	f.Add([]byte("name: &a [*a]"))
	f.Add([]byte("queues: [demo]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<12 {
			t.Skip("longer than it takes to find anything")
		}
		var file nodeFile
		if err := decodeYAML("node.yaml", b, &file); err != nil {
			return
		}
		again, err := yaml.Marshal(file)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", file, err)
		}
		var back nodeFile
		if err := decodeYAML("node.yaml", again, &back); err != nil {
			t.Fatalf("%q was written as %q: %v", b, again, err)
		}
		if len(file.Trust) == 0 {
			file.Trust = nil
		}
		if len(back.Trust) == 0 {
			back.Trust = nil
		}
		if !reflect.DeepEqual(file, back) {
			t.Fatalf("%+v came back as %+v by %q", file, back, again)
		}
	})
}

// What may stand as seeds (T-37).
func TestSeeds(t *testing.T) {
	one := func(i int) seedEntry {
		return seedEntry{fmt.Sprintf("n%d", i), fmt.Sprintf("h:%d", i), "sha256:" + strings.Repeat(fmt.Sprint(i), 64)}
	}
	three := []seedEntry{one(1), one(2), one(3)}
	with := func(change func(*seedEntry)) []seedEntry {
		list := slices.Clone(three)
		change(&list[1])
		return list
	}
	for _, row := range []struct {
		name  string
		seeds []seedEntry
		err   string
	}{
		{"none", nil, ""},
		{"one", three[:1], ""},
		{"two", three[:2], "two nodes are no cluster"},
		{"three", three, ""},
		{"others", []seedEntry{one(2), one(3), one(4)}, ""}, // one that joins later
		{"four", append(slices.Clone(three), one(4)), ""},
		{"a name twice", with(func(s *seedEntry) { s.Name = "n1" }), `seeds[1]: "n1" stands in seeds[0] already`},
		{"an address twice", with(func(s *seedEntry) { s.Address = "h:3" }), `seeds[2]: "h:3" stands in seeds[1]`},
		{"a key twice", with(func(s *seedEntry) { s.Fingerprint = three[0].Fingerprint }), "stands in seeds[0]"},
		{"no key", with(func(s *seedEntry) { s.Fingerprint = "" }), "seeds[1]: \"\" is no fingerprint"},
		{"no port", with(func(s *seedEntry) { s.Address = "h" }), "not of the form HOST:PORT"},
		{"no name", with(func(s *seedEntry) { s.Name = "" }), "it has no name"},
	} {
		err := (&nodeFile{Name: "n1", Seeds: row.seeds}).seeds()
		if (err != nil) != (row.err != "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// The next address is asked where nothing listens, and only there: what was sent is never sent again elsewhere.
func TestNextAddress(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	asked := 0
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked++
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	a := newAPI(gone.URL, cut.URL, gone.URL)
	_, _, err := a.do(t.Context(), http.MethodPut, "/v1/queues/a", nil, []byte("{}"))
	if status(err) != statusIndeterminate || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	fine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}")) // the test asked
	}))
	defer fine.Close()
	a = newAPI(gone.URL, fine.URL)
	for range 2 {
		if _, _, err := a.do(t.Context(), http.MethodGet, "/", nil, nil); err != nil || a.base() != fine.URL {
			t.Errorf("%s, %v", a.base(), err)
		}
	}
	_, _, err = newAPI(gone.URL, gone.URL).do(t.Context(), http.MethodPut, "/", nil, nil)
	if status(err) != statusUnreachable {
		t.Errorf("nothing listens anywhere: %v", err)
	}
}

// A diff shows what is not alike with the fewest marks.
func TestLineDiff(t *testing.T) {
	for _, row := range []struct{ a, b, want string }{
		{"", "", ""},
		{"a b c", "a b c", "  a|  b|  c"},
		{"a b c", "a x c", "  a|- b|+ x|  c"},
		{"", "a", "+ a"},
		{"a b", "b", "- a|  b"},
		{"a b c d", "b d e", "- a|  b|- c|  d|+ e"},
	} {
		if got := strings.Join(lineDiff(strings.Fields(row.a), strings.Fields(row.b)), "|"); got != row.want {
			t.Errorf("%q to %q: %s, want %s", row.a, row.b, got, row.want)
		}
	}
}
