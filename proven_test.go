package weida_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// proven is a page with a table of rows that each need a living test, or a reason why there is none (yet).
type proven struct {
	page  string
	ids   []string       // in the order of the page
	id    *regexp.Regexp // what the first cell of a row looks like
	cells int            // of a row
	proof int            // which of them names the tests
	// more says what else is wrong with a row; nil: nothing can be.
	more func(cells []string) []string
}

// rows are the table's rows, cell by cell.
func (p *proven) rows(text string) (list [][]string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line[1:], "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if p.id.MatchString(cells[0]) {
			list = append(list, cells)
		}
	}
	return list
}

// flaws says what is wrong with a page: rows that are missing, doubled, unknown or in another order, and proofs that
// prove nothing. A proof is tests, a reason, or tests and a reason: `a: TestB`, `c: TestD`; later: why.
func (p *proven) flaws(text string, tests map[string]bool) (flaws []string) {
	var seen []string
	for _, cells := range p.rows(text) {
		id := cells[0]
		if len(cells) != p.cells {
			flaws = append(flaws, fmt.Sprintf("%s: a row of %d cells, not of %d", id, len(cells), p.cells))
			continue
		}
		seen = append(seen, id)
		if slices.Contains(cells[:p.proof], "") {
			flaws = append(flaws, id+": nothing says what must hold")
		}
		more := proofFlaws(cells[p.proof], tests)
		if p.more != nil {
			more = append(more, p.more(cells)...)
		}
		for _, f := range more {
			flaws = append(flaws, id+": "+f)
		}
	}
	count := make(map[string]int)
	for _, id := range seen {
		if count[id]++; count[id] == 2 {
			flaws = append(flaws, id+": stands twice")
		}
		if !slices.Contains(p.ids, id) {
			flaws = append(flaws, id+": no such row")
		}
	}
	for _, id := range p.ids {
		if count[id] == 0 {
			flaws = append(flaws, id+": missing")
		}
	}
	if len(flaws) == 0 && !slices.Equal(seen, p.ids) {
		flaws = append(flaws, "the rows are not in order")
	}
	return flaws
}

func (p *proven) check(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(p.page)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.flaws(string(text), testsOf(t)) {
		t.Errorf("%s: %s", p.page, f)
	}
}

func numbers(list ...int) (ids []string) {
	for _, n := range list {
		ids = append(ids, fmt.Sprint(n))
	}
	return ids
}

var number = regexp.MustCompile(`^[0-9]+$`)

// The cells of a row of the fault matrix: number, what is done, what has to hold, layers, tests, last result.
const (
	faultLayers = 3
	faultProof  = 4
	faultResult = 5
)

var (
	faultLayer = regexp.MustCompile(`^[VSKFBN](, [VSKFBN])*$`)
	// lastResult is what became of the tests of a row, and when.
	lastResult = regexp.MustCompile(`^(((passed|FAILED)( [-0-9]{10})(; skipped: .*)?)|skipped [-0-9]{10}|not run|–)$`)
)

func faultMatrix() *proven {
	p := &proven{page: "docs/reference/faults.md", id: number, cells: 6, proof: faultProof}
	for n := 1; n <= 48; n++ {
		p.ids = append(p.ids, fmt.Sprint(n))
	}
	p.more = func(cells []string) (flaws []string) {
		if !faultLayer.MatchString(cells[faultLayers]) {
			flaws = append(flaws, fmt.Sprintf("%q are no layers", cells[faultLayers]))
		}
		if r := cells[faultResult]; !lastResult.MatchString(r) {
			flaws = append(flaws, fmt.Sprintf("%q is no result", r))
		} else if none := !testNamed.MatchString(cells[faultProof]); none != (r == "–") {
			flaws = append(flaws, "a result without a test, or a test without one")
		}
		return flaws
	}
	return p
}

func fieldCases() *proven {
	return &proven{
		page: "docs/reference/field-cases.md", id: number, cells: 4, proof: 3,
		ids: numbers(1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 51, 52, 54, 56, 57),
	}
}

// switchedRules is the table of rules that were left out to see whether that is noticed.
func switchedRules() *proven {
	return &proven{
		page: "docs/reference/faults.md", cells: 4, proof: 2, id: regexp.MustCompile("^`[a-z-]+`$"),
		ids: []string{"`flush-before-ack`", "`body-before-entry`", "`digest`", "`directory-flush`", "`incarnation`"},
	}
}

// TestSwitchedRules: each of these rules stands once, with the tests that leave it out and demand that it is missed,
// and fuzz/crash can leave it out.
func TestSwitchedRules(t *testing.T) {
	p := switchedRules()
	p.check(t)
	text, err := os.ReadFile("fuzz/crash/broken.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range p.ids {
		if !bytes.Contains(text, []byte(strings.ReplaceAll(id, "`", `"`))) {
			t.Errorf("fuzz/crash --break does not know %s", id)
		}
	}
}

// TestFaultMatrix: each row of the fault matrix stands once, with living tests or a reason (W-74, G-2).
func TestFaultMatrix(t *testing.T) { faultMatrix().check(t) }

// TestFieldCases: each public report stands once, with living tests or a reason, and the comment of one of its tests
// names the report.
func TestFieldCases(t *testing.T) {
	p := fieldCases()
	p.check(t)
	text, err := os.ReadFile(p.page)
	if err != nil {
		t.Fatal(err)
	}
	said := commentsOf(t)
	for _, cells := range p.rows(string(text)) {
		for _, report := range regexp.MustCompile(`[\w-]+ \d+`).FindAllString(before(cells[1], ":"), -1) {
			found := false
			for _, m := range testNamed.FindAllStringSubmatch(cells[p.proof], -1) {
				found = found || strings.Contains(said[m[1]], report)
			}
			if !found {
				t.Errorf("%s: %s: no test of it names %s in its comment", p.page, cells[0], report)
			}
		}
	}
}

func before(text, mark string) string {
	head, _, _ := strings.Cut(text, mark)
	return head
}

// testNamed finds the tests in a proof.
var testNamed = regexp.MustCompile("`([\\w/]+: (?:Test|Fuzz)\\w+(?:/\\w+)?)`")

// TestProvenRules spoils a good page in each way that its test must see.
func TestProvenRules(t *testing.T) {
	tests := map[string]bool{"wal: TestA": true}
	good := func() (rows []string) {
		for _, id := range faultMatrix().ids {
			rows = append(rows, "| "+id+" | what | holds | S, K | `wal: TestA` | passed 2026-11-30 |")
		}
		return rows
	}
	row := func(text string) func([]string) []string { return func(r []string) []string { r[3] = text; return r } }
	for _, c := range []struct {
		want  string
		spoil func([]string) []string
	}{
		{"", func(r []string) []string { return r }},
		{"", row("| 4 | what | holds | B | later: there is none yet | – |")},
		{"", row("| 4 | what | holds | B | `wal: TestA`; later: the rest | FAILED 2026-11-30 |")},
		{"", row("| 4 | what | holds | B | `wal: TestA` | passed 2026-11-30; skipped: `wal: TestA` |")},
		{"", func(r []string) []string { return append(r, "| fault | what | happens |", "| --- | --- | --- |") }},
		{"4: missing", row("")},
		{"4: a row of 3 cells, not of 6", row("| 4 | what | holds |")},
		{"4: nothing says", row("| 4 | what | | S | `wal: TestA` | passed 2026-11-30 |")},
		{"4: neither a test nor a reason", row("| 4 | what | holds | S | | – |")},
		{"4: there is no test wal: TestGone", row("| 4 | what | holds | S | `wal: TestGone` | passed 2026-11-30 |")},
		{`4: "Q" are no layers`, row("| 4 | what | holds | Q | `wal: TestA` | passed 2026-11-30 |")},
		{`4: "good" is no result`, row("| 4 | what | holds | S | `wal: TestA` | good |")},
		{"4: a result without a test", row("| 4 | what | holds | S | later: not yet | passed 2026-11-30 |")},
		{"4: a result without a test", row("| 4 | what | holds | S | `wal: TestA` | – |")},
		{"4: stands twice", func(r []string) []string { return append(r, r[3]) }},
		{"49: no such row", func(r []string) []string { return append(r, strings.Replace(r[3], "4", "49", 1)) }},
		{"not in order", func(r []string) []string { r[0], r[1] = r[1], r[0]; return r }},
	} {
		got := strings.Join(faultMatrix().flaws(strings.Join(c.spoil(good()), "\n"), tests), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("found %q, want %q", got, c.want)
		}
	}
}

// TestFaultResults runs every test of the fault matrix and writes what became of it into the page, with
// WEIDA_RESULTS=1; the other variables (WEIDA_CLUSTER, WEIDA_POWERCUT, …) decide what of it runs.
func TestFaultResults(t *testing.T) {
	if os.Getenv("WEIDA_RESULTS") == "" {
		t.Skip("WEIDA_RESULTS=1 runs all tests of the fault matrix and notes the results in the page")
	}
	p := faultMatrix()
	text, err := os.ReadFile(p.page)
	if err != nil {
		t.Fatal(err)
	}
	became := resultsOf(t, testNamed.FindAllStringSubmatch(string(text), -1))
	var lines []string
	for line := range strings.Lines(string(text)) {
		if rows := p.rows(line); len(rows) == 1 && len(rows[0]) == p.cells {
			cells := rows[0]
			cells[faultResult] = resultOf(cells[faultProof], became)
			line = "| " + strings.Join(cells, " | ") + " |\n"
		}
		lines = append(lines, line)
	}
	if err := os.WriteFile(p.page, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// resultOf is the result of a row.
func resultOf(proof string, became map[string]string) string {
	var skipped []string
	word, any := "passed", false
	for _, m := range testNamed.FindAllStringSubmatch(proof, -1) {
		switch became[m[1]] {
		case "pass":
			any = true
		case "skip":
			skipped = append(skipped, "`"+m[1]+"`")
		default: // it failed, or did not run
			word, any = "FAILED", true
		}
	}
	day := time.Now().UTC().Format(time.DateOnly)
	switch {
	case !any && len(skipped) == 0:
		return "–"
	case !any:
		return "skipped " + day
	case len(skipped) > 0:
		return fmt.Sprintf("%s %s; skipped: %s", word, day, strings.Join(skipped, ", "))
	}
	return word + " " + day
}

// resultsOf runs tests, package by package: pass, fail or skip, by "package: Name".
func resultsOf(t *testing.T, named [][]string) map[string]string {
	packages := make(map[string][]string)
	for _, m := range named {
		pkg, name, _ := strings.Cut(m[1], ": ")
		packages[pkg] = append(packages[pkg], name)
	}
	became := make(map[string]string)
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		dir := "./" + pkg
		if pkg == module {
			dir = "."
		}
		pattern := "^(" + strings.Join(slices.Compact(slices.Sorted(slices.Values(packages[pkg]))), "|") + ")$"
		cmd := exec.Command("go", "test", "-count=1", "-json", "-timeout=30m", "-run", pattern, dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		t.Logf("%s: %v", pkg, err)
		for line := range bytes.Lines(out) {
			var e struct{ Action, Test string }
			if json.Unmarshal(line, &e) == nil && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
				became[pkg+": "+e.Test] = e.Action
			}
		}
	}
	return became
}
