package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report writes what the passes showed; errFound if something is wrong.
func (r *run) report(out io.Writer, format string) error {
	rows := r.rows()
	var errs []string
	for _, err := range r.good.errors() {
		errs = append(errs, err.Error())
	}
	found, doubt := len(errs) > 0, judgeTimes(rows)
	for _, w := range rows {
		found = found || len(w.Problems) > 0 || len(w.Slow) > 0
	}
	var err error
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = e.Encode(struct {
			Passes     int      `json:"passes"`
			Rate       int      `json:"rate"`
			Size       int      `json:"size"`
			GoodErrors []string `json:"good_client_errors"`
			Unsure     string   `json:"unsure"` // why times are not judged
			Rows       []row    `json:"rows"`
		}{r.o.passes, r.o.rate, r.o.size, errs, doubt, rows})
	} else {
		_, err = io.WriteString(out, r.table(rows, errs, doubt))
	}
	if err == nil && found {
		return errFound
	}
	return err
}

func (r *run) table(rows []row, errs []string, doubt string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "good client: %d messages of %d bytes a second, stored:flushed, in milliseconds from when each was "+
		"due; %d passes\n\n", r.o.rate, goodSize, r.o.passes)
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	line := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
	line("", "publish", "", "", "p99 by before", "", "deliver", "", "", "p99 by", "passes")
	line("attack", "p50", "p99", "max", "all", "each pass", "p50", "p99", "max", "before", "quiet")
	cells := func(p, d times) []string {
		return []string{ms(p.P50), ms(p.P99), ms(p.Most), "", "", ms(d.P50), ms(d.P99), ms(d.Most), "", ""}
	}
	if len(rows) > 0 {
		line(append([]string{"(before)"}, cells(rows[0].PublishBefore, rows[0].DeliverBefore)...)...)
	}
	for _, x := range rows {
		c := cells(x.PublishDuring, x.DeliverDuring)
		c[3], c[8] = factor(x.PublishRatio), factor(x.DeliverRatio)
		if x.Quiet > 0 {
			c[4] = fmt.Sprintf("%.2f-%.2f", x.EachPublish[0], x.EachPublish[x.Quiet-1])
		}
		c[9] = fmt.Sprintf("%d of %d", x.Quiet, x.Passes)
		line(append([]string{x.Attack}, c...)...)
	}
	_ = w.Flush() // memory takes everything
	b.WriteString("\nthe node: before / at most during / after\n\n")
	line("attack", "RSS MiB", "in use MiB", "goroutines", "files", "connections", "processors", "back s", "newcomers in")
	for _, x := range rows {
		three := func(f func(levels) int64) string {
			return fmt.Sprintf("%d/%d/%d", f(x.Calm), f(x.Most), f(x.After))
		}
		rss := three(func(l levels) int64 { return l.RSS >> 20 })
		live := three(func(l levels) int64 { return l.Live >> 20 })
		goroutines := three(func(l levels) int64 { return l.Goroutines })
		files, conns := three(func(l levels) int64 { return l.Files }), three(func(l levels) int64 { return l.Conns })
		line(x.Attack, rss, live, goroutines, files, conns, fmt.Sprintf("%.2f/%.2f", x.CPUBefore, x.CPUDuring),
			fmt.Sprintf("%.1f", x.BackSeconds), fmt.Sprintf("%d of %d", x.Newcomers-x.NewcomersRefused, x.Newcomers))
	}
	_ = w.Flush() // likewise
	b.WriteString("\nthe attackers\n\n")
	for _, x := range rows {
		line(x.Attack, "did", counts(x.Tally.Did))
		line("", "saw", counts(x.Tally.Refusals))
	}
	_ = w.Flush() // likewise
	b.WriteString("\n")
	clean := len(errs) == 0
	for _, err := range errs {
		fmt.Fprintf(&b, "WRONG good client: %s\n", err)
	}
	for _, x := range rows {
		for _, p := range x.Problems {
			fmt.Fprintf(&b, "WRONG %s: %s\n", x.Attack, p)
		}
		for _, p := range x.Slow {
			fmt.Fprintf(&b, "SLOW  %s: %s\n", x.Attack, p)
		}
		clean = clean && len(x.Problems) == 0
	}
	if clean {
		b.WriteString("the good client had no error, every limit held, everything came back\n")
	}
	if doubt != "" {
		fmt.Fprintln(&b, doubt)
	} else if !slices.ContainsFunc(rows, func(x row) bool { return len(x.Slow) > 0 }) {
		b.WriteString("no p99 more than doubled\n")
	}
	return b.String()
}

// ms is a time in milliseconds; none was measured where it is 0.
func ms(d time.Duration) string {
	if d == 0 {
		return unmeasured
	}
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}

func factor(r float64) string {
	if r == 0 {
		return unmeasured
	}
	return fmt.Sprintf("%.2f", r)
}

// unmeasured stands where there is no number: others used the machine in all passes.
const unmeasured = "-"

// counts are names with numbers, the largest first.
func counts(m map[string]uint64) string {
	if len(m) == 0 {
		return "nothing"
	}
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if m[a] != m[b] {
			return int(int64(m[b]) - int64(m[a]))
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", m[name], name)
	}
	return strings.Join(names, ", ")
}
