package main

import (
	"fmt"
	"io"
	"slices"

	"weida/raftstore"
)

// injected is a kind of fault as it is counted when it happens, and the rows of the fault matrix that it is of.
type injected struct {
	kind string
	rows []int
	how  string
}

// matrix is what the simulator does of docs/reference/faults.md, where this table is repeated.
var matrix = []injected{
	{"kill -9", []int{1}, "`kill`: the process ends, what it wrote stays"},
	{"end in a call", []int{1}, "`killInCall`, `cutPower`: before, in the middle of or after any call that changes it"},
	{"power cut, nothing stays", []int{2}, "`powerless`, `blackout`: of one node, or of all"},
	{"power cut, something stays", []int{3}, "any subset of sectors, sizes and names"},
	{"power cut, all stays", []int{3}, "and a new boot"},
	{"sector astray", []int{4}, "`memfs.KeepAstray`: a sector under way stands where another belongs, or twice"},
	{"name lost", []int{5}, "a power cut in the place of the flush of a directory, or before it"},
	{"failed flush", []int{6}, "`failFlush`: a write-back or a call fails once; what it was to flush is gone"},
	{string(raftstore.GroupReadOnly), []int{6}, "where a log was hit by it"},
	{"full disk", []int{9}, "`fillDisk`: up to 128 KiB are left, for a while"},
	{string(raftstore.DiskFull), []int{9}, "where a message was hit by it"},
	{"disk full, snapshot", []int{9, 29}, "where a snapshot was, made here or from elsewhere"},
	{"slow disk", []int{17}, "`slowDisk`: flushes take up to 3 s"},
	{"clock", []int{18}, "`clock`: half to twice as fast, or a jump of up to 40 ticks"},
	{"pause", []int{19}, "`pause`: up to 6 s; then all that waited comes"},
	{"partition", []int{20}, "`partition`: any two parts"},
	{"one-way cut", []int{21}, "`cutOneWay`: any of the edges"},
	{"bridge", []int{22}, "`bridge`: two parts that one node reaches"},
	{"bad network", []int{23}, "`lossy`: up to three in ten packets lost, doubled, late"},
	{"leader alone", []int{24}, "`isolateLeader`: with the clients that know it"},
	{"transfer cut", []int{29}, "`Stream`: at any byte"},
	{"transfer lost", []int{29}, "a side dies, or the connection ends, before the last byte"},
	{"membership", []int{30}, "`wish`: one, three or five members, any nodes"},
	{"membership in a cut", []int{30}, "while a connection is cut"},
	{"body stalls", []int{39}, "`upload`: a producer sends a part of a large body, and nothing more"},
	{"wrong body", []int{47}, "`spoil`: a body with other bytes than its commit record names, and their digest"},
}

// happened is how often a kind did.
func (s *stats) happened(kind string) uint64 {
	return s.faults[kind] + s.told[raftstore.EventKind(kind)]
}

// seldom are the kinds of the matrix that did not happen.
func (s *stats) seldom() (kinds []string) {
	for _, f := range matrix {
		if s.happened(f.kind) == 0 {
			kinds = append(kinds, f.kind)
		}
	}
	return kinds
}

// enoughSeeds are so many that each kind of fault has to happen.
const enoughSeeds = 30

// complete fails if a kind never happened in the first seeds there are, which are the same in every run.
func (s *stats) complete(out io.Writer, first uint64, seeds int) error {
	list := s.seldom()
	if len(list) == 0 || first != 1 || seeds < enoughSeeds {
		return nil
	}
	fmt.Fprintf(out, "in %d seeds it never happened: %q\n", seeds, list)
	return fmt.Errorf("%d kinds of faults never happened", len(list))
}

// rows are the numbers of the matrix that the simulator covers.
func rows() (list []int) {
	for _, f := range matrix {
		list = append(list, f.rows...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
