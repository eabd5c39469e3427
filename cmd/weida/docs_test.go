package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	docBlock = regexp.MustCompile("(?ms)^```([a-z]+)([^\n]*)\n(.*?)^```")
	number   = regexp.MustCompile(`[0-9.]+`)
)

// TestDocCommands does what the pages for a new user tell them to do, block by block. A block marked
// `background` starts the node, one marked `refused` has to end with status 3, any other with 0; a `text`
// block is what the block before it prints, but for numbers; a `yaml` block is the file that it is marked
// with.
func TestDocCommands(t *testing.T) {
	t.Parallel()
	n := &node{dir: t.TempDir(), env: os.Environ()}
	defer func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	}()
	pages := []string{
		"docs/start/first-message.md", "docs/how-to/inspect-a-store.md", "docs/how-to/queues.md",
		"docs/how-to/clusters.md", "docs/how-to/trust-a-client.md",
		"docs/how-to/connectors.md",
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		blocks := docBlock.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Errorf("%s holds no commands", page)
		}
		said := ""
		for _, b := range blocks {
			said = playBlock(t, n, page, b[1], strings.TrimSpace(b[2]), b[3], said)
		}
	}
	if out := play(t, n, "weida sub demo --count 10001 --settle none | tail -n 3", 0); out != "9998\n9999\n10000\n" {
		t.Errorf("the page's lines came back as %q", out)
	}
}

// playBlock plays one block of a page and returns what it said.
func playBlock(t *testing.T, n *node, page, kind, mark, text, before string) string {
	t.Helper()
	script := strings.ReplaceAll(text, "go run ./cmd/weida", "weida")
	switch {
	case kind == "text":
		if got := number.ReplaceAllString(before, "N"); got != number.ReplaceAllString(text, "N") {
			t.Errorf("%s shows %q, the command says %q", page, text, before)
		}
		return ""
	case kind == "yaml":
		if err := os.WriteFile(filepath.Join(n.dir, mark), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ""
	case kind != "sh":
		t.Fatalf("%s: a block of %s", page, kind)
	case mark == "background":
		if err := n.start(strings.Fields(script)[1:]...); err != nil {
			t.Fatalf("%s: %s: %v", page, script, err)
		}
		return ""
	}
	status := 0
	if mark == "refused" {
		status = statusRefused
	}
	return play(t, n, script, status)
}

// play runs a script as a shell does that stops at the first error, and returns what it printed.
func play(t *testing.T, n *node, script string, status int) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = n.dir
	out, err := cmd.Output()
	if got := cmd.ProcessState.ExitCode(); got != status {
		t.Fatalf("%s: status %d, want %d: %v", script, got, status, err)
	}
	return string(out)
}
