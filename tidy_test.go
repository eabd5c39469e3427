package weida_test

import (
	"bytes"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The bounds of the house.
const (
	fileLinesMax     = 400
	testFileLinesMax = 600
	funcLinesMax     = 70
	testFuncLinesMax = 120 // a table with its loop is one function
	lineColumnsMax   = 120
)

// longer lists what may exceed a bound, each with its reason. Keep it tiny: an exception is a debt.
var longer = map[string]string{}

func TestLengths(t *testing.T) { check(t, lengths) }

func lengths(s *source) []finding {
	var list []finding
	limit, funcLimit := fileLinesMax, funcLinesMax
	if s.test() {
		limit, funcLimit = testFileLinesMax, testFuncLinesMax
	}
	lines := bytes.Split(bytes.TrimSuffix(s.text, []byte("\n")), []byte("\n"))
	if len(lines) > limit && longer[s.name] == "" {
		list = append(list, finding{s.name, limit + 1, "file of " + strconv.Itoa(len(lines)) + " lines"})
	}
	for i, l := range lines {
		if n := utf8.RuneCount(l); n > lineColumnsMax && !bytes.Contains(l, []byte("//go:")) {
			list = append(list, finding{s.name, i + 1, "line of " + strconv.Itoa(n) + " columns"})
		}
	}
	for _, d := range s.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		n := s.line(fn.End()) - s.line(fn.Pos()) + 1
		if n > funcLimit && longer[s.name+":"+fn.Name.Name] == "" {
			list = append(list, s.at(fn.Pos(), "function %s of %d lines", fn.Name.Name, n))
		}
	}
	return list
}

// banned are words that have a better one here: one word, one meaning. They are looked for in comments and in string
// literals, not in identifiers, which follow the standard library where they meet it (File.Sync).
var banned = []struct {
	re  *regexp.Regexp
	say string
}{
	{re: ban(`failed to`), say: "the message form is `wal: open group 12: …`"},
	{re: ban(`persist(s|ed|ing)?`), say: "write or flush"},
	// "sync" as a verb or noun; package sync, sync.Mutex, fsync and syncfs are other words.
	{re: regexp.MustCompile(`(?i)(^|[^.\w-])(syncs|synced|syncing|to sync)($|[^\w.(]|\.(\s|$))`), say: "flush"},
	{re: ban(`nack(s|ed|ing)?`), say: "reject"},
	{re: ban(`LSN|high water( mark)?`), say: "index, or one of the five watermarks"},
	{re: ban(`lease(s|d)?`), say: "delivery"},
	{re: ban(`prefetch`), say: "credit"},
	{re: ban(`durability mode`), say: "level"},
	{re: ban(`broker instance`), say: "node"},
	{re: ban(`TODO|FIXME|XXX|HACK`), say: "do it, or write down in docs/decisions why not"},
	{re: regexp.MustCompile(`(^|[\s"'(=])/(home|root|work|Users)/\w`), say: "no path of somebody's machine"},
}

func ban(words string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + words + `)\b`) }

// TestWords refuses words outside the vocabulary. This file is where they are listed.
func TestWords(t *testing.T) { check(t, vocabulary) }

func vocabulary(s *source) []finding {
	if s.name == "tidy_test.go" || s.name == "rules_test.go" {
		return nil
	}
	var list []finding
	look := func(p token.Pos, text string) {
		for _, b := range banned {
			if m := b.re.FindString(text); m != "" {
				list = append(list, s.at(p, "%q: %s", strings.TrimSpace(m), b.say))
			}
		}
	}
	for _, g := range s.file.Comments {
		for _, c := range g.List {
			look(c.Pos(), c.Text)
		}
	}
	if s.test() {
		return list // tests quote what other programs say
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			look(lit.Pos(), lit.Value)
		}
		return true
	})
	return list
}

// TestPackageComments asks each package for a doc.go that says what it is for; a command may say it in main.go.
func TestPackageComments(t *testing.T) {
	type pkg struct{ files, commented int }
	pkgs := make(map[string]*pkg)
	for _, s := range tree(t) {
		if s.test() {
			continue
		}
		p := pkgs[s.dir()]
		if p == nil {
			p = new(pkg)
			pkgs[s.dir()] = p
		}
		p.files++
		for _, f := range packageComment(s) {
			t.Error(f)
		}
		if s.file.Doc != nil {
			p.commented++
		}
	}
	for dir, p := range pkgs {
		if p.commented != 1 {
			t.Errorf("%s: %d package comments, want one, in doc.go", dir, p.commented)
		}
	}
}

func packageComment(s *source) []finding {
	if s.file.Doc == nil {
		return nil
	}
	base := path.Base(s.name)
	main := s.file.Name.Name == "main"
	if base != "doc.go" && !(main && base == "main.go") {
		return []finding{s.at(s.file.Doc.Pos(), "the package comment belongs to doc.go")}
	}
	want := "Package " + s.file.Name.Name + " "
	if text := s.file.Doc.Text(); !main && !strings.HasPrefix(text, want) {
		return []finding{s.at(s.file.Doc.Pos(), "a package comment begins with %q", want)}
	}
	return nil
}

// TestExportedComments asks for a comment on everything a caller can name.
func TestExportedComments(t *testing.T) { check(t, exported) }

func exported(s *source) []finding {
	if s.test() || s.in("cmd", "bench", "fuzz") {
		return nil
	}
	var list []finding
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && !wellKnown[d.Name.Name] && exportedReceiver(d) {
				list = append(list, s.at(d.Pos(), "%s has no comment", d.Name.Name))
			}
		case *ast.GenDecl:
			list = append(list, exportedSpecs(s, d)...)
		}
	}
	return list
}

// wellKnown are methods whose meaning an interface of the standard library has fixed.
var wellKnown = words(`Error String Unwrap Is As Len Less Swap Read Write Close ReadAt WriteAt WriteTo ReadFrom
	MarshalText UnmarshalText MarshalJSON UnmarshalJSON`)

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if g, ok := t.(*ast.IndexExpr); ok {
		t = g.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

func exportedSpecs(s *source, d *ast.GenDecl) []finding {
	var list []finding
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
				list = append(list, s.at(spec.Pos(), "type %s has no comment", spec.Name.Name))
			}
			if st, ok := spec.Type.(*ast.StructType); ok && strings.HasSuffix(spec.Name.Name, "Options") {
				list = append(list, optionFields(s, st)...)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
					list = append(list, s.at(name.Pos(), "%s has no comment", name.Name))
				}
			}
		}
	}
	return list
}

func optionFields(s *source, st *ast.StructType) []finding {
	var list []finding
	for _, f := range st.Fields.List {
		if f.Doc == nil && f.Comment == nil && len(f.Names) > 0 && f.Names[0].IsExported() {
			list = append(list, s.at(f.Pos(), "option %s has no comment with its default", f.Names[0].Name))
		}
	}
	return list
}

// TestPanics: a panic is a broken invariant of ours and says so, with its package.
func TestPanics(t *testing.T) { check(t, panics) }

func panics(s *source) []finding {
	if s.test() || s.in("cmd", "bench", "fuzz") {
		return nil
	}
	want := "bug: " + s.file.Name.Name + ": "
	var list []finding
	ast.Inspect(s.file, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok || len(c.Args) != 1 {
			return true
		}
		if id, ok := c.Fun.(*ast.Ident); ok && id.Name == "panic" && !strings.HasPrefix(leading(c.Args[0]), want) {
			list = append(list, s.at(c.Pos(), "a panic's message begins with %q", want))
		}
		return true
	})
	return list
}

// leading is the literal text that an expression begins with, as far as the syntax shows it.
func leading(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return leading(e.X)
	case *ast.CallExpr:
		if len(e.Args) > 0 {
			return leading(e.Args[0])
		}
	}
	return ""
}

// goStatements finds every go statement.
func goStatements(s *source) []finding {
	var list []finding
	ast.Inspect(s.file, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			list = append(list, s.at(g.Pos(), "a go statement: the core is driven by its owner"))
		}
		return true
	})
	return list
}
