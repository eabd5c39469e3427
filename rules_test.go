package weida_test

import (
	"strings"
	"testing"
)

// TestRules breaks each rule of the house once, and keeps it once in the neighbouring case.
func TestRules(t *testing.T) {
	type row struct {
		rule func(*source) []finding
		name string
		text string
		want string // part of the finding; empty for none
	}
	long := strings.Repeat("\n", funcLinesMax)
	for _, r := range []row{
		{layers, "segment/a.go", `import "weida/fsync"`, "not a floor below"},
		{layers, "segment/a.go", `import "os"`, "refused"},
		{layers, "segment/rules/a.go", `import "time"`, "refused"},
		{layers, "segment/a.go", `import "encoding/binary"`, ""},
		{layers, "segment/a_test.go", `import "os"`, ""},
		{layers, "fsync/a.go", `import "weida/segment"`, "not a floor below"},
		{layers, "fsync/memfs/a.go", `import "weida/fsync"`, ""},
		{layers, "wal/a.go", `import "weida/raftstore"`, "not a floor below"},
		{layers, "wal/a.go", `import "go.etcd.io/raft/v3"`, "not a dependency"},
		{layers, "wal/a.go", `import "weida/segment"`, ""},
		{layers, "raftstore/a.go", `import "github.com/quic-go/quic-go"`, "not a dependency"},
		{layers, "raftstore/a.go", `import "net/netip"`, "refused"},
		{layers, "raftstore/a.go", `import "weida/broker"`, "not a floor below"},
		{layers, "broker/queue/a.go", `import "weida/segment"`, "not a floor below"},
		{layers, "broker/queue/a.go", `import "time"`, "refused"},
		{layers, "broker/wire/a.go", `import "github.com/quic-go/quic-go"`, "not a dependency"},
		{layers, "broker/wire/a.go", `import "github.com/quic-go/quic-go/quicvarint"`, ""},
		{layers, "broker/client/a.go", `import "weida/wal"`, "not a floor below"},
		{layers, "broker/client/a.go", `import "weida/broker"`, "not a floor below"},
		{layers, "broker/a.go", `import "weida/broker/queue"`, ""},
		{layers, "broker/a.go", `import "github.com/spf13/cobra"`, "not a dependency"},
		{layers, "elsewhere/a.go", ``, "no floor"},

		{fileSystem, "wal/a.go", "import \"os\"\nvar _ = os.Open", "belong to package fsync"},
		{fileSystem, "wal/a.go", "import o \"os\"\nvar _ = o.Rename", "belong to package fsync"},
		{fileSystem, "broker/a.go", "import \"path/filepath\"\nvar _ = filepath.WalkDir", "belong to package fsync"},
		{fileSystem, "broker/a.go", "import \"os\"\nvar _ = os.Getenv", ""},
		{fileSystem, "fsync/a.go", "import \"os\"\nvar _ = os.Open", ""},
		{fileSystem, "wal/a_test.go", "import \"os\"\nvar _ = os.Open", ""},

		{deterministic, "wal/a.go", "import \"time\"\nvar _ = time.Now", "given its time"},
		{deterministic, "wal/a.go", "import \"time\"\nvar _ = time.Second", ""},
		{deterministic, "broker/queue/a.go", "func f() { go f() }", "go statement"},
		{deterministic, "segment/a.go", `import "math/rand/v2"`, "randomness"},
		{deterministic, "raftstore/shard.go", "func f() { go f() }", "go statement"},
		{deterministic, "raftstore/host.go", "func f() { go f() }", ""},
		{deterministic, "raftstore/host.go", "import \"time\"\nvar _ = time.Now", "given its time"},
		{deterministic, "raftstore/host.go", "import \"time\"\nvar _ = time.NewTicker", ""},
		{deterministic, "wal/a.go", "import \"fmt\"\nvar _ = fmt.Println", "events"},
		{deterministic, "broker/a.go", "func f() { go f() }", ""},

		{switches, "broker/a.go", "import \"weida/wal\"\nvar _ = wal.SwitchOff", "only tests"},
		{switches, "wal/a.go", "func f() { off.gate = true }", "only tests"},
		{switches, "wal/a.go", "var x = &off.gate", "switchoff.go"},
		{switches, "wal/a.go", "const s = \"WEIDA_SWITCH_OFF\"", "only tests"},
		{switches, "wal/switchoff.go", "var x = &off.gate", ""},
		{switches, "wal/a_test.go", "func f() { off.gate = true }", ""},

		{lengths, "wal/a.go", strings.Repeat("\n", fileLinesMax), "file of"},
		{lengths, "wal/a_test.go", strings.Repeat("\n", fileLinesMax), ""},
		{lengths, "wal/a.go", "func f() {" + long + "}", "function f"},
		{lengths, "wal/a_test.go", "func f() {" + long + "}", ""},
		{lengths, "wal/a.go", "// " + strings.Repeat("x", lineColumnsMax), "columns"},
		{lengths, "wal/a.go", "// " + strings.Repeat("ü", lineColumnsMax-3), ""},

		{vocabulary, "wal/a.go", "// It is persisted.", "write or flush"},
		{vocabulary, "wal/a.go", "// The file is synced.", "flush"},
		{vocabulary, "wal/a.go", "// Guarded by a sync.Mutex; fsync and syncfs; File.Sync.", ""},
		{vocabulary, "wal/a.go", "const s = \"failed to open\"", "message form"},
		{vocabulary, "wal/a_test.go", "const s = \"failed to open\"", ""},
		{vocabulary, "wal/a.go", "// TODO: later", "do it"},
		{vocabulary, "wal/a.go", "const p = \"/home/me\"", "machine"},

		{packageComment, "wal/log.go", "", ""},
		{exported, "wal/a.go", "func F() {}", "F has no comment"},
		{exported, "wal/a.go", "// F does.\nfunc F() {}", ""},
		{exported, "wal/a.go", "type t int\nfunc (t) F() {}", ""},
		{exported, "wal/a.go", "type T int", "T has no comment"},
		{exported, "wal/a.go", "var E = 1", "E has no comment"},
		{exported, "wal/a.go", "// Conditions.\nvar (\n\tE = 1\n)", ""},
		{exported, "wal/a.go", "// Options.\ntype Options struct {\n\tA int\n}", "option A"},
		{exported, "wal/a.go", "// Options.\ntype Options struct {\n\tA int // 3 if zero\n}", ""},

		{panics, "wal/a.go", "func f() { panic(\"oops\") }", "begins with"},
		{panics, "wal/a.go", "func f() { panic(\"bug: fsync: oops\") }", "begins with"},
		{panics, "wal/a.go", "import \"fmt\"\nfunc f() { panic(fmt.Sprintf(\"bug: wal: %d\", 1)) }", ""},
		{panics, "wal/a.go", "func f(err error) { panic(err) }", "begins with"},
		{panics, "wal/a.go", "func f(err error) { panic(\"bug: wal: \" + err.Error()) }", ""},
	} {
		s, err := parse(r.name, []byte("package wal\n\n"+r.text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range r.rule(s) {
			got = append(got, f.String())
		}
		all := strings.Join(got, "\n")
		if r.want == "" && all != "" || r.want != "" && !strings.Contains(all, r.want) {
			t.Errorf("%s:\n%s\nfound %q, want %q", r.name, r.text, all, r.want)
		}
	}
	for _, c := range []struct{ name, text, want string }{
		{"wal/log.go", "// Package wal is.\npackage wal", "doc.go"},
		{"wal/doc.go", "// It is.\npackage wal", "begins with"},
		{"wal/doc.go", "// Package wal is.\npackage wal", ""},
		{"cmd/weida/main.go", "// Weida is.\npackage main", ""},
	} {
		s, err := parse(c.name, []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		got := packageComment(s)
		if (len(got) > 0) != (c.want != "") || len(got) > 0 && !strings.Contains(got[0].what, c.want) {
			t.Errorf("%s: %q: found %v, want %q", c.name, c.text, got, c.want)
		}
	}
}
