package weida_test

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
	"testing"
)

// floor is what one package, and everything nested in it, may import. Tests are free: they build what they need. Lists
// are separated by spaces, and a package stands for all below it.
type floor struct {
	dir     string // the rule of the longest dir that fits is the one that counts
	own     string // directories of this module
	foreign string // packages of other modules; "*" for any
	refused string // packages of the standard library
}

// What a package that decides nothing about the machine has no business with.
const machine = " os net log syscall math/rand"

// The floors, from below. An arrow points down or nowhere.
var floors = []floor{
	{"segment", "segment", "github.com/zeebo/xxh3", "time io/fs io/ioutil sync context" + machine},
	{"fsync", "fsync", "golang.org/x/sys/unix", "net log"},
	{"wal", "wal segment fsync", "github.com/klauspost/compress", machine},
	{
		"raftstore", "raftstore wal segment fsync",
		"go.etcd.io/raft/v3 google.golang.org/protobuf github.com/zeebo/xxh3", machine,
	},

	{"broker/queue", "broker/queue", "", "time io/fs io/ioutil sync context" + machine},
	{"broker/control", "broker/control", "github.com/goccy/go-yaml", machine},
	{"broker/wire", "broker/wire", "github.com/quic-go/quic-go/quicvarint", machine},
	{"broker/endpoint", "broker/endpoint fsync", "github.com/quic-go/quic-go", "log syscall"},
	{"broker/peer", "broker/peer broker/wire broker/endpoint raftstore segment", "github.com/quic-go/quic-go", "os log"},
	{
		"broker/client", "broker/client broker/wire broker/endpoint", "github.com/quic-go/quic-go github.com/zeebo/xxh3",
		"os log syscall",
	},
	{
		"broker/connector", "broker/connector broker/client broker/control broker/wire broker/endpoint fsync",
		"github.com/zeebo/xxh3", "os log syscall",
	},
	{
		"broker", "broker raftstore wal segment fsync",
		"github.com/quic-go/quic-go github.com/zeebo/xxh3 github.com/prometheus/client_golang github.com/goccy/go-yaml",
		"syscall",
	},

	{
		"cmd", "cmd broker raftstore wal segment fsync",
		"github.com/spf13/cobra github.com/goccy/go-yaml github.com/vbauerster/mpb/v8 golang.org/x/sys/unix", "",
	},
	{
		"bench", "bench broker raftstore wal segment fsync fuzz/powercut",
		"github.com/HdrHistogram/hdrhistogram-go github.com/spf13/cobra golang.org/x/sys/unix", "",
	},
	{"fuzz", "fuzz broker raftstore wal segment fsync", "*", ""},
}

// TestLayers walks the import graph: every package imports only what its floor allows, so no arrow points up and no
// package has a dependency that the table does not name.
func TestLayers(t *testing.T) { check(t, layers) }

func layers(s *source) []finding {
	if s.test() {
		return nil
	}
	fl, ok := floorOf(s)
	if !ok {
		return []finding{{s.name, 1, "package " + s.dir() + " has no floor in layers_test.go"}}
	}
	var list []finding
	for _, spec := range s.file.Imports {
		p := importPath(spec)
		if why := fl.refusal(p); why != "" {
			list = append(list, s.at(spec.Pos(), "%s imports %s: %s", s.dir(), p, why))
		}
	}
	return list
}

func floorOf(s *source) (best floor, ok bool) {
	for _, fl := range floors {
		if s.in(fl.dir) && len(fl.dir) >= len(best.dir) {
			best, ok = fl, true
		}
	}
	return best, ok
}

// refusal is why the package p may not be imported on this floor, empty if it may.
func (fl floor) refusal(p string) string {
	if own, ok := strings.CutPrefix(p, module+"/"); ok {
		if !within(own, fl.own) {
			return "not a floor below"
		}
		return ""
	}
	if strings.Contains(strings.Split(p, "/")[0], ".") {
		if !within(p, fl.foreign) {
			return "not a dependency of this floor"
		}
		return ""
	}
	if within(p, fl.refused) {
		return "refused on this floor"
	}
	return ""
}

// within says whether p is one of the packages or lies below one.
func within(p, packages string) bool {
	for _, q := range strings.Fields(packages) {
		if q == "*" || p == q || strings.HasPrefix(p, q+"/") {
			return true
		}
	}
	return false
}

// fileCalls are the functions of package os that reach the file system.
var fileCalls = words(`Chdir Chmod Chown Chtimes CopyFS Create CreateTemp DirFS Lchown Link Lstat Mkdir MkdirAll
	MkdirTemp NewFile Open OpenFile OpenInRoot OpenRoot ReadDir ReadFile Readlink Remove RemoveAll Rename Stat Symlink
	Truncate WriteFile`)

// TestFileCalls keeps file-system calls in package fsync, so that one place decides what is durable, and so that memfs
// and faultfs see everything the store does. Commands, benches and the adversaries in fuzz talk to the real one.
func TestFileCalls(t *testing.T) { check(t, fileSystem) }

func fileSystem(s *source) []finding {
	if s.test() || s.in("fsync", "cmd", "bench", "fuzz") {
		return nil
	}
	var list []finding
	for _, c := range s.selectors() {
		walks := c.pkg == "path/filepath" && words("Walk WalkDir Glob EvalSymlinks")[c.name]
		if c.pkg == "os" && fileCalls[c.name] || walks || c.pkg == "io/ioutil" {
			list = append(list, s.at(c.pos, "%s.%s: file-system calls belong to package fsync", c.pkg, c.name))
		}
	}
	return list
}

// What makes a run depend on something other than its inputs.
var (
	clocks = words("Now Since Until Sleep After AfterFunc Tick NewTicker NewTimer")
	prints = words("Print Printf Println")
)

// stepped says which files are driven by their owner: no clock, no goroutine, no randomness that was not handed in.
// raftstore starts its goroutines in edgeFiles.
func stepped(s *source) bool {
	return !s.test() && s.in("segment", "wal", "raftstore", "broker/queue", "broker/control")
}

// edgeFiles are the files of raftstore that own goroutines and the ticker: the host's start and its workers.
var edgeFiles = []string{"raftstore/host", "raftstore/run", "raftstore/worker"}

// TestStepped refuses clocks, goroutines, global randomness and printing in the core.
func TestStepped(t *testing.T) { check(t, deterministic) }

func deterministic(s *source) []finding {
	if !stepped(s) {
		return nil
	}
	var list []finding
	edge := false
	for _, p := range edgeFiles {
		edge = edge || strings.HasPrefix(s.name, p)
	}
	for _, c := range s.selectors() {
		switch {
		case c.pkg == "time" && clocks[c.name] && !(edge && c.name == "NewTicker"):
			list = append(list, s.at(c.pos, "time.%s: the core is given its time", c.name))
		case c.pkg == "fmt" && prints[c.name]:
			list = append(list, s.at(c.pos, "fmt.%s: the core returns errors and emits events", c.name))
		}
	}
	for _, spec := range s.file.Imports {
		if p := importPath(spec); strings.HasPrefix(p, "math/rand") {
			list = append(list, s.at(spec.Pos(), "%s: the core is given its randomness", p))
		}
	}
	if !edge {
		list = append(list, goStatements(s)...)
	}
	return list
}

// TestRulesStayOn: what a rule of the store or of replicas can be left out with is reached by tests and suites alone.
// Nothing that users run has a flag, a variable or a build that does it; that the binary holds nothing of it, whoever
// builds one for a suite sees (fuzz/internal/process).
func TestRulesStayOn(t *testing.T) { check(t, switches) }

func switches(s *source) []finding {
	if strings.HasSuffix(s.name, "_test.go") || s.in("fuzz") {
		return nil
	}
	var list []finding
	for _, c := range s.selectors() {
		if c.name == "SwitchOff" {
			list = append(list, s.at(c.pos, "SwitchOff: only tests and suites leave a rule out"))
		}
	}
	name := func(e ast.Expr) bool {
		sel, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		id, ok := sel.X.(*ast.Ident)
		return ok && id.Name == "off"
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if name(e) {
					list = append(list, s.at(e.Pos(), "only tests leave a rule out"))
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND && name(n.X) && path.Base(s.name) != "switchoff.go" {
				list = append(list, s.at(n.Pos(), "only tests and switchoff.go reach a switch"))
			}
		case *ast.BasicLit:
			if strings.Contains(n.Value, "WEIDA_SWITCH_OFF") {
				list = append(list, s.at(n.Pos(), "only tests and suites name the variable"))
			}
		}
		return true
	})
	return list
}

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}
