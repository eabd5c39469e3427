package weida_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const requirementsPage = "docs/reference/requirements.md"

// requirementIDs are the requirements that there are, in the order of the page: T-1 to T-64, and so on.
func requirementIDs() (list []string) {
	for _, r := range []struct {
		prefix      string
		first, last int
	}{
		{"T-", 1, 64},
		{"D-", 1, 23},
		{"Q-", 1, 20},
		{"B-229.", 1, 11},
		{"B-230.", 1, 4},
		{"B-231.", 1, 5},
		{"W-", 1, 15},
		{"W-", 20, 32},
		{"W-", 40, 48},
		{"W-", 50, 55},
		{"W-", 60, 64},
		{"W-", 70, 77},
		{"X-", 1, 16},
		{"G-", 1, 5},
	} {
		for n := r.first; n <= r.last; n++ {
			list = append(list, fmt.Sprint(r.prefix, n))
		}
	}
	return list
}

var (
	// requirementTest is one test that proves a row: `package: Name`, or `package: Name/script`.
	requirementTest = regexp.MustCompile("^`([\\w/]+): ((?:Test|Fuzz)\\w+)(/\\w+)?`$")
	// requirementReason is why there is no test, or not yet for all of the row.
	requirementReason = regexp.MustCompile(`^(superseded|later|out of scope):(.*)$`)
)

// requirements is the page of them: id, what must hold, proof.
func requirements() *proven {
	return &proven{
		page: requirementsPage, ids: requirementIDs(), id: regexp.MustCompile(`^[A-Z]-[0-9.]+$`), cells: 3, proof: 2,
	}
}

func proofFlaws(proof string, tests map[string]bool) (flaws []string) {
	named, reason := proof, ""
	if requirementReason.MatchString(proof) {
		named, reason = "", proof
	} else if head, tail, ok := strings.Cut(proof, "; "); ok {
		named, reason = head, tail
	}
	if named == "" && reason == "" {
		return []string{"neither a test nor a reason"}
	}
	if named != "" {
		for _, name := range strings.Split(named, ", ") {
			m := requirementTest.FindStringSubmatch(name)
			if m == nil {
				flaws = append(flaws, fmt.Sprintf("%q is not `package: TestName`", name))
			} else if key := strings.Trim(name, "`"); !tests[key] {
				flaws = append(flaws, "there is no test "+key)
			}
		}
	}
	if reason != "" {
		m := requirementReason.FindStringSubmatch(reason)
		if m == nil {
			flaws = append(flaws, fmt.Sprintf("%q is not `superseded: …`, `later: …` or `out of scope: …`", reason))
		} else if len(strings.Fields(m[2])) < 2 {
			flaws = append(flaws, m[1]+" without a reason")
		}
	}
	return flaws
}

// testsOf are the tests and fuzz targets of the module as "package: Name", with the root as "weida"; and the scripts
// of the command line as "cmd/weida: TestScripts/name".
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	tests := make(map[string]bool)
	for _, s := range tree(t) {
		if !strings.HasSuffix(s.name, "_test.go") {
			continue
		}
		pkg := s.dir()
		if pkg == "." {
			pkg = module
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Body != nil && len(fn.Body.List) > 0 {
				tests[pkg+": "+fn.Name.Name] = true
			}
		}
	}
	scripts, err := fs.Glob(os.DirFS("."), "cmd/weida/testdata/script/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts of the command line: ", err)
	}
	for _, name := range scripts {
		tests["cmd/weida: TestScripts/"+strings.TrimSuffix(path.Base(name), ".txt")] = true
	}
	return tests
}

// TestRequirements: each requirement stands once, with tests that exist or a reason. With -v it also says which rows
// have no test although the comment of one names them: candidates for the page, to be read first.
func TestRequirements(t *testing.T) {
	p := requirements()
	p.check(t)
	text, err := os.ReadFile(p.page)
	if err != nil {
		t.Fatal(err)
	}
	named := namedInTests(t)
	for _, cells := range p.rows(string(text)) {
		if at := named[cells[0]]; len(at) > 0 && !strings.Contains(cells[p.proof], "`") {
			t.Logf("%s has no test; its id stands at %s", cells[0], strings.Join(at, ", "))
		}
	}
}

var requirementID = regexp.MustCompile(`\b(?:[TDQWXG]-\d+|B-\d+\.\d+)\b`)

// namedInTests maps ids to the tests whose comments name them.
func namedInTests(t *testing.T) map[string][]string {
	t.Helper()
	named := make(map[string][]string)
	said := commentsOf(t)
	for _, test := range slices.Sorted(maps.Keys(said)) {
		for _, id := range requirementID.FindAllString(said[test], -1) {
			named[id] = append(named[id], test)
		}
	}
	return named
}

// commentsOf are the comments of all tests, by "package: Name".
func commentsOf(t *testing.T) map[string]string {
	t.Helper()
	said := make(map[string]string)
	for _, s := range tree(t) {
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Doc != nil && strings.HasSuffix(s.name, "_test.go") && strings.HasPrefix(fn.Name.Name, "Test") {
				said[s.dir()+": "+fn.Name.Name] = strings.Join(strings.Fields(fn.Doc.Text()), " ")
			}
		}
	}
	return said
}

// TestRequirementRules spoils a good page in each way that the test must see.
func TestRequirementRules(t *testing.T) {
	tests := map[string]bool{"wal: TestA": true, "weida: TestB": true, "cmd/weida: TestScripts/s": true}
	proofs := map[string]string{
		"`wal: TestA`":                             "",
		"`wal: TestA`, `weida: TestB`":             "",
		"`cmd/weida: TestScripts/s`":               "",
		"later: there is none yet":                 "",
		"superseded: X-3 is better":                "",
		"out of scope: nobody asks":                "",
		"`wal: TestA`; later: the rest of it":      "",
		"":                                         "neither a test nor a reason",
		"`wal: TestGone`":                          "there is no test wal: TestGone",
		"`segment: TestA`":                         "there is no test segment: TestA",
		"`cmd/weida: TestScripts/gone`":            "there is no test",
		"`wal: TestA`, `wal: TestGone`":            "there is no test wal: TestGone",
		"`wal: helper`":                            "is not `package: TestName`",
		"wal: TestA":                               "is not `package: TestName`",
		"later:":                                   "later without a reason",
		"later: ":                                  "later without a reason",
		"superseded:":                              "superseded without a reason",
		"out of scope: -":                          "out of scope without a reason",
		"`wal: TestA`; later:":                     "later without a reason",
		"`wal: TestA`; someday: when there is one": "is not `superseded: …`",
		"soon": "is not `package: TestName`",
	}
	page := func(proof string) (rows []string) {
		for _, id := range requirementIDs() {
			rows = append(rows, "| "+id+" | holds | "+proof+" |")
		}
		return rows
	}
	flaws := func(rows []string) string {
		return strings.Join(requirements().flaws(strings.Join(rows, "\n"), tests), "\n")
	}
	for _, proof := range slices.Sorted(maps.Keys(proofs)) {
		want := proofs[proof]
		rows := page("`wal: TestA`")
		rows[7] = "| T-8 | holds | " + proof + " |"
		got := flaws(rows)
		if want == "" && got != "" || want != "" && (!strings.HasPrefix(got, "T-8: ") || !strings.Contains(got, want)) {
			t.Errorf("proof %q: found %q, want %q", proof, got, want)
		}
	}
	for _, c := range []struct {
		want  string
		spoil func([]string) []string
	}{
		{"T-3: missing", func(r []string) []string { return slices.Delete(r, 2, 3) }},
		{"G-5: missing", func(r []string) []string { return r[:len(r)-1] }},
		{"T-4: stands twice", func(r []string) []string { return append(r, r[3]) }},
		{"W-16: no such row", func(r []string) []string { return append(r, "| W-16 | x | later: a reason |") }},
		{"T-3: nothing says", func(r []string) []string { r[2] = "| T-3 | | later: a reason |"; return r }},
		{"T-5: a row of 2 cells, not of 3", func(r []string) []string { return append(r, "| T-5 | x |") }},
		{"not in order", func(r []string) []string { r[0], r[1] = r[1], r[0]; return r }},
	} {
		if got := flaws(c.spoil(page("later: a reason"))); !strings.Contains(got, c.want) {
			t.Errorf("found %q, want %q", got, c.want)
		}
	}
}

// TestPagesSay: what the documents have to say (G-1, G-3 to G-5, D-22, W-73, W-74), they say. It looks for the
// sentences, so whoever rewrites one decides here whether it still says it.
func TestPagesSay(t *testing.T) {
	for name, sentences := range map[string][]string{
		"docs/reference/guarantees.md": {
			"| `Accepted` |", "| `Stored(Written)` |", "| `Stored(Flushed)` |", // with what each survives
			"| `Replicated(n, flushed: false)` |", "| `Replicated(n, flushed: true)` |",
			"**the leader included**; it is the number achieved, not the number configured",
			"`Stored` without a level. The type has no such value and the decoder rejects it.",
			"`Replicated(1, …)`: *n* is at least 2.",
			"A single-replica queue cannot report `Replicated`, whatever it is configured with.",
			"`Stored(Flushed)` and `Replicated(3, false)` are **not comparable**",
			"checked **on each axis by itself**",
			"| replicas | durability | offers | refuses |",
			"| RabbitMQ quorum queue, publisher confirm | `Replicated(majority, true)` |",
			"| RabbitMQ stream | `Replicated(quorum, false)` |",
			"| Kafka `acks=all` | `Replicated(in-sync replicas at commit, false)` |",
			"| NATS JetStream, file storage, replicated | `Replicated(n, false)`; with `sync_interval: always`, `true` |",
			"Exactly-once is not promised.",
			"Never presented as success, never as failure",
		},
		"docs/reference/faults.md": {
			"| fault | confirmed `Stored(Written)` | confirmed `Stored(Flushed)` | not yet confirmed | what the node does |",
		},
		"docs/reference/protocol.md": {
			"Evidence is what a message has reached, on two axes",
		},
		"docs/explanation/acknowledgement.md": {
			"**It is what was reached, not what was asked.**",
		},
		"docs/explanation/architecture.md": {
			"## The two kinds of group", "**The control group**, one for the cluster",
			"**A queue's group**, one for each replicated queue",
			"**One raft connection carries many groups.**",
		},
		"STORE.md": {
			"A node holds several logs, one for each group it is a member of.",
			"The segmented log is instantiated per group: its bounds, its truncation, its damage and its deletion are the " +
				"group's, never the node's.",
			"The commit record follows the payload: in a batch, a body's record stands before the entry that names it",
			"A node holds several logs, one per group it is a member of, each in files of its own; all bounds are per group. " +
				"The commit record follows the payload in the file.",
		},
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.Join(strings.Fields(string(text)), " ")
		for _, s := range sentences {
			if !strings.Contains(page, s) {
				t.Errorf("%s does not say %q", name, s)
			}
		}
	}
}
