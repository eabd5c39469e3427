package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestMain lets the test binary be its own child, as the bench's binary is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want sample
	}{
		{[]float64{3}, sample{3, 3, 3, 1}},
		{[]float64{9, 1, 5}, sample{5, 1, 9, 3}},
		{[]float64{4, 1, 2, 9}, sample{3, 1, 9, 4}},
	} {
		if got := summarize(c.in); got != c.want {
			t.Errorf("%v: %v, want %v", c.in, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	sorted := make([]time.Duration, 100)
	for i := range sorted {
		sorted[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0, 1}, {0.5, 50}, {0.99, 99}, {1, 100}} {
		if got := quantile(sorted, c.q); got != c.want {
			t.Errorf("%v: %v, want %v", c.q, got, c.want)
		}
	}
	if got := quantile(sorted[:1], 0.99); got != 1 {
		t.Errorf("of one: %v", got)
	}
}

// TestJudge: each target is judged, in the right direction.
func TestJudge(t *testing.T) {
	r := &report{
		Rounds: []roundRow{
			{Groups: 1, Strategy: flusherAuto, Plain: 0.8},
			{Groups: 128, Strategy: flusherAuto, Parallel: 3},
			{Groups: 1000, Strategy: flusherAuto, Parallel: 1.9},
			{Groups: 1000, Strategy: oneParallel, Parallel: 1},
		},
		Appends: []appendRow{
			{Groups: 16, Way: storeWay}, {Groups: 128, Way: storeWay, Plain: 4}, {Groups: 128, Way: plainWay},
		},
		Memory: &memory{RSSOne: 10 << 20, RSSMany: 50 << 20, DiskMany: 99 << 20},
		Reopen: &reopen{Seconds: sample{Median: 2.9}},
	}
	r.judge()
	var got []string
	for _, g := range r.Gates {
		got = append(got, map[bool]string{true: "ok", false: "no"}[g.OK])
	}
	if s := strings.Join(got, " "); s != "no ok no ok no ok ok" {
		t.Errorf("%s: %+v", s, r.Gates)
	}
}

// TestWAL runs every part, small, on real files.
func TestWAL(t *testing.T) {
	tiny := sizes{
		groups: []int{1, 5}, bytes: []int{256}, samples: 2, probeWrites: 5, appendMillis: 20,
		heapMessages: 200, idleGroups: 5, reopenGroups: 5, reopenMessages: 20,
	}
	var out bytes.Buffer
	c := &cobra.Command{}
	c.SetOut(&out)
	c.SetErr(&bytes.Buffer{})
	dir := t.TempDir()
	err := measureWAL(c, walOptions{dir: dir, output: "json", only: walParts}, tiny)
	measured(t, err)
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rounds) != 6+5 || len(r.Appends) != 2*4 || r.Memory == nil || r.Reopen == nil || r.After.P50 == 0 {
		t.Errorf("parts are missing: %s", out.Bytes())
	}
	var text bytes.Buffer
	if err := r.writeText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"flush rounds", "flushed appends", "idle", "reopen", "Flusher auto"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.Bytes())
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// measured fails a test whose measurement failed, and skips it where the temporary directory is on no disk.
func measured(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "in memory") {
		t.Skip("the temporary directory is in memory, and what is measured is a disk: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
