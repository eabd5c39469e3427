// Package weida_test holds the tests of the house: which package may import what (layers_test.go), where a
// system call may stand (layers_test.go), how long things may be and how they are spoken of (tidy_test.go), and
// whether the documents point at things that exist (docs_test.go).
//
// They read the syntax trees of the module's own sources and need nothing but Go. Each rule is a function from one
// source file to findings, and each has a row in rules_test.go that breaks it.
package weida_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "weida"

// source is one parsed Go file of the module.
type source struct {
	name string // path from the module's root, with slashes
	text []byte
	fset *token.FileSet
	file *ast.File
}

// finding is one broken rule at one place.
type finding struct {
	name string
	line int
	what string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.name, f.line, f.what) }

// dir is the package directory from the module's root; "." is the root.
func (s *source) dir() string { return path.Dir(s.name) }

// test says whether the file is test code: a test, or a suite that tests call.
func (s *source) test() bool { return strings.HasSuffix(s.name, "_test.go") || s.in("fsync/fstest") }

// in says whether the file lies in one of the directories or below.
func (s *source) in(dirs ...string) bool {
	for _, d := range dirs {
		if s.dir() == d || strings.HasPrefix(s.dir(), d+"/") {
			return true
		}
	}
	return false
}

func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

func (s *source) at(p token.Pos, format string, args ...any) finding {
	return finding{s.name, s.line(p), fmt.Sprintf(format, args...)}
}

// imports maps the local name of every import to its path; "_" and "." imports are kept under their path.
func (s *source) imports() map[string]string {
	m := make(map[string]string)
	for _, spec := range s.file.Imports {
		p := importPath(spec)
		name := path.Base(p)
		if strings.HasPrefix(name, "v") && len(name) > 1 && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(p)) // example.org/x/v2 is package x
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "_" || name == "." {
			name = p
		}
		m[name] = p
	}
	return m
}

// importPath is the unquoted path of an import; the parser has checked the literal.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic("bug: weida: import path " + spec.Path.Value)
	}
	return p
}

// call is a selector on an imported package: path.Name.
type call struct {
	pkg, name string
	pos       token.Pos
}

// selectors returns every use of an imported package's name in the file.
func (s *source) selectors() []call {
	names := s.imports()
	var list []call
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok || id.Obj != nil { // a local variable hides the import
			return true
		}
		if p, ok := names[id.Name]; ok {
			list = append(list, call{p, sel.Sel.Name, sel.Pos()})
		}
		return true
	})
	return list
}

func parse(name string, text []byte) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &source{name: name, text: text, fset: fset, file: f}, nil
}

var load = sync.OnceValues(func() ([]*source, error) {
	var list []*source
	root := os.DirFS(".")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		s, err := parse(name, text)
		if err == nil && !generated(s) {
			list = append(list, s)
		}
		return err
	})
	sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	return list, err
})

func generated(s *source) bool {
	head, _, _ := bytes.Cut(s.text, []byte("\npackage "))
	return bytes.Contains(head, []byte("// Code generated "))
}

// tree is every Go file of the module, sorted by name.
func tree(t *testing.T) []*source {
	t.Helper()
	list, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("found %d Go files: the test does not run at the module's root", len(list))
	}
	return list
}

// check runs one rule over the tree.
func check(t *testing.T, rule func(*source) []finding) {
	t.Helper()
	for _, s := range tree(t) {
		for _, f := range rule(s) {
			t.Error(f)
		}
	}
}
