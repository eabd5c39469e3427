package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"weida/fuzz/internal/process"
)

// breakable are the rules that a run can be without, to see whether it would notice, and the switches that leave each
// out of a binary that has them. What users run has none: process.Build looks.
var breakable = []struct{ name, switches string }{
	{"flush-before-ack", "wal.advanceEarly raftstore.answersWait"},
	{"body-before-entry", "raftstore.gate"},
	{"digest", "raftstore.bodyProof"},
	{"directory-flush", "wal.createDirFlush"},
	{"incarnation", "raftstore.incarnation"},
}

// breakables are their names.
func breakables() string {
	var names []string
	for _, b := range breakable {
		names = append(names, b.name)
	}
	return strings.Join(names, ", ")
}

// breakRule has every node from now on be without a rule, none for "".
func breakRule(name string) error {
	if name == "" {
		return nil
	}
	for _, b := range breakable {
		if b.name == name {
			return os.Setenv(process.OffVariable, b.switches)
		}
	}
	return fmt.Errorf("there is no rule %q to break; there are %s", name, breakables())
}

// tellBroken says whether a run without a rule noticed. It is wrong with the run, not with the cluster, if it did not.
func (res *result) tellBroken() string {
	if !res.failed() {
		return fmt.Sprintf("NOT NOTICED: without the rule %s nothing was found in %v\n", res.o.broken,
			res.o.duration.Round(time.Second))
	}
	return fmt.Sprintf("NOTICED: without the rule %s, after %v\n", res.o.broken, res.noticed.Round(time.Second))
}
