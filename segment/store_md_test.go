package segment

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateExample = flag.Bool("update-example", false, "write the worked example of STORE.md anew")

const storeDoc = "../STORE.md"

func readStoreDoc(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(storeDoc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// docTables returns the rows of every table that is marked with its name, without its head.
func docTables(t *testing.T) map[string][][]string {
	t.Helper()
	tables := make(map[string][][]string)
	name, skip := "", 0
	for line := range strings.Lines(readStoreDoc(t)) {
		line = strings.TrimSpace(line)
		if n, ok := strings.CutPrefix(line, "<!-- table: "); ok {
			name, skip = strings.TrimSuffix(n, " -->"), 2
			if tables[name] != nil {
				t.Errorf("table %q stands twice", name)
			}
			continue
		}
		if !strings.HasPrefix(line, "|") {
			name = ""
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if name == "" {
			continue
		}
		var row []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			row = append(row, strings.TrimSpace(cell))
		}
		tables[name] = append(tables[name], row)
	}
	return tables
}

// layout is what a table of offsets must say: how long the thing is, and where a sample has what.
type layout struct {
	size   int // 0 if the last field has no fixed size
	sample []byte
	values map[string]any // by field: number or []byte
}

// sampleLayouts builds one record of every kind and says what must be found where.
func sampleLayouts() map[string]layout {
	f := File{Group: 7, Segment: 3, Salt: 0x1122334455667788}
	m := map[string]layout{}
	rec, _ := AppendRecord(nil, f, 4096, KindFrame, 0xc0ffee, []byte("hello"))
	h, _ := parseHead(rec, f, f.seed(), 4096)
	m["record header"] = layout{HeaderSize, rec, map[string]any{
		"magic": magic, "version": Version, "kind": KindFrame, "flags": 0, "body length": 5, "reserved": 0, "group": 7,
		"salt": f.Salt, "chain": 0xc0ffee, "body checksum": h.bodySum, "header checksum": le.Uint64(rec[offHeadSum:]),
	}}
	m["segment"] = layout{segmentLen, EncodeHeader(f, Header{Base: 41, Manifest: 9})[HeaderSize:], map[string]any{
		"number": 3, "base": 41, "manifest": 9,
	}}
	var b Builder
	boot := Boot{1, 2, 3, 15: 16}
	b.Reset(f, FirstBatch, 0, Stamp{Promise: Position{2, 4096}, Commit: 40, Boot: boot})
	b.Body(BodyRef{5, 6}, []byte("hello"))
	digest := DigestOf([]byte("hello"))
	commit := Commit{Ref: BodyRef{5, 6}, Length: 5, Digest: digest, Large: true}
	data := AppendData(nil, []Commit{commit}, []byte("put"))
	b.Entry(Entry{Index: 41, Term: 5, Type: EntryConfChange, Data: data})
	b.Truncate(42)
	b.Void(BodyRef{5, 8}, 39)
	raw, chain := b.Finish()
	rows := b.Rows()
	body := func(i int) []byte { return raw[rows[i].Pos-FirstBatch+HeaderSize:] }
	m["batch"] = layout{batchLen, raw[HeaderSize:], map[string]any{
		"batch length": len(raw), "count": 4, "promise segment": 2, "promise pos": 4096, "commit": 40, "boot": boot[:],
	}}
	m["body"] = layout{0, body(0), map[string]any{"ref term": 5, "ref seq": 6, "payload": []byte("hello")}}
	m["entry"] = layout{0, body(1), map[string]any{
		"index": 41, "term": 5, "type": EntryConfChange, "reserved": make([]byte, 7), "data": data,
	}}
	m["commit table"] = layout{0, data, map[string]any{"count": 1, "commits": data[dataHead : dataHead+commitSize]}}
	m["commit record"] = layout{commitSize, data[dataHead:], map[string]any{
		"ref term": 5, "ref seq": 6, "length": 5, "digest": digest[:], "flags": 1,
	}}
	m["truncate"] = layout{truncateLen, body(2), map[string]any{"from": 42}}
	m["void"] = layout{voidLen, body(3), map[string]any{"ref term": 5, "ref seq": 8, "settled": 39}}
	m["trailer"] = layout{trailerLen, raw[len(raw)-trailerLen:], map[string]any{
		"batch length": len(raw), "end magic": endMagic,
	}}
	addFooterLayouts(m, EncodeFooter(f, 8192, rows[:2], chain, 41)[HeaderSize:], rows[0], chain)
	return m
}

func addFooterLayouts(m map[string]layout, foot []byte, body Row, chain Chain) {
	m["footer head"] = layout{footerHead, foot, map[string]any{
		"chain": chain, "first index": 41, "last index": 41, "entries": 1, "bodies": 1, "others": 0, "reserved": 0,
		"head checksum": le.Uint64(foot[40:]),
	}}
	row := foot[footerHead+rowSize:]
	m["footer row"] = layout{rowSize, row, map[string]any{
		"key 1": 5, "key 2": 6, "pos": body.Pos, "size": body.Size, "kind": KindBody, "reserved": make([]byte, 3),
		"row checksum": le.Uint32(row[28:]),
	}}
	m["footer tail"] = layout{footerTail, foot[footerHead+2*rowSize:], map[string]any{
		"record size": HeaderSize + footerHead + 2*rowSize + footerTail, "end magic": uint32(footerMagic),
	}}
}

// TestStoreTables: every table of offsets is without gaps, as long as the code's, and finds in a
// record what was put there.
func TestStoreTables(t *testing.T) {
	tables := docTables(t)
	for name, l := range sampleLayouts() {
		rows := tables[name]
		if len(rows) != len(l.values) {
			t.Errorf("table %q has %d rows, the code has %d fields", name, len(rows), len(l.values))
		}
		end := checkOffsets(t, name, rows, func(field string, at, size int) {
			want, ok := l.values[field]
			if !ok {
				t.Errorf("table %q: the code has no field %q", name, field)
				return
			}
			if b, ok := want.([]byte); ok {
				if !bytes.Equal(l.sample[at:at+len(b)], b) || size != 0 && size != len(b) {
					t.Errorf("table %q: field %q is not at %d, %d bytes long", name, field, at, size)
				}
				return
			}
			var got uint64
			for i := size - 1; i >= 0; i-- {
				got = got<<8 | uint64(l.sample[at+i])
			}
			if fmt.Sprintf("%d", want) != strconv.FormatUint(got, 10) || size == 0 {
				t.Errorf("table %q: at %d, %d bytes, stands %d; %q is %d", name, at, size, got, field, want)
			}
		})
		if end != l.size {
			t.Errorf("table %q ends at %d, the code at %d", name, end, l.size)
		}
	}
}

// checkOffsets sees that a table's fields follow each other, and returns where they end, 0 if the
// last has no fixed size.
func checkOffsets(t *testing.T, name string, rows [][]string, field func(name string, at, size int)) int {
	t.Helper()
	end := 0
	for i, row := range rows {
		if len(row) != 5 {
			t.Errorf("table %q row %d has %d cells", name, i, len(row))
			return -1
		}
		at, err := strconv.Atoi(row[0])
		if err != nil || at != end {
			t.Errorf("table %q: field %q is at %s, but the one before ends at %d", name, row[2], row[0], end)
		}
		size := 0
		if row[1] != "–" || i != len(rows)-1 {
			if size, err = strconv.Atoi(row[1]); err != nil || size <= 0 {
				t.Errorf("table %q: size %q", name, row[1])
			}
		}
		if field != nil {
			field(row[2], at, size)
		}
		if end += size; size == 0 {
			return 0
		}
	}
	return end
}

func TestStoreKinds(t *testing.T) {
	rows := docTables(t)["kinds"]
	if len(rows) != len(kinds)-1 {
		t.Fatalf("%d kinds in the table, %d in the code", len(rows), len(kinds)-1)
	}
	for i, row := range rows {
		s := kinds[i+1]
		length := fmt.Sprintf("%d–%d", s.min, s.max)
		if s.min == s.max {
			length = strconv.Itoa(s.min)
		}
		want := []string{strconv.Itoa(i + 1), s.name, map[bool]string{true: "yes", false: "no"}[s.chained], length}
		if !slices.Equal(row[:4], want) {
			t.Errorf("row %v, want %v", row[:4], want)
		}
	}
}

func TestStoreLimits(t *testing.T) {
	want := map[string]int64{
		"HeaderSize": HeaderSize, "FirstBatch": FirstBatch, "BatchMax": BatchMax, "BatchOverhead": BatchOverhead,
		"InlineMax": InlineMax, "FrameMax": FrameMax, "DataMax": DataMax, "segment": 1<<32 - 1, "page": pageSize,
	}
	rows := docTables(t)["limits"]
	for _, row := range rows {
		name := strings.Trim(row[0], "`")
		if v, ok := want[name]; !ok || strconv.FormatInt(v, 10) != row[1] {
			t.Errorf("%s is %s in the table, %d in the code", name, row[1], v)
		}
	}
	if len(rows) != len(want) {
		t.Errorf("%d rows, want %d", len(rows), len(want))
	}
}

// TestStoreDecisions: every row of the decision table names a case that is run.
func TestStoreDecisions(t *testing.T) {
	run := make(map[string]bool)
	for _, c := range ruleCases {
		run[c.name] = true
	}
	for _, c := range endCases {
		run[c.name] = true
	}
	rows := docTables(t)["decisions"]
	if len(rows) < 20 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		if name := strings.Trim(row[len(row)-1], "`"); !run[name] {
			t.Errorf("no case is named %q", name)
		}
	}
}

// TestStoreCrashPoints: every letter of the operations has a row, and every row a letter.
func TestStoreCrashPoints(t *testing.T) {
	doc := readStoreDoc(t)
	_, section, ok := strings.Cut(doc, "## 8. Operations")
	if !ok {
		t.Fatal("no section 8")
	}
	prose, _, _ := strings.Cut(section, "<!-- table")
	letters := make(map[string]bool)
	for _, m := range regexp.MustCompile(`\(([A-Z])\)`).FindAllStringSubmatch(prose, -1) {
		letters[m[1]] = true
	}
	rows := docTables(t)["crash points"]
	for _, row := range rows {
		if !letters[row[0]] {
			t.Errorf("crash point %s is in no operation", row[0])
		}
		delete(letters, row[0])
	}
	if len(rows) == 0 || len(letters) > 0 {
		t.Errorf("crash points without a row: %v", letters)
	}
}

var invariant = regexp.MustCompile(`(?m)^- \*\*(S\d+)\*\*`)

// TestStoreInvariants: every invariant ends with tests that exist.
func TestStoreInvariants(t *testing.T) {
	doc := readStoreDoc(t)
	_, section, _ := strings.Cut(doc, "## 10. Invariants")
	section, _, _ = strings.Cut(section, "\n## ")
	tests := testNames(t)
	at := invariant.FindAllStringSubmatchIndex(section, -1)
	if len(at) < 10 {
		t.Fatalf("%d invariants", len(at))
	}
	for i, m := range at {
		end := len(section)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		name, text := section[m[2]:m[3]], section[m[0]:end]
		if want := "S" + strconv.Itoa(i+1); name != want {
			t.Errorf("%s stands where %s is due", name, want)
		}
		_, checked, ok := strings.Cut(strings.Join(strings.Fields(text), " "), "Checked by ")
		found := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(checked, -1)
		if !ok || len(found) == 0 {
			t.Errorf("%s names no test", name)
		}
		for _, f := range found {
			if !tests[f[1]] {
				t.Errorf("%s: there is no test %s", name, f[1])
			}
		}
	}
}

// testNames returns the names of all test and fuzz functions of the module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	decl := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		b, err := fs.ReadFile(root, name)
		for _, m := range decl.FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestStoreWAL: the tables of the files that package wal lays out are without gaps and as long as
// the constants in its source say.
func TestStoreWAL(t *testing.T) {
	consts := intConstants(t, "../wal")
	tables := docTables(t)
	for name, want := range map[string]int{"disk": 24, "incarnation": 0, "clean": 0} {
		if end := checkOffsets(t, name, tables[name], nil); end != want || tables[name] == nil {
			t.Errorf("table %q ends at %d, want %d", name, end, want)
		}
	}
	for name, constant := range map[string]string{
		"manifest head": "manifestHead", "manifest segment": "segRow", "manifest snapshot": "snapRow",
		"manifest compaction": "compactRow", "hardstate": "hardStateLen", "filehead": "framedHeadLen",
		"filetail": "framedTailLen",
	} {
		want, ok := consts[constant]
		if !ok {
			t.Errorf("package wal has no constant %s", constant)
			continue
		}
		if end := checkOffsets(t, name, tables[name], nil); end != want {
			t.Errorf("table %q ends at %d, %s is %d", name, end, constant, want)
		}
	}
}

// intConstants returns the constants of a package that are plain numbers.
func intConstants(t *testing.T, dir string) map[string]int {
	t.Helper()
	consts := make(map[string]int)
	files, err := fs.Glob(os.DirFS(dir), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), dir+"/"+name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != len(spec.Values) {
				return true
			}
			for i, v := range spec.Values {
				lit, ok := v.(*ast.BasicLit)
				if !ok {
					continue
				}
				if x, err := strconv.Atoi(lit.Value); err == nil {
					consts[spec.Names[i].Name] = x
				}
			}
			return true
		})
	}
	return consts
}

// exampleSegment is the worked example of section 13.
func exampleSegment() (File, []byte) {
	f := File{Group: 7, Segment: 1, Salt: 0x1122334455667788}
	b := EncodeHeader(f, Header{Base: 1, Manifest: 1})
	var bl Builder
	bl.Reset(f, FirstBatch, 0, Stamp{Boot: Boot{0xb0}})
	body := []byte("hello")
	bl.Body(BodyRef{1, 1}, body)
	commit := Commit{Ref: BodyRef{1, 1}, Length: int64(len(body)), Digest: DigestOf(body)}
	bl.Entry(Entry{Index: 1, Term: 1, Data: AppendData(nil, []Commit{commit}, []byte("put"))})
	bl.Void(BodyRef{1, 2}, 1)
	raw, _ := bl.Finish()
	return f, append(b, raw...)
}

// exampleTables says which tables lay out the body of a kind, one behind the other.
var exampleTables = map[Kind][]string{
	KindSegment: {"segment"}, KindBatch: {"batch"}, KindBody: {"body"}, KindVoid: {"void"}, KindTrailer: {"trailer"},
	KindEntry: {"entry", "commit table", "commit record"},
}

// dumpExample writes the example field by field, after the tables of the document.
func dumpExample(t *testing.T, tables map[string][][]string) string {
	t.Helper()
	f, b := exampleSegment()
	var s strings.Builder
	line := func(at int, b []byte, what string) {
		for i := 0; i < len(b); i += 16 {
			text := ""
			if i == 0 {
				text = what
			}
			chunk := fmt.Sprintf("% x", b[i:min(i+16, len(b))])
			s.WriteString(strings.TrimRight(fmt.Sprintf("%06x  %-48s %s", at+i, chunk, text), " ") + "\n")
		}
	}
	for pos := 0; pos < len(b); {
		r, _, err := ParseRecord(b[pos:], f, int64(pos))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&s, "        -- %v record --\n", r.Kind)
		fields := func(name string, at, limit int) int {
			for _, row := range tables[name] {
				size := limit - at
				if row[1] != "–" {
					n, err := strconv.Atoi(row[1])
					if err != nil {
						t.Fatal(err)
					}
					size = n
				} else if name == "entry" || name == "commit table" {
					return at // the next table lays it out
				}
				line(at, b[at:at+size], row[2])
				at += size
			}
			return at
		}
		at, limit := fields("record header", pos, pos), pos+HeaderSize+len(r.Body)
		for _, name := range exampleTables[r.Kind] {
			at = fields(name, at, limit)
		}
		if at < limit {
			line(at, b[at:limit], "commands")
		}
		if end := pos + int(r.Size); limit < end {
			line(limit, b[limit:end], "padding")
		}
		pos += int(r.Size)
	}
	return s.String()
}

// TestStoreExample: the hex dump of the document is what the code writes, and the code reads it.
func TestStoreExample(t *testing.T) {
	doc := readStoreDoc(t)
	const begin, end = "<!-- example -->\n```hex\n", "```"
	before, rest, ok := strings.Cut(doc, begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("no example in the document")
	}
	want := dumpExample(t, docTables(t))
	if *updateExample {
		if err := os.WriteFile(storeDoc, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		got = want
	}
	if got != want {
		t.Fatalf("the worked example differs; it should be\n%s", want)
	}
	raw := undump(t, got)
	f, b := exampleSegment()
	if !bytes.Equal(raw, b) {
		t.Fatal("the bytes of the dump are not those of the segment")
	}
	var seen []Kind
	part := Part{File: f, R: bytes.NewReader(raw), Size: int64(len(raw)), Start: FirstBatch}
	e := Recover([]Part{part}, Known{}, func(_ Number, row Row, _ Record) error {
		seen = append(seen, row.Kind)
		return nil
	})
	if e.Verdict != Valid || !slices.Equal(seen, []Kind{KindBody, KindEntry, KindVoid}) {
		t.Errorf("the example reads as %v: %v", seen, e.Err)
	}
}

// undump reads the bytes of a dump back.
func undump(t *testing.T, dump string) []byte {
	t.Helper()
	var raw []byte
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, " ") {
			continue
		}
		if len(line) < 8 {
			t.Fatalf("line %q", line)
		}
		if at, err := strconv.ParseInt(line[:6], 16, 64); err != nil || at != int64(len(raw)) {
			t.Fatalf("line %q stands at byte %x", line, len(raw))
		}
		for _, h := range strings.Fields(line[8:min(56, len(line))]) {
			v, err := strconv.ParseUint(h, 16, 8)
			if err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			raw = append(raw, byte(v))
		}
	}
	return raw
}
