package peer

import (
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"weida/raftstore"
)

func page(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/reference/peer-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The page's vectors are what this build writes.
func TestPageHasTheVectors(t *testing.T) {
	text := page(t)
	h := saying(nil)
	b := newBatch()
	b.add(frame(7, "abc"))
	b.add(frame(8, "xyzzy"))
	var e exchanges
	e.groups, e.numbers = groupsMax, map[raftstore.GroupID]uint64{8: 1}
	e.queue, e.queued = []*batch{b}, b.size()
	list, _ := e.take()
	head := func(kind byte) []byte { return []byte{kind} }
	vectors := []struct {
		name  string
		bytes []byte
	}{
		{"hello", h.encode()},
		{"exchange", list[0].buf},
		{"refusals", encodeRefusals([]raftstore.Refusal{
			{Group: 7, Why: raftstore.UnknownGroup}, {Group: 8, Why: raftstore.RetiredGroup},
		})},
		{"heartbeats", append(be.AppendUint32(head(uniBeats), 4), "tik!"...)},
		{"payload", append(be.AppendUint32(be.AppendUint64(head(uniPayload), 7), 2), "hi"...)},
		{"transfer", append(be.AppendUint16(nil, 4), "headhello"...)},
		{"call", append(be.AppendUint32(be.AppendUint16(nil, callMark), 3), "ask"...)},
	}
	for _, v := range vectors {
		if want := fmt.Sprintf("\n%s: %s\n", v.name, hex.EncodeToString(v.bytes)); !strings.Contains(text, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
}

// The page has every code, with the words that people see.
func TestPageHasTheCodes(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (.+) \|$`).FindAllStringSubmatch(page(t), -1)
	codes := 0
	for _, row := range rows {
		var code Why
		if _, err := fmt.Sscan(row[1], &code); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(reasons[code], row[2]) {
			codes++
		}
	}
	if codes != len(reasons) {
		t.Errorf("the page has %d codes, there are %d", codes, len(reasons))
	}
}
