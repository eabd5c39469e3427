package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Rule is what a history is judged by.
type Rule string

// The rules. A message is identified by producer and sequence, or by its bytes where there is no producer id.
const (
	// Form: the history is well formed; what breaks it is a mistake of whoever wrote it.
	Form Rule = "form"
	// Phantom: what is delivered and stored was published before, to that queue, byte for byte.
	Phantom Rule = "Q1"
	// Loss: what was confirmed with evidence is there until it is taken out, but for what the faults since may have cost
	// that evidence.
	Loss Rule = "Q2"
	// Silence: of what may be lost nothing is lost in silence. It is asked of replicated evidence: a queue with one
	// replica cannot know what its disk forgot.
	Silence Rule = "Q2b"
	// Offsets: an offset and term stand for one message, in every answer, delivery, audit and dump of every node.
	Offsets Rule = "Q3"
	// Agreement: replicas hold the same entries, and in the end all of them.
	Agreement Rule = "Q4"
	// Order: messages of one producer that were sent once stand in the order of their sequence.
	Order Rule = "Q5"
	// DeliveryOrder: first deliveries of one session rise.
	DeliveryOrder Rule = "Q5b"
	// Duplicates: a sequence of a producer with an id is stored once.
	Duplicates Rule = "Q6"
	// Copies: of a message without a producer id there are no more copies than sendings that were not refused.
	Copies Rule = "Q6b"
	// Attempts: deliveries of a message have different attempts, from 1.
	Attempts Rule = "Q6c"
	// Settles: what a confirmed settle took out is not delivered with a later attempt, and does not return.
	Settles Rule = "Q7"
	// OneHolder: of a message's attempts one at most takes it out.
	OneHolder Rule = "Q7b"
	// Held: as many disks hold a message as its evidence says, at any later time.
	Held Rule = "Q8b"
	// Refusals: a message of which every sending was refused is nowhere.
	Refusals Rule = "Q9"
	// Liveness: when the faults are over, every queue takes and gives messages again, and nothing is wrong any more.
	Liveness Rule = "Q10"
	// Counts: a queue's own counts are what went in and out.
	Counts Rule = "Q11"
	// Linear: making, deleting, publishing, delivering and settling have an order in which all results are right.
	Linear Rule = "Q12"
)

// rules are all of them, in the order of tables, in few words.
var rules = []struct {
	Rule
	words string
}{
	{Form, "the history is well formed"},
	{Phantom, "nothing was made up or changed"},
	{Loss, "nothing confirmed is lost"},
	{Silence, "no loss is silent"},
	{Offsets, "an offset is one message"},
	{Agreement, "replicas agree"},
	{Order, "a producer's order is kept"},
	{DeliveryOrder, "first deliveries rise"},
	{Duplicates, "a sequence is stored once"},
	{Copies, "no copy without a sending"},
	{Attempts, "every delivery is another attempt"},
	{Settles, "settled does not return"},
	{OneHolder, "one attempt takes it out"},
	{Held, "disks hold what evidence says"},
	{Refusals, "refused is nowhere"},
	{Liveness, "all goes on after the faults"},
	{Counts, "the queue's books are right"},
	{Linear, "one order explains all results"},
}

// Violation is one contradiction: the rule, what exactly, and the events that show it.
type Violation struct {
	Rule   Rule
	What   string
	Events []Line   // of a live checker
	Places []Source // of a history that was read
}

func (v *Violation) Error() string { return fmt.Sprintf("%s: %s", v.Rule, v.What) }

// Part is which part of what one producer had confirmed is missing: the kind of loss names the bug.
type Part string

// The parts.
const (
	Prefix Part = "prefix" // before everything that is there: a beginning that was trimmed or replaced
	Middle Part = "middle" // others before it and behind it are there
	Suffix Part = "suffix" // behind everything that is there: an end that was cut
	Whole  Part = "whole"  // nothing of the producer's is there
)

// Losses counts lost messages of one producer of one queue.
type Losses struct {
	Queue    Queue
	Producer string // with an id; of others the stream
	Parts    map[Part]int
	Allowed  int // of them the evidence and the faults allow
}

// Tally is how often a rule was asked and broken.
type Tally struct{ Judged, Broken int }

// Report is what a checker found.
type Report struct {
	Counted  Counted
	Rules    map[Rule]Tally
	Safety   []Violation // the first ones of each rule
	Liveness []Violation // the same of rule Liveness, which is kept apart
	Lost     []Losses
	// Unjudged are things that this history cannot decide, in words: none of them is a success.
	Unjudged []string
}

// Counted is how much a history holds.
type Counted struct {
	Events, Published, Confirmed, Below, Refused, Unknown int
	Delivered, Redelivered, Settled                       int
	Audits, Dumps, Entries                                int
	Faults                                                map[FaultKind]int
	First, Last                                           Time
}

// Span is the time from the first event to the last.
func (c *Counted) Span() time.Duration { return time.Duration(c.Last - c.First) }

// OK says that no rule is broken.
func (r *Report) OK() bool { return len(r.Safety) == 0 && len(r.Liveness) == 0 }

// violationsMax bounds those of one rule that are kept: one mistake makes many.
const violationsMax = 20

// breach notes a violation with the events that show it.
func (c *Checker) breach(rule Rule, shown []mark, format string, args ...any) {
	t := c.tally(rule)
	if t.Broken++; t.Broken > violationsMax {
		return
	}
	v := Violation{Rule: rule, What: fmt.Sprintf(format, args...)}
	if c.line != nil {
		shown = append(slices.Clip(shown), c.here())
	}
	for _, m := range shown {
		switch {
		case m.line != nil && !slices.ContainsFunc(v.Events, func(l Line) bool { return l.Event == m.line.Event }):
			v.Events = append(v.Events, *m.line)
		case m.source.File > 0 && !slices.Contains(v.Places, m.source):
			v.Places = append(v.Places, m.source)
		}
	}
	if rule == Liveness {
		c.report.Liveness = append(c.report.Liveness, v)
	} else {
		c.report.Safety = append(c.report.Safety, v)
	}
}

func (c *Checker) tally(rule Rule) *Tally {
	t := c.tallies[rule]
	if t == nil {
		panic("bug: history: a rule without a name: " + string(rule))
	}
	return t
}

// judged notes that a rule was asked.
func (c *Checker) judged(rule Rule) { c.tally(rule).Judged++ }

func (c *Checker) unjudged(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(c.report.Unjudged, text) {
		c.report.Unjudged = append(c.report.Unjudged, text)
	}
}

// finishReport copies the tallies.
func (c *Checker) finishReport() *Report {
	c.report.Rules = make(map[Rule]Tally)
	for rule, t := range c.tallies {
		c.report.Rules[rule] = *t
	}
	slices.SortFunc(c.report.Lost, func(a, b Losses) int {
		return cmp.Or(cmp.Compare(a.Queue.UID, b.Queue.UID), cmp.Compare(a.Producer, b.Producer))
	})
	c.report.Counted.Faults = maps.Clone(c.report.Counted.Faults)
	return &c.report
}
