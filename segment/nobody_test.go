package segment

import (
	"bytes"
	"testing"
)

// TestEntryHoldsNoBody: an entry names its body and holds nothing of it. It is as long for 16 bytes as for the longest
// inline body, and what only the body says stands in the body's own record (T-4, W-1, X-9).
func TestEntryHoldsNoBody(t *testing.T) {
	mark := []byte("only the body says this")
	var length int64
	for _, n := range []int{16, len(mark), 1000, InlineMax} {
		body := bytes.Repeat(mark, n/len(mark)+1)[:n]
		commit := Commit{Ref: BodyRef{Term: 2, Seq: 5}, Length: int64(n), Digest: DigestOf(body)}
		var b Builder
		b.Reset(testFile, FirstBatch, 0, Stamp{})
		b.Body(commit.Ref, body)
		b.Entry(Entry{Index: 9, Term: 2, Data: AppendData(nil, []Commit{commit}, []byte("publish"))})
		raw, _ := b.Finish()
		bt, err := ParseBatch(raw, testFile, FirstBatch, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(bt.Rows) != 2 || bt.Rows[0].Kind != KindBody || bt.Rows[1].Kind != KindEntry {
			t.Fatalf("%d bytes: rows %+v", n, bt.Rows)
		}
		if length == 0 {
			length = bt.Rows[1].Size
		}
		if bt.Rows[1].Size != length {
			t.Errorf("the entry of a body of %d bytes is %d bytes long, that of the shortest %d", n, bt.Rows[1].Size, length)
		}
		for k, part := range [][]byte{raw[:bt.Rows[0].Pos-FirstBatch], raw[bt.Rows[1].Pos-FirstBatch:]} {
			if bytes.Contains(part, body[:16]) {
				t.Errorf("%d bytes: part %d beside the body's record has bytes of the body", n, k)
			}
		}
		e, err := ParseEntry(bt.Record(bt.Rows[1]).Body)
		if err != nil {
			t.Fatal(err)
		}
		commits, commands, err := ParseData(e.Data)
		if err != nil || len(commits) != 1 || commits[0] != commit || string(commands) != "publish" {
			t.Errorf("%d bytes: the entry names %+v and says %q, %v", n, commits, commands, err)
		}
	}
}
