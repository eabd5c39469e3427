package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const faultsPage = "../../docs/reference/faults.md"

// The page repeats the table, and it has each fault that a simulator can make.
func TestMatrixIsOnThePage(t *testing.T) {
	text, err := os.ReadFile(faultsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## In the simulator\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var want []string
	for _, f := range matrix {
		list := strings.Trim(fmt.Sprint(f.rows), "[]")
		want = append(want, fmt.Sprintf("| %s | %s | %s |", f.kind, strings.ReplaceAll(list, " ", ", "), f.how))
	}
	var got []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if len(got) == 0 || !slices.Equal(got[1:], want) {
		t.Errorf("%s: the table is not that of the code, which is\n%s", faultsPage, strings.Join(want, "\n"))
	}
	all := []int{1, 2, 3, 4, 5, 6, 9, 17, 18, 19, 20, 21, 22, 23, 24, 29, 30, 39, 47}
	if got := rows(); !slices.Equal(got, all) {
		t.Errorf("faults %v are injected, want %v", got, all)
	}
}

// A fault that never happens is told.
func TestSeldom(t *testing.T) {
	s := newStats()
	for _, f := range matrix[1:] {
		s.fault(f.kind)
	}
	var out strings.Builder
	if err := s.complete(&out, 1, enoughSeeds); err == nil || !strings.Contains(out.String(), matrix[0].kind) {
		t.Errorf("%v: %s", err, &out)
	}
	s.fault(matrix[0].kind)
	if err := s.complete(&out, 1, enoughSeeds); err != nil {
		t.Error(err)
	}
}
