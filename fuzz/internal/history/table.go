package history

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Table says in lines what a history holds, how each rule was judged, what was lost, and what could not be judged.
func (r *Report) Table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	n := &r.Counted
	row("events, span\t%d, %v", n.Events, n.Span().Round(time.Millisecond))
	row("published: confirmed, below request\t%d: %d, %d", n.Published, n.Confirmed, n.Below)
	row("refused, indeterminate\t%d, %d", n.Refused, n.Unknown)
	row("delivered, of these again, settled\t%d, %d, %d", n.Delivered, n.Redelivered, n.Settled)
	row("queues looked through, dumps, entries\t%d, %d, %d", n.Audits, n.Dumps, n.Entries)
	row("faults\t%s", r.faults())
	row("\t")
	row("rule\tjudged\tbroken\t")
	for _, x := range rules {
		t := r.Rules[x.Rule]
		word := fmt.Sprint(t.Broken)
		switch {
		case t.Broken > 0:
			word = strings.ToUpper("broken ") + word
		case t.Judged == 0:
			word = "not judged"
		}
		row("%s  %s\t%d\t%s\t", x.Rule, x.words, t.Judged, word)
	}
	_ = w.Flush() // memory takes everything
	r.losses(&b)
	for _, u := range r.Unjudged {
		fmt.Fprintf(&b, "not judged: %s\n", u)
	}
	return b.String()
}

func (r *Report) faults() string {
	var list []string
	for kind, n := range r.Counted.Faults {
		list = append(list, fmt.Sprintf("%s %d", kind, n))
	}
	if len(list) == 0 {
		return "none"
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// losses says which part of what each producer sent is missing.
func (r *Report) losses(b *strings.Builder) {
	for _, l := range r.Lost {
		var parts []string
		for _, p := range []Part{Whole, Prefix, Middle, Suffix} {
			if n := l.Parts[p]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", p, n))
			}
		}
		fmt.Fprintf(b, "lost of queue %s (uid %d), %s: %s; the evidence and the faults allow %d of them\n", l.Queue.Name,
			l.Queue.UID, l.Producer, strings.Join(parts, ", "), l.Allowed)
	}
}

// Text is a violation with the events that show it. files are those of a history that was read, or nil.
func (v *Violation) Text(files []string) string {
	var b strings.Builder
	fmt.Fprintln(&b, v.Error())
	quoted, err := Quote(files, v.Places)
	if err != nil {
		quoted = append(quoted, err.Error())
	}
	for i := range v.Events {
		quoted = append(quoted, fmt.Sprintf("%.600s", v.Events[i].String()))
	}
	for _, q := range quoted {
		fmt.Fprintln(&b, "    "+q)
	}
	return b.String()
}
