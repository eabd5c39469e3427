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

// TestPub measures, small, with real processes, a real disk and a real network.
func TestPub(t *testing.T) {
	tiny := pubSizes{
		queues: []int{1, 3}, bytes: []int{300}, passes: 1, ramp: 10 * time.Millisecond, measure: 50 * time.Millisecond,
		open: 100 * time.Millisecond, piece: 20 * time.Millisecond, probeWrites: 5, turnWrites: 5,
	}
	dir := t.TempDir()
	var out bytes.Buffer
	c := &cobra.Command{}
	c.SetContext(t.Context())
	c.SetOut(&out)
	c.SetErr(&bytes.Buffer{})
	o := pubOptions{
		replicas: 1,
		dir:      dir, output: "json", want: pubWants, inFlight: 32, connections: 2, queues: tiny.queues, bytes: tiny.bytes,
	}
	err := measurePub(c, o, tiny)
	measured(t, err)
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Publish) != 2 || r.After.Rate == 0 {
		t.Fatalf("parts are missing: %s", out.Bytes())
	}
	for _, cell := range r.Publish {
		for i, s := range []sample{cell.Framed, cell.Calls, cell.Bulk, cell.Raw, cell.RawSmall} {
			if s.Median == 0 {
				t.Errorf("%d queues: probe %d is missing: %+v", cell.Queues, i, cell)
			}
		}
		if len(cell.Rows) != len(pubWants) {
			t.Errorf("rows are missing: %+v", cell)
		}
		for _, row := range cell.Rows {
			open := row.Open.Latency
			if row.Rate.Median == 0 || open.N == 0 || open.Max < open.P50 || row.RSS == 0 {
				t.Errorf("%d queues, %s: %+v", cell.Queues, row.Want, row)
			}
			// Of 32 messages in flight several share a round, or nothing would be counted here.
			if row.Want == "stored:flushed" && (row.PerFlush == nil || *row.PerFlush <= 1) {
				t.Errorf("%d queues, messages per flush round: %s", cell.Queues, maybe(row.PerFlush))
			}
		}
	}
	var text bytes.Buffer
	if err := r.writeText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 queues, 300 B, 30 in flight, 2 connections", "stored:flushed, open loop", "QUIC framed",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.Bytes())
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestJudgePub: each target is judged, in the right direction, on the row it is stated for.
func TestJudgePub(t *testing.T) {
	cell := func(queues, bytes int, rate, raw, calls, bulk float64) pubCell {
		row := pubRow{Want: "stored:flushed", Rate: sample{Median: rate}, Raw: raw, Calls: calls, Bulk: bulk}
		other := pubRow{Want: "accepted", Rate: sample{Median: 1e9}, Raw: 1e9, Calls: 1e9, Bulk: 1e9}
		return pubCell{Queues: queues, Bytes: bytes, InFlight: 256, Rows: []pubRow{other, row}}
	}
	for _, c := range []struct {
		cells []pubCell
		want  string
	}{
		{
			[]pubCell{cell(1, 256, 100, 30, 0.4, 0), cell(128, 256, 50, 0, 0, 0), cell(1, 16<<10, 1, 0, 0, 0.75)},
			"ok ok ok ok",
		},
		{
			[]pubCell{cell(1, 256, 100, 29, 0.39, 9), cell(128, 256, 49, 9, 9, 9), cell(1, 16<<10, 1, 9, 9, 0.74)},
			"no no no no",
		},
		{[]pubCell{cell(16, 256, 100, 0, 0, 0), cell(16, 16<<10, 1, 0, 0, 0)}, ""},
	} {
		r := report{Publish: c.cells}
		r.judgePub()
		var got []string
		for _, g := range r.Gates {
			got = append(got, map[bool]string{true: "ok", false: "no"}[g.OK])
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%q, want %q: %+v", s, c.want, r.Gates)
		}
	}
}
