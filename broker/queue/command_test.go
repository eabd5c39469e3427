package queue

import (
	"encoding/hex"
	"strings"
	"testing"
)

// commands is each command with its bytes.
var commands = []struct {
	command Command
	bytes   string
}{
	{Command{Kind: Publish}, "01"},
	{Command{Kind: Attach, Subscription: "s", Session: 300, Limit: 2}, "020173ac0202"},
	{Command{Kind: Detach, Subscription: "s", Session: 300}, "030173ac02"},
	{Command{Kind: DetachAll}, "04"},
	{Command{Kind: Limit, Subscription: "s", Limit: 9}, "05017309"},
	{
		Command{Kind: Settle, Subscription: "s", Session: 3, Offset: 17, Attempt: 1, Term: 6, Verb: Reject},
		"06017303110106" + "03",
	},
	{Command{Kind: Unsubscribe, Subscription: "s"}, "070173"},
	{
		Command{Kind: Register, Producer: "p", Identity: [32]byte{1, 31: 2}, Session: 5},
		"080170" + "01" + strings.Repeat("00", 30) + "02" + "05",
	},
	{
		Command{Kind: Retire, Producer: "p", Identity: [32]byte{1, 31: 2}, Session: 300},
		"090170" + "01" + strings.Repeat("00", 30) + "02" + "ac02",
	},
	{Command{Kind: PublishFrom, Slot: 1, Seq: 300, Low: 2}, "0a01ac0202"},
	{Command{Kind: Configure, MaxMessages: 1, MaxBytes: 300, Closed: true}, "0b01ac0201"},
	{Command{Kind: Configure}, "0b000000"},
	{Command{Kind: Purge, Session: 300}, "0cac02"},
	{Command{Kind: DetachBelow, Session: 300}, "0eac02"},
	{Command{Kind: Grant, Subscription: "s", Session: 300, Limit: 9}, "0d0173ac0209"},
}

// The bytes of commands stand in logs: they never change.
func TestCommandBytes(t *testing.T) {
	for _, c := range commands {
		if got := hex.EncodeToString(c.command.Append(nil)); got != c.bytes {
			t.Errorf("%+v: %s, want %s", c.command, got, c.bytes)
		}
		raw, _ := hex.DecodeString(c.bytes)
		if got, err := Decode(raw); err != nil || got != c.command {
			t.Errorf("%s: %+v, %v", c.bytes, got, err)
		}
		for cut := range len(raw) {
			if got, err := Decode(raw[:cut]); err == nil {
				t.Errorf("%s cut at %d: %+v", c.bytes, cut, got)
			}
		}
		if got, err := Decode(append(raw, 0)); err == nil {
			t.Errorf("%s and a byte more: %+v", c.bytes, got)
		}
	}
	for _, raw := range []string{
		"", "00", "0f", "ff", "0601730311010600", "0601730311010604",
		"0c8000", "0cffffffffffffffffff02", // a number too long, one too large
		"0b000002", "0800" + strings.Repeat("00", 33), // a flag of neither kind, no id
	} {
		b, _ := hex.DecodeString(raw)
		if got, err := Decode(b); err == nil {
			t.Errorf("%q: %+v", raw, got)
		}
	}
}
