package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// noticedWithin are so many seeds, from 1 on, within which random runs notice what no directed test is for.
const noticedWithin = 12

func TestMutations(t *testing.T) {
	for _, m := range mutationList {
		if m.directed != "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			if _, problem := m.notice(1, noticedWithin); problem == "" {
				t.Errorf("%d seeds, and nobody noticed", noticedWithin)
			} else {
				t.Logf("%.300s", problem)
			}
		})
	}
}

// The tests that are named for a mutation exist.
func TestMutationsHaveTests(t *testing.T) {
	for _, m := range mutationList {
		pkg, test, ok := strings.Cut(m.directed, ": ")
		if !ok {
			continue
		}
		files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+test+"(")
		}
		if !found {
			t.Errorf("%s: there is no %s", m.name, m.directed)
		}
	}
}
