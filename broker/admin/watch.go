package admin

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
)

// A watch tells of every change of one kind behind a version, exactly once and in order, from the history that the
// registry keeps: nothing is buffered for a watcher. Who reads so slowly that the history has moved on is told so, and
// lists again (B-229.3).

const (
	// watchesMax bounds the watches of a node: each is a connection that is never given up for another.
	watchesMax = 64
	// watchPiece bounds the changes that are put together for one write.
	watchPiece = 64
	// watchBeat is how often something is sent, so that both sides learn of a connection that is gone.
	watchBeat = 10 * time.Second
	// watchPatience bounds one write.
	watchPatience = 30 * time.Second
)

// Event is the data of one server-sent event. Its id is the resource version, and stands with the last change of an
// entry: whoever goes on behind an id misses nothing and gets nothing twice.
type Event struct {
	Type            EventType  `json:"type"`
	ResourceVersion uint64     `json:"resourceVersion"`
	Object          any        `json:"object,omitempty"` // the resource; of progress and ended there is none
	Error           *ErrorBody `json:"error,omitempty"`  // of ended
}

// watch serves one kind's changes until the client goes, the node stops, or the history has moved on.
func (h *handler) watch(w http.ResponseWriter, c *call, k kind) error {
	at, err := h.watchFrom(c, k)
	if err != nil {
		return err
	}
	if c.Method == http.MethodHead {
		w.Header().Set("Content-Type", eventKind)
		w.WriteHeader(http.StatusOK)
		return nil
	}
	if h.watches.Add(1) > watchesMax {
		h.watches.Add(-1)
		return refuse(http.StatusServiceUnavailable, wire.Overloaded, "%d watches are open, no more are taken", watchesMax)
	}
	defer h.watches.Add(-1)
	s := stream{w: w, out: http.NewResponseController(w), kind: k.kind, at: at, sent: at}
	w.Header().Set("Content-Type", eventKind)
	w.WriteHeader(http.StatusOK)
	beat := time.NewTicker(watchBeat)
	defer beat.Stop()
	if err := s.comment(); err != nil {
		return nil // nobody reads
	}
	for {
		moved := h.node.Moved() // before the look: what comes after it is not missed
		more, err := s.tell(h.node)
		if err != nil {
			return nil // nobody reads, or all is said
		}
		if more {
			continue
		}
		select {
		case <-moved:
		case <-beat.C:
			err = s.beat()
		case <-h.node.Done():
			err = s.end(refuse(http.StatusServiceUnavailable, wire.Stopping, "watch again from version %d", s.sent))
		case <-c.Context().Done():
			return nil
		}
		if err != nil {
			return nil
		}
	}
}

// watchFrom is the version behind which a watch begins: that of the query, or of the last event that a client has got,
// or as of now.
func (h *handler) watchFrom(c *call, k kind) (uint64, error) {
	for _, name := range []string{"limit", "after"} {
		if c.given(name) {
			return 0, bad("%s does not go with watch", name)
		}
	}
	text, ok := c.query["resourceVersion"]
	if last := c.Header.Get("Last-Event-ID"); last != "" {
		text, ok = last, true
	}
	now := h.node.Registry().Version
	if !ok {
		return now, nil
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, bad("resourceVersion is a whole number, not %q", clip(text))
	}
	if now = h.caughtUp(c, v); v > now {
		// Another cluster, or a node that is cut off: to wait for it in silence would hide that.
		return 0, refuse(http.StatusGone, wire.WatchCompacted, "version %d is not there, the last is %d; list %s again", v,
			now, k.plural)
	}
	if h.node.Changes(v, 1).Gone {
		return 0, compacted(v, now, k)
	}
	return v, nil
}

// watchCatchUp is how long a node may take to get to a version that another one has told of.
const watchCatchUp = 2 * time.Second

// caughtUp waits a moment until the registry is at a version, and returns at which it is.
func (h *handler) caughtUp(c *call, version uint64) uint64 {
	patience, cancel := patient(c, watchCatchUp)
	defer cancel()
	for {
		moved := h.node.Moved()
		now := h.node.Registry().Version
		if now >= version {
			return now
		}
		select {
		case <-moved:
		case <-patience.Done():
			return now
		}
	}
}

func compacted(v, now uint64, k kind) *refusal {
	return refuse(http.StatusGone, wire.WatchCompacted, "version %d was asked for and the last is %d; list %s again", v,
		now, k.plural)
}

// stream is the events of one watch on their way to a client.
type stream struct {
	w    http.ResponseWriter
	out  *http.ResponseController
	kind control.Kind
	at   uint64 // everything up to here was looked at
	sent uint64 // the last id
	open bool   // something was put since
	b    bytes.Buffer
}

// tell sends what is behind s.at, and says whether there may be more. An error ends the watch.
func (s *stream) tell(n Node) (more bool, err error) {
	piece := n.Changes(s.at, watchPiece)
	if piece.Gone {
		return false, s.end(compacted(s.at, n.Registry().Version, kindOf(s.kind)))
	}
	list := piece.List
	for i, c := range list {
		last := i == len(list)-1 || list[i+1].Version != c.Version
		if c.Kind == s.kind {
			s.put(Event{Type: c.Type, ResourceVersion: c.Version, Object: c.Object}, last)
		} else if last && s.open {
			s.put(Event{Type: Progress, ResourceVersion: c.Version}, true)
		}
	}
	more, s.at = piece.UpTo > s.at, piece.UpTo
	return more, s.flush()
}

// put adds an event; its id stands with the last change of an entry.
func (s *stream) put(e Event, last bool) {
	s.open = !last
	if last {
		s.sent = e.ResourceVersion
		s.b.WriteString("id: " + strconv.FormatUint(e.ResourceVersion, 10) + "\n")
	}
	s.b.WriteString("event: " + string(e.Type) + "\ndata: ")
	s.b.Write(bytes.TrimSpace(encode(e)))
	s.b.WriteString("\n\n")
}

// beat says how far the watch is, or only that it is there.
func (s *stream) beat() error {
	if s.at == s.sent {
		return s.comment()
	}
	s.put(Event{Type: Progress, ResourceVersion: s.at}, true)
	return s.flush()
}

func (s *stream) comment() error {
	s.b.WriteString(": weida\n\n")
	return s.flush()
}

var errEnded = errors.New("the watch has ended")

// end says why the watch ends.
func (s *stream) end(why *refusal) error {
	body := why.body()
	s.put(Event{Type: Ended, ResourceVersion: s.at, Error: &body}, false)
	return errors.Join(errEnded, s.flush())
}

// flush sends what was put together. It waits for a slow client, but not for ever.
func (s *stream) flush() error {
	if s.b.Len() == 0 {
		return nil
	}
	if err := s.out.SetWriteDeadline(time.Now().Add(watchPatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := s.w.Write(s.b.Bytes())
	s.b.Reset()
	if err == nil {
		err = s.out.Flush()
	}
	return err
}

func kindOf(k control.Kind) kind {
	for _, known := range []kind{queues, connectors, nodes} {
		if known.kind == k {
			return known
		}
	}
	panic("bug: admin: kind " + string(k) + " is not one")
}

// patient gives a request's context a bound.
func patient(c *call, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(), d)
}
