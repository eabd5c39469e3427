package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"
)

// A schedule is a pure function of its arguments, within its time; of a lane one fault ends before the next begins, and
// only one node's bytes are spoiled. Ten seeds show every kind and every variant.
func TestSchedule(t *testing.T) {
	const long = 10 * time.Minute
	seen := make(map[string]bool)
	for seed := range uint64(10) {
		for _, nodes := range []int{3, 5} {
			list := schedule(seed, nodes, long, kinds)
			if again := schedule(seed, nodes, long, kinds); !reflect.DeepEqual(list, again) {
				t.Fatalf("seed %d: two schedules", seed)
			}
			if len(list) < 40 {
				t.Errorf("seed %d: %d faults in %v", seed, len(list), long)
			}
			for _, l := range lanes {
				free := warmUp
				for _, f := range list {
					if !slices.Contains(l.kinds, f.Kind) {
						continue
					}
					if f.At < free || f.For < shortest || f.At+f.For > long-coolDown {
						t.Errorf("seed %d: %v comes before %v, or lasts too long", seed, f, free)
					}
					free = f.At + f.For
				}
			}
			for _, f := range list {
				seen[string(f.Kind)+" "+f.How] = true
				spoils := slices.Contains([]kind{bitflip, rollback, emptied}, f.Kind)
				if spoils && !slices.Equal(f.Nodes, []int{fragileOf(seed, nodes)}) {
					t.Errorf("seed %d: %v", seed, f)
				}
			}
		}
	}
	for _, what := range []string{
		"kill ", "powercut none", "powercut some", "powercut all", "restart ", "pause ", "diskfull ",
		"rollback ", "emptied with-key", "emptied without-key", "limits descriptors", "limits memory",
		"bitflip live", "bitflip stopped", "bitflip cut", "bitflip gone", "partition split",
		"partition split-with-clients", "partition split-from-clients", "partition deaf", "partition mute",
		"partition bridge", "partition loss",
	} {
		if !seen[what] {
			t.Errorf("no seed has %s", what)
		}
	}
	for _, f := range schedule(1, 3, long, []kind{pause}) {
		if f.Kind != pause {
			t.Errorf("only pauses were asked for: %v", f)
		}
	}
}

// Who gets nothing from whom, by the kind of partition.
func TestDrops(t *testing.T) {
	for _, c := range []struct {
		how   string
		nodes []int
		lost  [][2]int // from, to
	}{
		{"split", []int{0}, [][2]int{{0, 1}, {0, 2}, {1, 0}, {2, 0}}},
		{"split-with-clients", []int{0}, [][2]int{
			{0, 1}, {0, 2}, {1, 0}, {2, 0}, {clients, 1}, {clients, 2}, {1, clients}, {2, clients},
		}},
		{"split-from-clients", []int{0}, [][2]int{{0, 1}, {0, 2}, {1, 0}, {2, 0}, {clients, 0}, {0, clients}}},
		{"deaf", []int{0}, [][2]int{{1, 0}, {2, 0}}},
		{"mute", []int{0}, [][2]int{{0, 1}, {0, 2}}},
		{"bridge", []int{1, 0, 2}, [][2]int{{0, 2}, {2, 0}}},
		{"loss", nil, nil},
	} {
		for from := clients; from < 3; from++ {
			for to := clients; to < 3; to++ {
				want := slices.Contains(c.lost, [2]int{from, to})
				if got := drops(fault{How: c.how, Nodes: c.nodes}, 3, from, to); got != want && from != to {
					t.Errorf("%s %v: from %d to %d: lost is %v", c.how, c.nodes, from, to, got)
				}
			}
		}
	}
}

// The picture is well-formed, with every fault in it.
func TestPicture(t *testing.T) {
	var bars []*bar
	for _, f := range schedule(3, 3, time.Minute, kinds) {
		bars = append(bars, &bar{fault: f, began: f.At, ended: f.At + f.For, detail: "<&>"})
	}
	var out bytes.Buffer
	err := draw(&out, "a <run> & more", time.Minute, []string{"n1", "n2", "n3"},
		[]sample{{0, 0, 0}, {time.Second, 100, 50}, {2 * time.Second, 150, 150}},
		[]change{{time.Second, "queue/q", "n2"}}, bars)
	if err != nil {
		t.Fatal(err)
	}
	faults := 0
	for d := xml.NewDecoder(bytes.NewReader(out.Bytes())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			for _, a := range e.Attr {
				if a.Name.Local == "rx" {
					faults++
				}
			}
		}
	}
	if faults < len(bars) {
		t.Errorf("%d faults are drawn of %d", faults, len(bars))
	}
}
