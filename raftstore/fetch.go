package raftstore

import (
	"errors"
	"io"

	"weida/segment"
	"weida/wal"
)

// fetcher answers requests for bodies: from the log, read by a job, or from the room. It is owned by the shard, but
// for what a job reads.
//
//	want{refs} ─▶ take ─▶ job: read from the log ─▶ answer: body frames
//	                                             ├▶ settled, if an entry here names it and the log let it go
//	                                             ├▶ absent
//	                                             └▶ a stream, for a large body
//
// What the log let go of was settled: an entry is never here without its bodies. But how far somebody has to apply to
// see that is known to a leader only: a tombstone that another member holds may be of a later index than it has
// applied.
type fetcher struct {
	queue   []fetchJob
	running bool
}

// fetchJob is what one node asked for at a time.
type fetchJob struct {
	to    NodeID
	wants []want
}

// fetched is what a job found.
type fetched struct {
	to      NodeID
	frames  [][]byte
	large   []segment.Commit // here, to be streamed
	missing []want           // the log does not have them
	damaged []want           // the log has them, and they are not what they should be
	why     []error          // of these
	rest    []want           // not read: the answer is large enough
}

const (
	// fetchQueueMax bounds the requests that wait in one group; what is more is dropped, and asked for again.
	fetchQueueMax = 16
	// fetchBytes bounds the bodies that one job reads.
	fetchBytes = 1 << 20
)

// take queues a request; it is false if the request was dropped.
func (f *fetcher) take(from NodeID, wants []want) bool {
	if len(f.queue) >= fetchQueueMax {
		return false
	}
	f.queue = append(f.queue, fetchJob{from, wants})
	return true
}

// next takes the next request out if no job runs.
func (f *fetcher) next() (fetchJob, bool) {
	if f.running || len(f.queue) == 0 {
		return fetchJob{}, false
	}
	j := f.queue[0]
	f.queue[0] = fetchJob{}
	if f.queue = f.queue[1:]; len(f.queue) == 0 {
		f.queue = nil
	}
	f.running = true
	return j, true
}

// run reads what was asked for; a worker does it.
func (j *fetchJob) run(log *wal.Log) *fetched {
	found := &fetched{to: j.to}
	bytes := 0
	for i := range j.wants {
		if bytes >= fetchBytes {
			found.rest = j.wants[i:]
			break
		}
		bytes += found.read(log, &j.wants[i])
	}
	return found
}

// read looks for one body.
func (f *fetched) read(log *wal.Log, w *want) (n int) {
	open := func() (*wal.BodyReader, error) {
		if w.Loose && !w.Body.Large {
			return log.OpenRef(w.Body.Ref)
		}
		return log.OpenBody(w.Body)
	}
	r, err := open()
	switch {
	case errors.Is(err, wal.ErrAbsent):
		f.missing = append(f.missing, *w)
		return 0
	case err != nil:
		f.hurt(w, err)
		return 0
	case r.Length() > segment.InlineMax:
		f.large = append(f.large, r.Commit())
	default:
		var body []byte
		if body, err = io.ReadAll(r); err == nil {
			f.frames = append(f.frames, appendBodyFrame(nil, w.Body.Ref, segment.DigestOf(body), body))
			n = len(body)
		}
	}
	if err = errors.Join(err, r.Close()); err != nil {
		f.hurt(w, err)
	}
	return n
}

func (f *fetched) hurt(w *want, err error) {
	f.damaged, f.why = append(f.damaged, *w), append(f.why, err)
}

// standing says what a replica knows about an entry that somebody asked for.
type standing struct {
	leads   bool  // this replica is the leader of its term
	settled Index // it has applied all that was committed before its term, up to here at least; 0 if not
	applied Index
	last    Index
	term    func(Index) (Term, bool) // of an entry in the log; false if it is trimmed or not there
	held    func(BodyRef) (payload []byte, d Digest, ok bool)
}

// answers are the frames for what the job did not find in the log: from the room, as settled, or as absent.
func (f *fetched) answers(s *standing) [][]byte {
	var settled, absent []BodyRef
	for _, w := range f.missing {
		if body, d, ok := s.held(w.Body.Ref); ok && (w.Loose || d == w.Body.Digest) {
			f.frames = append(f.frames, appendBodyFrame(nil, w.Body.Ref, d, body))
		} else if s.letGo(&w) {
			settled = append(settled, w.Body.Ref)
		} else {
			absent = append(absent, w.Body.Ref)
		}
	}
	for _, w := range f.damaged {
		absent = append(absent, w.Body.Ref)
	}
	if len(settled) > 0 {
		f.frames = append(f.frames, encodeSettled(s.claim(), settled))
	}
	if len(absent) > 0 {
		f.frames = append(f.frames, encodeAbsent(absent))
	}
	return f.frames
}

// letGo says whether a body that is not here was here and is settled: this replica leads, and the entry that names
// it is in its log, or applied and trimmed.
func (s *standing) letGo(w *want) bool {
	if !s.leads || off.tombstones {
		return false
	}
	if w.Loose {
		return w.Index <= s.applied
	}
	if term, ok := s.term(w.Index); ok {
		return term == w.Body.Ref.Term
	}
	return w.Index <= s.applied
}

// claim is an index as of which all that this leader's log let go of is settled. Before it has applied an entry of
// its term it may hold tombstones of a later index than it has applied, but of none behind its log: what is
// committed is in every leader's log.
func (s *standing) claim() Index {
	if s.settled > 0 {
		return s.settled
	}
	return s.last
}
