package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestBeside plays one pair, small, with a real process.
func TestBeside(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	c := &cobra.Command{}
	c.SetContext(t.Context())
	c.SetOut(&out)
	c.SetErr(&bytes.Buffer{})
	o := besideOptions{
		dir: dir, output: "json", what: "nothing", replicas: 1, bytes: 64, rate: 100, pairs: 1,
		phase: 100 * time.Millisecond, body: 1 << 20, probes: 5,
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	err := runBeside(c, o)
	measured(t, err)
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	b := r.Beside
	if b == nil || len(b.Phases) != 3 || b.PeakRSS == 0 {
		t.Fatalf("parts are missing: %s", out.Bytes())
	}
	for i, p := range b.Phases {
		if p.Trouble != (i == 1) || p.Messages < 9 || p.Confirmed.P50 <= 0 || p.Delivered.P50 <= 0 {
			t.Errorf("phase %d: %+v", i, p)
		}
	}
	var text bytes.Buffer
	if err := r.writeText(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "p99, nothing by well") {
		t.Errorf("the table lacks the ratio:\n%s", text.Bytes())
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestCompare: a phase of trouble is compared with what is around it, and the noise is between phases without.
func TestCompare(t *testing.T) {
	all := func(d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, 10) }
	b := &besideRun{phases: []phase{{}, {trouble: true}, {}, {trouble: true}, {}}}
	c := b.compare([][]time.Duration{all(10), all(30), all(20), all(10), all(10)})
	if want := (sample{Median: 1, Min: 0.5, Max: 1.5, N: 2}); c.Ratio != want {
		t.Errorf("ratio %+v, want %+v", c.Ratio, want)
	}
	if want := (sample{Median: 2, Min: 2, Max: 2, N: 2}); c.Noise != want {
		t.Errorf("noise %+v, want %+v", c.Noise, want)
	}
	if c.Well.Max != 0.02 || c.Trouble.Max != 0.03 || c.Trouble.P50 != 0.01 {
		t.Errorf("%+v", c)
	}
}

// TestJudgeBeside: each trouble has its limit, and a large body three more.
func TestJudgeBeside(t *testing.T) {
	for _, c := range []struct {
		what      string
		ratio     float64
		elections int64
		rss       int64
		want      string
	}{
		{"nothing", 9, 9, 9 << 30, ""},
		{"stalled", 1.3, 9, 9 << 30, "ok ok"},
		{"damaged", 1.4, 0, 0, "no no"},
		{"large", 1.9, 0, 191 << 20, "ok ok ok ok"},
		{"large", 2.1, 1, 192 << 20, "no no no no"},
	} {
		x := comparison{Ratio: sample{Median: c.ratio}}
		r := report{Beside: &beside{
			What: c.what, Confirmed: x, Delivered: x, Elections: c.elections, PeakRSS: c.rss,
		}}
		r.judgeBeside()
		var got []string
		for _, g := range r.Gates {
			got = append(got, map[bool]string{true: "ok", false: "no"}[g.OK])
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v: %q", c, s)
		}
	}
}

// TestBetween: a phase has the messages that were due in it, whenever they were answered.
func TestBetween(t *testing.T) {
	began := time.Now()
	at := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	w := &watched{
		pace: &pacer{began: began, every: time.Second, bells: make([]chan struct{}, 1)}, sent: 5,
		confirmed: []time.Duration{0, 1, 2, 3, 4}, delivered: []time.Duration{0, 1, 2, 3, 4},
	}
	for _, c := range []struct {
		from, to time.Time
		want     []time.Duration
	}{
		{at(0), at(2), []time.Duration{0, 1}},
		{at(1).Add(time.Millisecond), at(4), []time.Duration{2, 3}},
		{at(3), at(9), []time.Duration{3, 4}},
	} {
		if got, _ := w.between(c.from, c.to); !slices.Equal(got, c.want) {
			t.Errorf("%v to %v: %v, want %v", c.from.Sub(began), c.to.Sub(began), got, c.want)
		}
	}
}
