package raftstore

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weida/segment"
)

func encodeItems(items []Item) []byte {
	var commits []segment.Commit
	cmds := appendCommandsHead(nil, len(items))
	for i := range items {
		cmds = appendCommand(cmds, &items[i])
		if items[i].HasBody {
			commits = append(commits, items[i].Body)
		}
	}
	return segment.AppendData(nil, commits, cmds)
}

func drawItem(t *rapid.T, i int) Item {
	it := Item{Command: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "command")}
	if rapid.Bool().Draw(t, "body") {
		it.HasBody = true
		it.Body = segment.Commit{
			Ref:    BodyRef{Term: 3, Seq: uint64(i + 1)},
			Length: rapid.Int64Range(0, 1<<40).Draw(t, "length"),
			Digest: Digest{byte(i)},
			Large:  rapid.Bool().Draw(t, "large"),
		}
	}
	return it
}

func TestItemsSurviveTheCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := make([]Item, 0, 8)
		size := 0
		for i := range rapid.IntRange(0, 8).Draw(t, "items") {
			want = append(want, drawItem(t, i))
		}
		data := encodeItems(want)
		got, err := decodeItems(nil, data)
		if err != nil {
			t.Fatal(err)
		}
		asText := cmp.Transformer("bytes", func(b []byte) string { return string(b) })
		if d := cmp.Diff(want, append([]Item{}, got...), asText); d != "" {
			t.Fatal(d)
		}
		b := Batch{Items: want}
		for i := range b.Items {
			b.Items[i].Large = nil
		}
		size = b.Size()
		if len(data) > size+commitTableHead+1 {
			t.Fatalf("%d bytes of data for a batch of size %d", len(data), size)
		}
	})
}

func TestNoItemsInEmptyData(t *testing.T) {
	got, err := decodeItems(nil, nil)
	if err != nil || len(got) != 0 {
		t.Fatalf("%v %v", got, err)
	}
}

// Every single changed byte is refused or changes a command or commit, never the number of items
// beyond the data, and never panics.
func TestDamagedItemsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := []Item{drawItem(t, 0), drawItem(t, 1), drawItem(t, 2)}
		data := encodeItems(items)
		at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
		data[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "xor"))
		got, err := decodeItems(nil, data)
		if err == nil && len(got) > len(data) {
			t.Fatalf("%d items of %d bytes", len(got), len(data))
		}
		if _, err := decodeItems(nil, data[:at]); err == nil && at > 0 && at < commitTableHead {
			t.Fatal("a cut commit table was accepted")
		}
	})
}

func TestItemsRefused(t *testing.T) {
	one := segment.Commit{Ref: BodyRef{Term: 1, Seq: 1}, Length: 3}
	body := func() []byte { return appendCommand(appendCommandsHead(nil, 1), &Item{HasBody: true}) }
	for name, data := range map[string][]byte{
		"commit without item":      segment.AppendData(nil, []segment.Commit{one}, appendCommandsHead(nil, 0)),
		"two commits, one item":    segment.AppendData(nil, []segment.Commit{one, one}, body()),
		"item without its commit":  segment.AppendData(nil, nil, body()),
		"bytes behind the items":   append(segment.AppendData(nil, nil, appendCommandsHead(nil, 0)), 0),
		"fewer items than told":    segment.AppendData(nil, nil, appendCommandsHead(nil, 1)),
		"command longer than data": segment.AppendData(nil, nil, []byte{1, 200}),
		"endless count":            segment.AppendData(nil, nil, bytes.Repeat([]byte{0xff}, 12)),
		"no count":                 segment.AppendData(nil, nil, nil),
	} {
		if _, err := decodeItems(nil, data); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The largest batch Propose takes fits one write: entry and bodies together.
func TestMaxBatchFitsOneWrite(t *testing.T) {
	var b Batch
	body := make([]byte, segment.InlineMax)
	for range 3 {
		b.Items = append(b.Items, Item{Command: []byte("c"), HasBody: true, Inline: body})
	}
	rest := MaxBatchBytes - b.Size()
	for rest > 0 { // many small items, then one that fills up to the last byte
		n := min(200, rest-itemOverhead)
		if rest < 500 {
			n = rest - itemOverhead
		}
		b.Items = append(b.Items, Item{Command: make([]byte, n)})
		rest = MaxBatchBytes - b.Size()
	}
	if b.Size() != MaxBatchBytes {
		t.Fatalf("size %d", b.Size())
	}
	var bld segment.Builder
	bld.Reset(segment.File{Group: 1, Segment: 1, Salt: 1}, segment.FirstBatch, 0, segment.Stamp{})
	for i := range b.Items {
		if b.Items[i].HasBody {
			bld.Body(BodyRef{Term: 1, Seq: uint64(i)}, b.Items[i].Inline)
		}
	}
	bld.Entry(segment.Entry{Index: 1, Term: 1, Data: encodeItems(b.Items)})
	raw, _ := bld.Finish()
	if len(raw) > segment.BatchMax {
		t.Fatalf("batch of %d bytes", len(raw))
	}
}
