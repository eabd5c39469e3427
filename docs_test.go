package weida_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// page is one Markdown file.
type page struct {
	name string
	text string
}

func pages(t *testing.T) []page {
	t.Helper()
	var list []page
	root := os.DirFS(".")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".md") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		list = append(list, page{name, string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

var (
	fence    = regexp.MustCompile("(?ms)^```([a-z]*)([^\n]*)\n(.*?)^```")
	code     = regexp.MustCompile("`[^`\n]+`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	goRun    = regexp.MustCompile(`go (?:run|test|build|vet) (?:-\S+ )*(\./[\w/.-]+)`)
	ciRun    = regexp.MustCompile(`\.ci/run +([a-z]+)`)
	ciStep   = regexp.MustCompile(`(?m)^step_([a-z]+)\(\)`)
	testName = regexp.MustCompile(`-run '?\^?(\w+)\$?'?`)
)

// TestDocLinks: a link inside the repository leads somewhere.
func TestDocLinks(t *testing.T) {
	for _, p := range pages(t) {
		prose := fence.ReplaceAllString(p.text, "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(path.Join(path.Dir(p.name), target)); err != nil {
				t.Errorf("%s: link to %s: %v", p.name, m[1], err)
			}
		}
	}
}

// TestDocWords: the documents keep to the vocabulary too. Code is not prose; docs/track-record.md quotes.
func TestDocWords(t *testing.T) {
	for _, p := range pages(t) {
		prose := code.ReplaceAllString(fence.ReplaceAllString(p.text, ""), "")
		for _, b := range banned {
			if m := b.re.FindString(prose); m != "" {
				t.Errorf("%s: %q: %s", p.name, strings.TrimSpace(m), b.say)
			}
		}
	}
}

// TestDocCommands: what a document tells the reader to run exists: packages, steps of .ci/run and tests by name. (That
// the commands do what the page says is shown by running them; this catches the rename.)
func TestDocCommands(t *testing.T) {
	script, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	steps := make(map[string]bool)
	for _, m := range ciStep.FindAllStringSubmatch(string(script), -1) {
		steps[m[1]] = true
	}
	tests := make(map[string]bool)
	for _, s := range tree(t) {
		for name := range s.file.Scope.Objects {
			tests[name] = true
		}
	}
	for _, p := range pages(t) {
		for _, m := range goRun.FindAllStringSubmatch(p.text, -1) {
			dir := strings.TrimSuffix(strings.TrimRight(m[1], "."), "/")
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				t.Errorf("%s: %s: there is no such package", p.name, m[0])
			}
		}
		for _, m := range ciRun.FindAllStringSubmatch(p.text, -1) {
			if !steps[m[1]] {
				t.Errorf("%s: .ci/run has no step %q", p.name, m[1])
			}
		}
		for _, m := range testName.FindAllStringSubmatch(p.text, -1) {
			if !tests[m[1]] && !prefixOf(m[1], tests) {
				t.Errorf("%s: no test is called %s", p.name, m[1])
			}
		}
	}
}

func prefixOf(prefix string, names map[string]bool) bool {
	for n := range names {
		if strings.HasPrefix(n, prefix) {
			return true
		}
	}
	return false
}
