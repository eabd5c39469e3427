package raftstore

import (
	"bytes"
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"weida/segment"
)

// sample are messages that replicas send.
func sample() []*raftpb.Message {
	body := segment.Commit{Ref: BodyRef{Term: 3, Seq: 1}, Length: 4, Digest: segment.DigestOf([]byte("body"))}
	data := segment.AppendData(nil, []segment.Commit{body},
		appendCommand(appendCommandsHead(nil, 1), &Item{Command: []byte("p"), HasBody: true}))
	cc, err := proto.Marshal(changeTo(newConfig(1, members(1)), members(3)))
	if err != nil {
		panic(err)
	}
	entry := func(term, index uint64, kind raftpb.EntryType, data []byte) *raftpb.Entry {
		return &raftpb.Entry{Term: new(term), Index: new(index), Type: kind.Enum(), Data: data}
	}
	return []*raftpb.Message{
		{
			Type: raftpb.MsgApp.Enum(), From: new(uint64(11)), To: new(uint64(12)), Term: new(uint64(4)),
			Index: new(uint64(100)), LogTerm: new(uint64(3)), Commit: new(uint64(101)),
			Entries: []*raftpb.Entry{
				entry(3, 101, raftpb.EntryNormal, data), entry(4, 102, raftpb.EntryNormal, nil),
				entry(4, 103, raftpb.EntryConfChangeV2, cc), entry(4, 104, raftpb.EntryConfChangeV2, nil),
			},
		},
		{
			Type: raftpb.MsgAppResp.Enum(), From: new(uint64(12)), To: new(uint64(11)), Term: new(uint64(4)),
			Index: new(uint64(100)), Reject: new(true), RejectHint: new(uint64(90)), LogTerm: new(uint64(2)),
		},
		{
			Type: raftpb.MsgVote.Enum(), From: new(uint64(12)), To: new(uint64(11)), Term: new(uint64(5)),
			Index: new(uint64(100)), LogTerm: new(uint64(2)), Context: []byte("CampaignTransfer"),
		},
	}
}

// Frames say what was put into them.
func TestFrames(t *testing.T) {
	for _, m := range sample() {
		got, err := parseMessage(appendMessage(nil, m))
		if err != nil || !proto.Equal(got, m) {
			t.Errorf("%v\nbecame %v: %v", m, got, err)
		}
	}
	q := quiet{from: 11, to: 12, term: 7, commit: 1 << 40}
	if got, err := parseQuiet(appendQuiet(nil, q)); err != nil || got != q {
		t.Errorf("%+v became %+v: %v", q, got, err)
	}
	var frame []byte
	for i := range uint64(3) {
		m := &raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), From: new(11 + i), To: new(21 + i), Term: new(i + 1), Commit: new(i),
		}
		frame = appendBeat(frame, GroupID(i), m)
	}
	frame[beatHeadBytes-1] = byte(DiskNoRoom)
	n := uint64(0)
	disk, err := parseBeats(frame, func(g GroupID, m *raftpb.Message) {
		if uint64(g) != n || m.GetFrom() != 11+n || m.GetTo() != 21+n || m.GetTerm() != n+1 || m.GetCommit() != n {
			t.Errorf("heartbeat %d: group %d, %v", n, g, m)
		}
		n++
	})
	if err != nil || n != 3 || disk != DiskNoRoom {
		t.Errorf("%d heartbeats, disk %v: %v", n, disk, err)
	}
	if disk, err := parseBeats(beatHead(nil, DiskSlow), nil); err != nil || disk != DiskSlow {
		t.Errorf("a frame without heartbeats: %v, %v", disk, err)
	}
}

// What no replica sends is refused before raft sees it (row 44 of the fault matrix).
func TestBadFrames(t *testing.T) {
	for name, spoil := range map[string]func(m *raftpb.Message){
		"a local kind":         func(m *raftpb.Message) { m.Type = raftpb.MsgHup.Enum() },
		"a snapshot":           func(m *raftpb.Message) { m.Snapshot = &raftpb.Snapshot{} },
		"nested messages":      func(m *raftpb.Message) { m.Responses = []*raftpb.Message{{}} },
		"no sender":            func(m *raftpb.Message) { m.From = nil },
		"to itself":            func(m *raftpb.Message) { m.To = m.From },
		"raft's own thread":    func(m *raftpb.Message) { m.From = new(uint64(1<<64 - 1)) },
		"no term":              func(m *raftpb.Message) { m.Term = nil },
		"a gap":                func(m *raftpb.Message) { m.Entries[1].Index = new(uint64(105)) },
		"a term that falls":    func(m *raftpb.Message) { m.Entries[1].Term = new(uint64(1)) },
		"a term of the future": func(m *raftpb.Message) { m.Entries[3].Term = new(uint64(9)) },
		"commands":             func(m *raftpb.Message) { m.Entries[0].Data = []byte{1, 2, 3} },
		"an old change":        func(m *raftpb.Message) { m.Entries[2].Type = raftpb.EntryConfChange.Enum() },
		"a change":             func(m *raftpb.Message) { m.Entries[2].Data = []byte{0xff} },
		"a long context":       func(m *raftpb.Message) { m.Context = make([]byte, 100) },
		"a large entry":        func(m *raftpb.Message) { m.Entries[0].Data = make([]byte, segment.DataMax+1) },
	} {
		m := sample()[0]
		spoil(m)
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseMessage(append([]byte{messageFrame}, b...)); !errors.Is(err, errFrame) &&
			!errors.Is(err, errMembers) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := []byte{messageFrame}
	for range raftEntriesMax + 1 {
		many = protowire.AppendBytes(protowire.AppendTag(many, 7, protowire.BytesType), nil)
	}
	if _, err := parseMessage(many); !errors.Is(err, errFrame) {
		t.Errorf("many entries: %v", err)
	}
}

// A message is taken only from the node on which its sender is.
func TestMisplaced(t *testing.T) {
	c, lead := threeNodes(t, 41)
	other := c.rest(lead)[0]
	r := c.group(lead, 1)
	term := r.term
	m := &raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), From: new(uint64(replicaOn(other.id))), To: new(uint64(r.rid)),
		Term: new(uint64(term) + 7),
	}
	lead.host.ReceiveRaft(c.rest(lead)[1].id, []Frame{{1, appendMessage(nil, m)}})
	c.settle()
	if r.term != term || r.peers.misplaced != 1 {
		t.Errorf("term %d after %d, %d misplaced", r.term, term, r.peers.misplaced)
	}
	// Of the right node it is believed.
	lead.host.ReceiveRaft(other.id, []Frame{{1, appendMessage(nil, m)}})
	c.settle()
	if r.term <= term {
		t.Errorf("term %d after %d", r.term, term)
	}
}

// A group that is not here is refused, and whether it was taken down for good; the sender hears of it (T-42).
func TestRefusals(t *testing.T) {
	c := newClusterWith(t, 3, 42, HostOptions{Shards: 1, Retired: func(g GroupID) bool { return g == 9 }})
	frame := appendMessage(nil, sample()[1])
	list := c.node(1).host.ReceiveRaft(2, []Frame{{8, frame}, {9, frame}})
	if len(list) != 2 || list[0] != (Refusal{8, UnknownGroup}) || list[1] != (Refusal{9, RetiredGroup}) {
		t.Errorf("refused: %v", list)
	}
	for _, n := range c.nodes[:2] {
		c.open(n, 1, genesis(3))
	}
	refused := 0
	c.drop = func(p *packet) bool {
		refused += len(p.refused)
		return false
	}
	c.leader(1)
	if refused == 0 {
		t.Error("node 3 does not serve the group and has refused nothing")
	}
}

// FuzzFrame: whatever comes, what is accepted is what a replica could have sent.
func FuzzFrame(f *testing.F) {
	for _, m := range sample() {
		f.Add(appendMessage(nil, m))
		f.Add(appendBeat(nil, 5, m))
	}
	f.Add(appendQuiet(nil, quiet{from: 1, to: 2, term: 3, commit: 4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseMessage(b); err == nil {
			again, err := parseMessage(appendMessage(nil, m))
			if err != nil || !proto.Equal(m, again) {
				t.Errorf("%v\nbecame %v: %v", m, again, err)
			}
			for _, e := range m.GetEntries() {
				if e.GetType() == raftpb.EntryNormal {
					if _, err := decodeItems(nil, e.GetData()); err != nil {
						t.Errorf("entry %d was accepted and can't be applied: %v", e.GetIndex(), err)
					}
				}
			}
		}
		if len(b) > 0 {
			if q, err := parseQuiet(b); err == nil && (b[0] == quietFrame || b[0] == knownFrame) {
				if again, err := parseQuiet(appendQuiet(nil, q)); err != nil || again != q {
					t.Errorf("%+v became %+v: %v", q, again, err)
				}
			}
		}
		var beats []byte
		if _, err := parseBeats(b, func(g GroupID, m *raftpb.Message) { beats = appendBeat(beats, g, m) }); err == nil {
			var twice []byte
			_, err := parseBeats(beats, func(g GroupID, m *raftpb.Message) { twice = appendBeat(twice, g, m) })
			if len(beats) > 0 && (err != nil || !bytes.Equal(beats, twice)) {
				t.Errorf("heartbeats %x became %x: %v", beats, twice, err)
			}
		}
	})
}

// FuzzMembers: a table that is accepted is one that a group may have.
func FuzzMembers(f *testing.F) {
	f.Add(appendMembers(nil, members(3)))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseMembers(b)
		if err != nil {
			return
		}
		if err := checkMembers(list); err != nil {
			t.Error(err)
		}
		if again, err := parseMembers(appendMembers(nil, list)); err != nil || len(again) != len(list) {
			t.Errorf("%v became %v: %v", list, again, err)
		}
	})
}
