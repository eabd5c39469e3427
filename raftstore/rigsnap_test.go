package raftstore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
)

func sortedKeys[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), cmp.Compare[string])
}

// kvState is what a kv machine's snapshot holds.
type kvState struct {
	Index   Index
	LastRef BodyRef
	State   map[string]held
	Applied []string
}

// frozen is a consistent view: bytes made when it was taken.
type frozen []byte

func (f frozen) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, bytes.NewReader(f)) }

func (m *kv) Snapshot() Source {
	b, err := json.Marshal(kvState{m.lastI, m.lastRef, m.state, m.applied})
	if err != nil {
		panic(err)
	}
	return holderOf(b, m.state)
}

// holderOf is a view with the bodies of a state, in runs as long as they can be.
func holderOf(b []byte, state map[string]held) bodyHolder {
	h := bodyHolder{frozen: b}
	var refs []BodyRef
	for _, k := range sortedKeys(state) {
		if c := state[k].Body; c.Large {
			h.large = append(h.large, c)
		} else {
			refs = append(refs, c.Ref)
		}
	}
	slices.SortFunc(refs, compareRefs)
	for _, ref := range refs {
		if n := len(h.runs); n > 0 && h.runs[n-1].first.Term == ref.Term && h.runs[n-1].first.Seq+h.runs[n-1].n == ref.Seq {
			h.runs[n-1].n++
			continue
		}
		h.runs = append(h.runs, bodyRun{first: ref, n: 1})
	}
	return h
}

func (m *kv) Restore(s Source) error {
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		return err
	}
	var st kvState
	if err := json.Unmarshal(b.Bytes(), &st); err != nil {
		return err
	}
	m.lastI, m.lastRef, m.state, m.applied = st.Index, st.LastRef, st.State, st.Applied
	m.upTo[m.lastI] = len(m.applied)
	return nil
}
