package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"weida/broker/admin"
	"weida/broker/wire"
)

// TestUnknownIsADash: what a leader does not know of a member is a dash for people, and no number.
func TestUnknownIsADash(t *testing.T) {
	g := &admin.GroupQuorum{Group: "queue/a", LeaderID: 1, CurrentVoters: []admin.ReplicaState{
		{ReplicaID: 1, ReplicaDirectoryID: "d1", LogEndOffset: 72, LastFetchTimestamp: -1, LastCaughtUpTimestamp: 5_000},
		{ReplicaID: 2, ReplicaDirectoryID: "d2", LogEndOffset: -1, LastFetchTimestamp: -1, LastCaughtUpTimestamp: -1},
	}}
	if entries, ms := maxLag(g); entries != -1 || ms != -1 {
		t.Errorf("a member that said nothing lags by %d entries and %d ms", entries, ms)
	}
	var b bytes.Buffer
	tellVoters(&b, g, &admin.QuorumResponse{})
	tellReplication(&b, g, true, time.UnixMilli(5_000))
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"MaxFollowerLag: - MaxFollowerLagTimeMs: -", "2 d2 - - - - Follower"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
}

// TestUndescribed: where nobody leads a group nobody is sent to ask its leader.
func TestUndescribed(t *testing.T) {
	why := "no leader is known here; 1 of 3 voters answer, and 2 are needed for a leader"
	g := &admin.GroupQuorum{Group: "queue/a", LeaderID: -1, ErrorCode: int16(wire.NotLeader), ErrorMessage: &why}
	got := undescribed(g, errors.New("Ask the leader"))
	if !strings.Contains(got, why) || strings.Contains(got, "Ask the leader") || !strings.Contains(got, "E5014") {
		t.Errorf("told %q", got)
	}
}
