package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weida/broker/admin"
	"weida/broker/endpoint"
	"weida/fsync"
	"weida/wal"
)

// canary is a secret that stands in every source. It has no mark that a filter could know it by.
const canary = "Xk7Qz9Pw2Lm4"

// untar reads an archive.
func untar(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files, r := make(map[string]string), tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		files[strings.TrimPrefix(h.Name, bundleDir+"/")] = string(text)
	}
}

// talkative are answers of an admin port with the canary, as CANARY, wherever a later version, a user or a mistake
// could put one. A mark that has to come through shows that the rest of the answer does.
var talkative = map[string]string{
	"/version": `{"version":"mark-version","commit":"c","go":"go1","store_format":1,"builder":"CANARY"}`,
	"/v1/cluster": `{"healthy":false,
		"nodes":[{"metadata":{"name":"mark-cluster"},"spec":{"password":"CANARY"},
			"live":{"reached":false,"why":"auth token=CANARY"}}],
		"groups":[{"group":"queue/q","why":"it said \"CANARY\"","body":"CANARY"}]}`,
	"/v1/status": `{"node":"mark-status","alive":[{"object":"connector c","what":"CANARY"},
		{"object":"queue q","what":"Authorization: Bearer CANARY"}],"producerIds":["CANARY"]}`,
	"/v1/local/groups": `{"name":"mark-groups",
		"groups":[{"id":1,"queue":"q","trouble":"open \"CANARY\"","producers":{"CANARY":1}}]}`,
	"/v1/nodes": `{"kind":"NodeList","items":[{"kind":"Node","metadata":{"name":"mark-nodes"},"secret":"CANARY"}]}`,
	"/v1/queues": `{"kind":"QueueList","items":[{"kind":"Queue",
		"metadata":{"name":"mark-queues","labels":{"x":"CANARY"}},"spec":{"replicas":3},
		"status":{"conditions":[{"type":"Group","message":"password: CANARY"}]},"messages":["CANARY"]}]}`,
	"/v1/connectors": `{"kind":"ConnectorList","items":[{"kind":"Connector","metadata":{"name":"mark-connectors"},
		"spec":{"protocol":"kafka","address":"kafka://me:CANARY@host",
			"policy":{"password":"CANARY","framing":"CANARY","follow":"true","CANARY":"x"}},
		"status":{"conditions":[{"type":"A","reason":"R","message":"CANARY"}]}}]}`,
	"/v1/quorum/describe": `{"version":3,
		"groups":[{"group":"queue/mark-quorum","errorMessage":"secret=CANARY","note":"CANARY"}]}`,
	"/metrics": `# HELP weida_mark It counts "CANARY".
# TYPE weida_mark counter
weida_mark{code="x"} 1
weida_mark{producer="CANARY"} 1
weida_mark{code="CANARY/x"} 1
weida_mark{code="x"} CANARY
other_CANARY 1
# CANARY
`,
	"/debug/pprof/goroutine": `goroutine profile: total 2
1 @ 0x1 0x2
# labels: {"producer":"CANARY"}
#	0x1	mark.goroutines+0x1	/a.go:1
CANARY
`,
}

// chatter is a log with the canary in every way in which one could come into it.
const chatter = `time=2030-01-01T00:00:00Z level=INFO msg="mark-log link up" node=2 producer=CANARY
n1 | time=2030-01-01T00:00:00Z level=WARN msg=x err="no \"CANARY\" here" body="CANARY"
Jan 01 host weida[1]: CANARY time=2030-01-01T00:00:00Z level=WARN msg=x err="token: CANARY"
time=2030-01-01T00:00:00Z level=ERROR msg="connector does not run" uid=7 err="CANARY is not known"
time=2030-01-01T00:00:00Z level=INFO msg="store: quarantined" path=/d/quarantine/CANARY err="move CANARY"
time=2030-01-01T00:00:00Z level=INFO msg=x err="dial nats://me:CANARY@host" subscription=CANARY
time=2030-01-01T00:00:00Z level=INFO msg=x CANARY "CANARY" Authorization="Bearer CANARY"
CANARY
password=CANARY
panic: auth "CANARY"
goroutine 7 [running]:
weida/mark.trace(0xc000, {0x1, 0x2})
	/src/mark.go:17 +0x1d
weida: open "CANARY": no
-----BEGIN PRIVATE KEY-----
CANARY
-----END PRIVATE KEY-----
`

func withCanary(text string) string { return strings.ReplaceAll(text, "CANARY", canary) }

// cagey has a canary in everything that is in reach of an archive.
func cagey(t *testing.T) (b *Bundle, keyLine string) {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "n1")
	if err := wal.InitStore(fsync.OS(), data, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := endpoint.LoadOrCreateIdentity(fsync.OS(), data, "node"); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(data, "node.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(key)
	log := filepath.Join(dir, "log")
	for name, text := range map[string]string{
		log: withCanary(chatter), filepath.Join(data, canary): canary, filepath.Join(data, "groups", canary+".seg"): canary,
		filepath.Join(data, "node.crt"): canary, filepath.Join(dir, "n1.yaml"): "# " + canary,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("WEIDA_PASSWORD", canary)
	f := Gather(context.Background(), Target{Data: data, Config: filepath.Join(dir, "n1.yaml"), Name: "n1"}, nil)
	f.Access.Foreign, f.Access.Example = 1, filepath.Join(data, canary)
	f.Store.Foreign, f.Store.Bad = true, withCanary(`it holds "CANARY" and CANARY`)
	f.Builds.Ready = []admin.Problem{{Object: "connector c", What: canary}}
	f.Running.Held = true
	return &Bundle{
		Report: NewReport(f), Logs: []string{log},
		Node: struct {
			Name string `yaml:"name"`
			URL  string `yaml:"url"`
			Pass string `yaml:"password"`
		}{"mark-node", "nats://a:" + canary + "@b", canary},
		Ask: func(_ context.Context, _, path string, _ url.Values, _ []byte) ([]byte, error) {
			return []byte(withCanary(talkative[path])), nil
		},
	}, base64.StdEncoding.EncodeToString(block.Bytes)
}

// TestNoSecretComesOut is the promise of the archive: a canary in every source, none in the archive, and of every
// source that which is meant to come.
func TestNoSecretComesOut(t *testing.T) {
	b, keyLine := cagey(t)
	var out bytes.Buffer
	c, err := b.Write(context.Background(), &out)
	if err != nil {
		t.Fatal(err)
	}
	got := untar(t, out.Bytes())
	for name, text := range got {
		if i := strings.Index(text, canary); i >= 0 {
			t.Errorf("the canary is in %s:\n…%s…", name, text[max(0, i-200):min(len(text), i+100)])
		}
		if strings.Contains(text, keyLine) || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("a key is in %s", name)
		}
	}
	if strings.Contains(string(c.Text()), canary) {
		t.Error("the canary is in what is printed")
	}
	for _, s := range sources {
		if got[s.name] == "" {
			t.Errorf("%s is not in it: %+v", s.name, c.Out)
		}
	}
	for name, mark := range map[string]string{
		"version.json": "mark-version", "status.json": "mark-cluster", "node-status.json": "mark-status",
		"groups.json": "mark-groups", "nodes.json": "mark-nodes", "queues.json": "mark-queues",
		"connectors.json": "mark-connectors", "quorum.json": "mark-quorum", "metrics.txt": "weida_mark{code=\"x\"} 1",
		"goroutines.txt": "mark.goroutines", "node.yaml": "mark-node", "files.txt": "groups/(left out)",
		"doctor.txt": "write cache", "doctor.json": `"p50_us"`, "kernel.txt": "MemTotal", "CONTENTS.txt": "private keys",
	} {
		if !strings.Contains(got[name], mark) {
			t.Errorf("%s has no %q:\n%s", name, mark, got[name])
		}
	}
	for _, want := range []string{
		"mark-log link up", "node=2 left=1", "weida/mark.trace\n", "/src/mark.go:17", "goroutine 7 [running]:",
		"kafka", `"framing": "(left out)"`, `"follow": "true"`, "node.key", "weida: open \"…\": no",
	} {
		if !strings.Contains(fmt.Sprint(got), want) {
			t.Errorf("%q did not come through:\n%s", want, got["log.txt"])
		}
	}
}

// TestKeyIsStoppedAtTheDoor: were a filter to let the key through, the last door would not.
func TestKeyIsStoppedAtTheDoor(t *testing.T) {
	b, keyLine := cagey(t)
	ask := b.Ask
	b.Ask = func(ctx context.Context, method, path string, q url.Values, body []byte) ([]byte, error) {
		if path == "/version" {
			return []byte(`{"version":"` + keyLine + `"}`), nil
		}
		return ask(ctx, method, path, q, body)
	}
	var out bytes.Buffer
	c, err := b.Write(context.Background(), &out)
	if err != nil {
		t.Fatal(err)
	}
	if got := untar(t, out.Bytes()); got["version.json"] != "" || got["status.json"] == "" {
		t.Errorf("%d files, version.json is %q", len(got), got["version.json"])
	}
	if !strings.Contains(string(c.Text()), "a private key was found in it") {
		t.Errorf("%s", c.Text())
	}
}

// TestBundleOfLittle: with nothing there and nobody to ask it is made all the same, and says what is missing.
func TestBundleOfLittle(t *testing.T) {
	f := sound()
	f.Data = filepath.Join(t.TempDir(), "none")
	b := &Bundle{Report: NewReport(f)}
	var out bytes.Buffer
	c, err := b.Write(context.Background(), &out)
	if err != nil {
		t.Fatal(err)
	}
	got := untar(t, out.Bytes())
	if got["doctor.txt"] == "" || got["kernel.txt"] == "" || len(got) != 4 || len(c.In) != len(got) {
		t.Errorf("%v", c.In)
	}
	for _, part := range []string{"status.json", "no admin port is known", "there is no data directory", "no log is " +
		"known"} {
		if !strings.Contains(got["CONTENTS.txt"], part) {
			t.Errorf("%q is not told:\n%s", part, got["CONTENTS.txt"])
		}
	}
}

// TestTail: of a long log only whole lines of its end are read.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("first line\nsecond\nthird\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{
		100: "first line\nsecond\nthird\n", 15: "second\nthird\n", 9: "third\n", 3: "",
	} {
		if got, err := tail(path, limit); got != want || err != nil {
			t.Errorf("%d: %q, %v", limit, got, err)
		}
	}
}
