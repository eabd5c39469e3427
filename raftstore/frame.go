package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"weida/segment"
)

// A frame on the raft connection is one byte that says what it is, then
//
//	1  a raft message: its protobuf encoding, without snapshot and without nested messages
//	2  quiet: uvarints of from, to, term, commit; the leader of an idle group stops ticking (see quiet.go)
//	3  known: the same, of a configuration that is applied: the entry at commit, which has this term, is committed
//
// A frame of heartbeats is a version byte, one that says what ails the sender's disk (DiskState), then per heartbeat
// uvarints of group, 2*from + 1 if it is a response, to, term, commit.
const (
	messageFrame byte = 1
	quietFrame   byte = 2
	knownFrame   byte = 3
	beatVersion  byte = 2
)

const (
	// raftMessageBytes bounds the entries of one message, unless a single entry is larger.
	raftMessageBytes = 256 << 10
	// raftEntriesMax bounds their number. A sender cuts what is more off, as if the network had lost it.
	raftEntriesMax = 4096
	// raftFrameMax bounds a frame: the entries, or one of the largest kind, and what stands around them.
	raftFrameMax = 2*segment.BatchMax + 64<<10
	// beatFrameMax bounds a frame of heartbeats.
	beatFrameMax = 4 << 20
	// raftContextMax bounds the context of a message: raft writes only the name of a campaign.
	raftContextMax = 64
)

var errFrame = errors.New("raftstore: a frame is not one of this version")

// appendMessage appends the frame of a raft message.
func appendMessage(dst []byte, m *raftpb.Message) []byte {
	if n := len(m.GetEntries()); n > raftEntriesMax {
		m = &raftpb.Message{
			Type: m.Type, To: m.To, From: m.From, Term: m.Term, LogTerm: m.LogTerm, Index: m.Index, Commit: m.Commit,
			Entries: m.Entries[:raftEntriesMax],
		}
	}
	dst, err := proto.MarshalOptions{}.MarshalAppend(append(dst, messageFrame), m)
	if err != nil {
		panic("bug: raftstore: a raft message can't be encoded: " + err.Error())
	}
	return dst
}

// parseMessage reads a frame of kind messageFrame. What it allocates is bounded by the frame's length and by
// raftEntriesMax, whatever the bytes say; what it accepts is a message that raft may be given: of a kind that
// replicas send, its entries consecutive and readable.
func parseMessage(b []byte) (*raftpb.Message, error) {
	if len(b) > raftFrameMax || len(b) == 0 || b[0] != messageFrame {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, len(b))
	}
	if err := scanMessage(b[1:]); err != nil {
		return nil, err
	}
	m := &raftpb.Message{}
	if err := proto.Unmarshal(b[1:], m); err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	if err := checkMessage(m); err != nil {
		return nil, err
	}
	return m, nil
}

// scanMessage sees that the encoding has no field but those that replicas use, before anything is allocated.
func scanMessage(b []byte) error {
	const snapshot, responses, entries, last = 9, 14, 7, 13
	var seen [last + 1]bool
	count := 0
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeField(b)
		if n < 0 || num > last || num == snapshot || num == responses {
			return fmt.Errorf("%w: field %d of %d bytes", errFrame, num, len(b))
		}
		_ = typ
		if num == entries {
			count++
		} else if seen[num] {
			return fmt.Errorf("%w: field %d twice", errFrame, num)
		}
		seen[num] = true
		b = b[n:]
	}
	if count > raftEntriesMax {
		return fmt.Errorf("%w: %d entries", errFrame, count)
	}
	return nil
}

// checkMessage says whether raft may be given what came from a peer.
func checkMessage(m *raftpb.Message) error {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote,
		raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
	default:
		return fmt.Errorf("%w: a message of kind %v", errFrame, m.GetType())
	}
	switch {
	case m.GetFrom() == 0 || m.GetTo() == 0 || m.GetFrom() == m.GetTo() || m.GetTerm() == 0:
		return fmt.Errorf("%w: a message without sender, receiver or term", errFrame)
	case isLocalID(m.GetFrom()) || isLocalID(m.GetTo()):
		return fmt.Errorf("%w: a message of or for replica %d", errFrame, m.GetFrom())
	case len(m.GetContext()) > raftContextMax:
		return fmt.Errorf("%w: a context of %d bytes", errFrame, len(m.GetContext()))
	case len(m.GetEntries()) > 0 && m.GetType() != raftpb.MsgApp:
		return fmt.Errorf("%w: a message of kind %v with entries", errFrame, m.GetType())
	}
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		index++
		if e.GetIndex() != index || e.GetTerm() < term || e.GetTerm() > m.GetTerm() || e.GetTerm() == 0 {
			return fmt.Errorf("%w: entry (%d, %d) at %d", errFrame, e.GetTerm(), e.GetIndex(), index)
		}
		if err := checkEntry(e); err != nil {
			return fmt.Errorf("%w: entry %d: %w", errFrame, index, err)
		}
		term = e.GetTerm()
	}
	return nil
}

// isLocalID reports whether an id is one that raft uses for itself.
func isLocalID(id uint64) bool { return id >= 1<<63 }

// checkEntry says whether a replica can apply an entry.
func checkEntry(e *raftpb.Entry) error {
	if len(e.GetData()) > segment.DataMax {
		return fmt.Errorf("%w: %d bytes", errFrame, len(e.GetData()))
	}
	switch e.GetType() {
	case raftpb.EntryNormal:
		return checkItems(e.GetData())
	case raftpb.EntryConfChangeV2:
		_, err := parseChange(e.GetData())
		return err
	case raftpb.EntryConfChange: // of another version
	}
	return fmt.Errorf("%w: an entry of kind %v", errFrame, e.GetType())
}

// checkItems says whether decodeItems can read the data.
func checkItems(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	commands, err := segment.Commands(data)
	if err != nil {
		return err
	}
	bodies, err := countBodies(commands)
	if err != nil {
		return err
	}
	err = segment.EachCommit(data, func(c segment.Commit) error {
		bodies--
		if c.Ref.Term == 0 || c.Ref.Seq == 0 || c.Length < 0 || !c.Large && c.Length > segment.InlineMax {
			return errCommands
		}
		return nil
	})
	if err == nil && bodies != 0 {
		err = errCommands
	}
	return err
}

// countBodies reads commands without allocating and counts the items that own a body.
func countBodies(b []byte) (bodies int, err error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)-n) {
		return 0, errCommands
	}
	b = b[n:]
	for range count {
		head, n := binary.Uvarint(b)
		if n <= 0 || head>>1 > uint64(len(b)-n) {
			return 0, errCommands
		}
		bodies += int(head & 1)
		b = b[uint64(n)+head>>1:]
	}
	if len(b) != 0 {
		return 0, errCommands
	}
	return bodies, nil
}

// quiet is what a leader says to a member before both stop ticking; or, if it is known, what any member says of an
// entry.
type quiet struct {
	known    bool
	from, to ReplicaID
	term     Term
	commit   Index // and, if it is not known, the last entry
}

func appendQuiet(dst []byte, q quiet) []byte {
	kind := quietFrame
	if q.known {
		kind = knownFrame
	}
	dst = append(dst, kind)
	for _, v := range [...]uint64{uint64(q.from), uint64(q.to), uint64(q.term), uint64(q.commit)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func parseQuiet(b []byte) (q quiet, err error) {
	var v [4]uint64
	rest, ok := uvarints(b[1:], v[:])
	if !ok || len(rest) != 0 || v[0] == 0 || v[1] == 0 || v[0] == v[1] || v[2] == 0 {
		return q, fmt.Errorf("%w: a quiet frame of %d bytes", errFrame, len(b))
	}
	return quiet{b[0] == knownFrame, ReplicaID(v[0]), ReplicaID(v[1]), Term(v[2]), Index(v[3])}, nil
}

// uvarints reads as many numbers as v holds.
func uvarints(b []byte, v []uint64) (rest []byte, ok bool) {
	for i := range v {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, false
		}
		v[i], b = x, b[n:]
	}
	return b, true
}

// beatHead is how a frame of heartbeats begins.
func beatHead(dst []byte, d DiskState) []byte { return append(dst, beatVersion, byte(d)) }

// beatHeadBytes is the length of that.
const beatHeadBytes = 2

// appendBeat appends a heartbeat or a response to one to a frame of heartbeats.
func appendBeat(dst []byte, g GroupID, m *raftpb.Message) []byte {
	if len(dst) == 0 {
		dst = beatHead(dst, 0)
	}
	from := m.GetFrom() << 1
	if m.GetType() == raftpb.MsgHeartbeatResp {
		from |= 1
	}
	for _, v := range [...]uint64{uint64(g), from, m.GetTo(), m.GetTerm(), m.GetCommit()} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// parseBeats gives every heartbeat of a frame, until one can't be read, and returns what ails the sender's disk.
func parseBeats(b []byte, give func(GroupID, *raftpb.Message)) (DiskState, error) {
	if len(b) < beatHeadBytes || len(b) > beatFrameMax || b[0] != beatVersion {
		return 0, fmt.Errorf("%w: %d bytes of heartbeats", errFrame, len(b))
	}
	disk := DiskState(b[1]) & diskStates
	for b = b[beatHeadBytes:]; len(b) > 0; {
		var v [5]uint64
		rest, ok := uvarints(b, v[:])
		if !ok {
			return disk, fmt.Errorf("%w: a heartbeat is cut short", errFrame)
		}
		b = rest
		kind := raftpb.MsgHeartbeat
		if v[1]&1 == 1 {
			kind = raftpb.MsgHeartbeatResp
		}
		m := &raftpb.Message{Type: kind.Enum(), From: new(v[1] >> 1), To: new(v[2]), Term: new(v[3])}
		if kind == raftpb.MsgHeartbeat {
			m.Commit = new(v[4])
		}
		if err := checkMessage(m); err != nil {
			return disk, err
		}
		give(GroupID(v[0]), m)
	}
	return disk, nil
}
