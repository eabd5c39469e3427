package main

import (
	"strings"
	"testing"
	"time"

	"weida/broker/admin"
)

// A follower that stands still has a lag of no entries and of all the time that it said nothing.
func TestSilentFollowerLags(t *testing.T) {
	const now = 1_000_000
	g := &admin.GroupQuorum{Group: "queue/a", LeaderID: 1, CurrentVoters: []admin.ReplicaState{
		{ReplicaID: 1, LogEndOffset: 9, LastFetchTimestamp: -1, LastCaughtUpTimestamp: now},
		{ReplicaID: 2, LogEndOffset: 9, LastFetchTimestamp: now - 100, LastCaughtUpTimestamp: now - 60_000}, // idle
		{ReplicaID: 3, LogEndOffset: 9, LastFetchTimestamp: now - 12_345, LastCaughtUpTimestamp: now - 12_345},
		{ReplicaID: 4, LogEndOffset: 9, LastFetchTimestamp: now - 9_999, LastCaughtUpTimestamp: now - 9_999, Lost: "Emptied"},
		{ReplicaID: 5, LogEndOffset: -1, LastFetchTimestamp: -1, LastCaughtUpTimestamp: -1, Lost: "Damaged"},
	}}
	if entries, ms := maxLag(g); entries != 0 || ms != 12_345 {
		t.Errorf("%d entries, %d ms", entries, ms)
	}
	var b strings.Builder
	tellReplication(&b, g, false, time.UnixMilli(now))
	if n := strings.Count(b.String(), "(silent"); n != 1 || !strings.Contains(b.String(), "Follower (silent for 12 s)") {
		t.Error(b.String())
	}
	for _, want := range []string{
		"Lost (Emptied), silent since 1970-01-01T00:16:30Z; another one takes its place",
		"Lost (Damaged), of which its leader never heard; another one takes its place",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q: %s", want, b.String())
		}
	}
}
