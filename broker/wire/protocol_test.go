package wire_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/quicvarint"

	"weida/broker/wire"
)

// field is a row of a frame's table on the protocol's page.
type field struct {
	name, encoding string
	bound          uint64 // of text and bytes
}

// described is a frame as the page has it.
type described struct {
	number wire.Type
	name   string
	fields []field
}

var (
	frameHead = regexp.MustCompile(`^### (\d+) ([A-Z_]+)$`)
	fieldRow  = regexp.MustCompile("^\\| `([a-z_]+)` \\| ([^|]+?)(?: ≤ (\\d+))? \\|")
)

func protocolPage(t *testing.T) (text string, frames []described) {
	t.Helper()
	b, err := os.ReadFile("../../docs/reference/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if m := frameHead.FindStringSubmatch(line); m != nil {
			frames = append(frames, described{number: wire.Type(atoi(t, m[1])), name: m[2]})
		}
		if m := fieldRow.FindStringSubmatch(line); m != nil && len(frames) > 0 {
			f := field{name: m[1], encoding: m[2]}
			if m[3] != "" {
				f.bound = atoi(t, m[3])
			}
			last := &frames[len(frames)-1]
			last.fields = append(last.fields, f)
		}
	}
	return string(b), frames
}

func atoi(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The page names every frame with its number, in order, and its vectors are the golden file.
func TestPageHasEveryFrame(t *testing.T) {
	text, frames := protocolPage(t)
	for i, f := range frames {
		if f.number != wire.Type(i+1) || f.name != f.number.String() {
			t.Errorf("frame %d of the page is %d %s; the code calls it %v", i+1, f.number, f.name, f.number)
		}
	}
	if next := wire.Type(len(frames) + 1); next.String() != fmt.Sprintf("type %d", len(frames)+1) {
		t.Errorf("the page does not have %v", next)
	}
	golden, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "```text\n"+string(golden)+"```\n") {
		t.Error("the vectors of the page are not those of testdata/golden.txt")
	}
}

// The bounds of the page are those of the code.
func TestPageHasTheBounds(t *testing.T) {
	text, _ := protocolPage(t)
	for _, row := range []string{
		fmt.Sprintf("| body inside a frame | %d |", wire.InlineMax),
		fmt.Sprintf("| queue name | %d |", wire.QueueMax),
		fmt.Sprintf("| producer id, subscription id | %d |", wire.IDMax),
		fmt.Sprintf("| headers | %d |", wire.HeadersMax),
		fmt.Sprintf("| host of a redirect | %d |", wire.HostMax),
		fmt.Sprintf("| detail of an error | %d |", wire.DetailMax),
		fmt.Sprintf("| payload of a frame | %d |", wire.FrameMax),
		fmt.Sprintf("| length of the payload | number, at most %d |", wire.FrameMax),
		fmt.Sprintf("a number from 2 to %d |", wire.ReplicasMax),
		fmt.Sprintf("the body as bytes ≤ %d;", wire.InlineMax),
	} {
		if !strings.Contains(text, row) {
			t.Errorf("the page does not say %q", row)
		}
	}
	for level, code := range map[string]wire.Evidence{
		"accepted": wire.Accepted(), "stored:written": wire.Stored(wire.Written), "stored:flushed": wire.Stored(wire.Flushed),
	} {
		bytes := wire.Append(nil, &wire.OpenProducer{Want: code})[4:] // behind type, length and two empty texts
		if row := fmt.Sprintf("| `%s` | `% x` |", level, bytes); !strings.Contains(text, row) {
			t.Errorf("the page does not say %q", row)
		}
	}
	for level, code := range map[string]wire.Evidence{
		"replicated:n": wire.Replicated(2, wire.Written), "replicated:n:flushed": wire.Replicated(2, wire.Flushed),
	} {
		bytes := wire.Append(nil, &wire.OpenProducer{Want: code})[4:6]
		if row := fmt.Sprintf("| `%s` | `% x`, then", level, bytes); !strings.Contains(text, row) {
			t.Errorf("the page does not say %q", row)
		}
	}
}

// Read by the tables of the page alone, every golden vector gives the fields of the frame that it stands
// for: names, order, encodings, and nothing left over.
func TestPageReadsTheVectors(t *testing.T) {
	_, frames := protocolPage(t)
	bounds := map[string]uint64{
		"queue": wire.QueueMax, "producer": wire.IDMax, "subscription": wire.IDMax, "headers": wire.HeadersMax,
		"detail": wire.DetailMax, "host": wire.HostMax,
	}
	for _, s := range samples {
		d := frames[s.frame.Type()-1]
		b := wire.Append(nil, s.frame)
		v := vector{t: t, b: b}
		if n := v.number(); n != uint64(d.number) {
			t.Errorf("%s begins with type %d", s.name, n)
		}
		if n := v.number(); n != uint64(len(v.b)) {
			t.Errorf("%s has length %d of %d", s.name, n, len(v.b))
		}
		got := make(map[string]any)
		for _, f := range d.fields {
			if f.bound != bounds[f.name] {
				t.Errorf("%s: %s has the bound %d, want %d", d.name, f.name, f.bound, bounds[f.name])
			}
			v.field(f, got)
		}
		if len(v.b) > 0 {
			t.Errorf("%s: %d bytes are left over: %s", s.name, len(v.b), hex.EncodeToString(b))
		}
		want := reflect.ValueOf(s.frame).Elem()
		for i := range want.NumField() {
			name, value := want.Type().Field(i).Name, want.Field(i)
			g, ok := got[name]
			delete(got, name)
			if !ok && value.IsZero() {
				continue // not there, such as the offset of accepted evidence
			}
			if fmt.Sprint(g) != fmt.Sprint(value.Interface()) {
				t.Errorf("%s: %s is %v by the page, want %v", s.name, name, g, value.Interface())
			}
		}
		for name := range got {
			t.Errorf("%s has no field %s", d.name, name)
		}
	}
}

// vector is read by the page's words for encodings.
type vector struct {
	t *testing.T
	b []byte
}

func (v *vector) number() uint64 {
	v.t.Helper()
	n, size, err := quicvarint.Parse(v.b)
	if err != nil {
		v.t.Fatal(err)
	}
	v.b = v.b[size:]
	return n
}

func (v *vector) take(n uint64) []byte {
	v.t.Helper()
	if n > uint64(len(v.b)) {
		v.t.Fatalf("%d bytes of %d", n, len(v.b))
	}
	b := v.b[:n]
	v.b = v.b[n:]
	return b
}

// field reads one field into the struct's names.
func (v *vector) field(f field, got map[string]any) {
	v.t.Helper()
	name := ""
	for part := range strings.SplitSeq(f.name, "_") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	switch f.encoding {
	case "number", "code", "code or 0":
		n := v.number()
		got[name] = n
		if f.encoding != "number" {
			got[name] = wire.Code(n)
		}
	case "number unless accepted":
		if got["Evidence"] != wire.Accepted() {
			got[name] = v.number()
		}
	case "text":
		got[name] = string(v.take(v.number()))
	case "bytes":
		got[name] = v.take(v.number())
	case "fingerprint":
		got[name] = [32]byte(v.take(32))
	case "digest":
		got[name] = [16]byte(v.take(16))
	case "flag":
		got[name] = v.take(1)[0] == 1
	case "verb":
		got[name] = wire.Verb(v.take(1)[0])
	case "evidence", "want":
		got[name] = v.evidence(f.encoding == "want")
	case "body":
		if got["Large"] = v.take(1)[0] == 1; got["Large"] == true {
			got["Stream"], got["Length"] = v.number(), v.number()
			return
		}
		got["Body"] = v.take(v.number())
	default:
		v.t.Fatalf("%s has an encoding that the page does not describe: %q", f.name, f.encoding)
	}
}

func (v *vector) evidence(mayBeNone bool) wire.Evidence {
	v.t.Helper()
	level := []func() wire.Evidence{
		func() wire.Evidence { return wire.Want{} },
		wire.Accepted,
		func() wire.Evidence { return wire.Stored(wire.Persistence(v.take(1)[0])) },
		func() wire.Evidence {
			p := wire.Persistence(v.take(1)[0])
			return wire.Replicated(uint32(v.number()), p)
		},
	}
	kind := int(v.take(1)[0])
	if kind == 0 && !mayBeNone || kind >= len(level) {
		v.t.Fatalf("evidence of kind %d", kind)
	}
	return level[kind]()
}

// Every encoding that a table names stands in the table of encodings.
func TestPageDescribesTheEncodings(t *testing.T) {
	text, frames := protocolPage(t)
	var names []string
	for _, d := range frames {
		for _, f := range d.fields {
			names = append(names, f.encoding)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == "number unless accepted" {
			continue // says itself what it is
		}
		if !strings.Contains(text, "\n| "+name+" |") && !strings.Contains(text, "\n| "+name+" ≤ *n* |") {
			t.Errorf("the page does not describe the encoding %q", name)
		}
	}
}
