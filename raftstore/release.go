package raftstore

// releases are the bodies that the machine has settled. The store may forget them only once a flushed
// snapshot covers the entries that settled them: until then a power cut can bring back a state that
// still holds them. They are kept as runs, since bodies are mostly settled in the order of their refs.
type releases struct {
	runs []releaseRun
	cut  int // runs[:cut] are covered by the snapshot being written
}

type releaseRun struct {
	ref BodyRef
	n   uint64 // ref.Seq, ref.Seq+1, …
}

func (r *releases) add(ref BodyRef) {
	if last := len(r.runs) - 1; last >= r.cut {
		run := &r.runs[last]
		if run.ref.Term == ref.Term && run.ref.Seq+run.n == ref.Seq {
			run.n++
			return
		}
	}
	r.runs = append(r.runs, releaseRun{ref, 1})
}

// seal separates what the snapshot taken now covers from what comes later.
func (r *releases) seal() { r.cut = len(r.runs) }

// drop hands over what the finished snapshot covers.
func (r *releases) drop(release func(BodyRef)) {
	for _, run := range r.runs[:r.cut] {
		for i := range run.n {
			release(BodyRef{Term: run.ref.Term, Seq: run.ref.Seq + i})
		}
	}
	rest := len(r.runs) - r.cut
	if rest == 0 {
		r.runs = nil
	} else {
		r.runs = append([]releaseRun(nil), r.runs[r.cut:]...)
	}
	r.cut = 0
}

func (r *releases) any() bool { return len(r.runs) > 0 }
