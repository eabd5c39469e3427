package doctor

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Report is what the doctor says: the judgement, and the facts behind it.
type Report struct {
	Worst  Verdict         `json:"worst"` // fail, warn or ok
	Counts map[Verdict]int `json:"counts"`
	Checks []Check         `json:"checks"`
	Facts  *Facts          `json:"facts"`
}

// NewReport judges facts.
func NewReport(f *Facts) *Report {
	checks := Judge(f)
	r := &Report{Worst: OK, Counts: Counts(checks), Checks: checks, Facts: f}
	for _, v := range []Verdict{Warn, Fail} {
		if r.Counts[v] > 0 {
			r.Worst = v
		}
	}
	return r
}

// Text is the report for people, width columns wide; what does not fit goes on in the next line.
func (r *Report) Text(width int) []byte {
	var b bytes.Buffer
	f := r.Facts
	name := f.Node
	if name != "" {
		name += ", "
	}
	fmt.Fprintf(&b, "%sdata in %s\n\n", name, f.Data)
	longest := 0
	for _, c := range r.Checks {
		longest = max(longest, utf8.RuneCountInString(c.Name))
	}
	indent := len("skipped") + 2 + longest + 2
	for _, c := range WorstFirst(r.Checks) {
		pad := strings.Repeat(" ", longest-utf8.RuneCountInString(c.Name))
		fmt.Fprintf(&b, "%-7s  %s%s  %s\n", c.Verdict, c.Name, pad, wrap(c.Found, indent, width))
		if c.Do != "" {
			fmt.Fprintf(&b, "%*s-> %s\n", indent, "", wrap(c.Do, indent+3, width))
		}
	}
	if f.Flush.Why == "" {
		fmt.Fprintf(&b, "\n%d writes of 4 KiB, each with its flush, on %s at %s:\n", f.Flush.Writes, f.Mount.Type,
			f.Mount.Point)
		histogram(&b, f.Flush.Bars)
	}
	fmt.Fprintf(&b, "\n%d ok, %d to look at, %d failed, %d skipped\n", r.Counts[OK], r.Counts[Warn], r.Counts[Fail],
		r.Counts[Skipped])
	return b.Bytes()
}

// barWidth is the length of the longest bar.
const barWidth = 40

func histogram(b *bytes.Buffer, bars []Bucket) {
	if len(bars) == 0 {
		return
	}
	most := slices.MaxFunc(bars, func(a, b Bucket) int { return a.Count - b.Count }).Count
	w := tabwriter.NewWriter(b, 0, 8, 1, ' ', tabwriter.AlignRight)
	for _, one := range bars {
		full := (one.Count*barWidth + most - 1) / most // one that is there is seen
		fmt.Fprintf(w, "  %s\tto %s\t%d\t %s\n", micros(one.From), micros(one.To), one.Count, strings.Repeat("#", full))
	}
	_ = w.Flush() // a buffer takes everything
}

// wrap breaks a text at spaces; lines behind the first begin at indent.
func wrap(text string, indent, width int) string {
	room := max(width-indent, 30)
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > room:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
