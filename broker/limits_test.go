package broker

import (
	"os"
	"strings"
	"testing"
)

// TestLimitsPage: docs/reference/limits.md shows the broker profile as it is, row by row (G-3).
func TestLimitsPage(t *testing.T) {
	b, err := os.ReadFile("../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| number | default | beyond it |\n|---|---|---|\n"
	_, table, ok := strings.Cut(string(b), head)
	if !ok {
		t.Fatal("the page has no table of the profile")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var want strings.Builder
	for _, r := range Limits() {
		want.WriteString("| " + r.Name + " | " + r.Default + " | " + r.Beyond + " |\n")
	}
	if got := table + "\n"; got != want.String() {
		t.Errorf("the page differs; it should say\n%s", want.String())
	}
}
