package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

// TestReport: answers come in any order and are printed in that of their sequences, in the words that
// scripts rely on, and the worst of them is the exit status: 4 before 5 before 3.
func TestReport(t *testing.T) {
	flushed := wire.Stored(wire.Flushed)
	ok := func(seq uint64) client.Result {
		return client.Result{
			Seq: seq, Outcome: client.OK, Evidence: flushed, Committed: true, Offset: 9 + seq, Term: 2,
			Latency: 1500 * time.Microsecond,
		}
	}
	refused := func(seq uint64) client.Result {
		return client.Result{Seq: seq, Outcome: client.Refused, Err: &wire.Error{Code: wire.DiskFull}}
	}
	below := func(seq uint64) client.Result {
		return client.Result{
			Seq: seq, Outcome: client.BelowRequest, Evidence: wire.Replicated(2, wire.Written), Committed: true,
			Offset: 0, Term: 2, Err: &wire.Error{Code: wire.NotOffered},
		}
	}
	lost := func(seq uint64) client.Result {
		return client.Result{Seq: seq, Outcome: client.Indeterminate, Err: &wire.Error{Code: wire.ConnectionLost}}
	}
	accepted := client.Result{Seq: 1, Outcome: client.OK, Evidence: wire.Accepted()}
	for _, c := range []struct {
		name    string
		results []client.Result
		status  int
		lines   []string // what each line starts with
	}{
		{"ok", []client.Result{ok(2), ok(1)}, 0, []string{
			`{"queue":"q","seq":1,"offset":10,"term":2,"outcome":"ok","evidence":{"level":"stored","flushed":true},` +
				`"code":"","detail":"","latency_ms":1.5}`,
			`{"queue":"q","seq":2,"offset":11,`,
		}},
		{"accepted", []client.Result{accepted}, 0, []string{
			`{"queue":"q","seq":1,"term":0,"outcome":"ok","evidence":{"level":"accepted"},"code":"","detail":"",` +
				`"latency_ms":0}`,
		}},
		{"refused", []client.Result{ok(1), refused(2)}, statusRefused, []string{
			`{"queue":"q","seq":1,`, `{"queue":"q","seq":2,"term":0,"outcome":"refused","evidence":null,"code":"E2001",` +
				`"detail":"The node's disk`,
		}},
		{"below", []client.Result{below(3), refused(2), ok(1)}, statusBelow, []string{
			`{"queue":"q","seq":1,`, `{"queue":"q","seq":2,`,
			`{"queue":"q","seq":3,"offset":0,"term":2,"outcome":"below_request",` +
				`"evidence":{"level":"replicated","flushed":false,"n":2},"code":"E1003",`,
		}},
		{"indeterminate", []client.Result{lost(1), below(2), refused(3)}, statusIndeterminate, []string{
			`{"queue":"q","seq":1,"term":0,"outcome":"indeterminate","evidence":null,"code":"E4001",`,
			`{"queue":"q","seq":2,`, `{"queue":"q","seq":3,`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newPubReport("q", true, 0, 1)
			var out bytes.Buffer
			r.out = bufio.NewWriter(&out)
			for _, res := range c.results {
				r.result(res)
			}
			err := r.end(nil)
			if got := status(err); err != nil && got != c.status || err == nil && c.status != 0 {
				t.Errorf("status %d, want %d", got, c.status)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(lines) != len(c.lines) {
				t.Fatalf("%d lines, want %d:\n%s", len(lines), len(c.lines), out.String())
			}
			for i, l := range lines {
				if !strings.HasPrefix(l, c.lines[i]) {
					t.Errorf("line %d is\n%s\nand does not start with\n%s", i+1, l, c.lines[i])
				}
			}
		})
	}
}

// TestAlike: messages that end in the same way are one line with a count, whatever came between is told in
// its place, nothing is held back for long, and the error at the end repeats nothing.
func TestAlike(t *testing.T) {
	lost := &client.LostError{Addr: "a", Err: errors.New("timeout")}
	gone := &wire.Error{Code: wire.ConnectionLost, Detail: lost.Error()}
	full := &wire.Error{Code: wire.QueueFull}
	now := time.Unix(0, 0)
	var talk bytes.Buffer
	r := newPubReport("q", false, 0, 5)
	r.talk, r.now = &talk, func() time.Time { return now }
	r.out = bufio.NewWriter(io.Discard)
	for seq := uint64(5); seq < 9; seq++ {
		r.result(client.Result{Seq: seq, Outcome: client.Refused, Err: full})
	}
	r.result(client.Result{Seq: 9, Outcome: client.OK, Evidence: wire.Accepted()})
	now = now.Add(alikeMax - 1)
	r.result(client.Result{Seq: 10, Outcome: client.Refused, Err: full})
	now = now.Add(alikeMax)
	r.result(client.Result{Seq: 11, Outcome: client.Refused, Err: full})
	r.result(client.Result{Seq: 12, Outcome: client.Refused, Err: full})
	now = now.Add(alikeMax)
	r.show() // nothing came after it
	r.result(client.Result{Seq: 13, Outcome: client.Refused, Err: full})
	for seq := uint64(14); seq < 1037; seq++ {
		r.result(client.Result{Seq: seq, Outcome: client.Indeterminate, Err: gone})
	}
	err := r.end(errors.Join(&unsentError{"message", 1037, lost}, lost, errors.New("disk gone"), errors.New("disk gone")))
	if got := status(err); got != statusIndeterminate {
		t.Errorf("status %d", got)
	}
	if want := "message 1037, and what follows it, was not sent\ndisk gone"; err.Error() != want {
		t.Errorf("the end says\n%v\nwant\n%s", err, want)
	}
	want := []string{
		"q: 4 messages, 5 to 8, refused: ", "q: 2 messages, 10 to 11, refused: ", "q: message 12 refused: ",
		"q: message 13 refused: ", "q: 1023 messages, 14 to 1036, indeterminate: ",
	}
	lines := strings.Split(strings.TrimSuffix(talk.String(), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), talk.String())
	}
	for i, l := range lines {
		if !strings.HasPrefix(l, want[i]) {
			t.Errorf("line %d is\n%s\nand does not start with\n%s", i+1, l, want[i])
		}
	}
}

// TestStatus: each kind of error has the exit status that the reference names.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("a slip"), statusUsage},
		{&client.LostError{Addr: "a", Err: errors.New("gone")}, statusUnreachable},
		{&client.ProtocolError{Cause: "x"}, statusUnreachable},
		{&wire.Error{Code: wire.UnknownQueue}, statusRefused},
		{&wire.Error{Code: wire.MutationIndeterminate}, statusIndeterminate},
		{&apiError{Code: "E5001"}, statusRefused},
		{&apiError{Code: "E5008"}, statusIndeterminate},
		{&unsentError{"message", 1, &client.LostError{Addr: "a", Err: errors.New("gone")}}, statusUnreachable},
		{&exitError{statusIndeterminate, &wire.Error{Code: wire.UnknownQueue}}, statusIndeterminate},
	} {
		if got := status(c.err); got != c.want {
			t.Errorf("%v has status %d, want %d", c.err, got, c.want)
		}
	}
}

// TestStaleFolded: what a lost connection left unanswered is one line, and apart from what was refused.
func TestStaleFolded(t *testing.T) {
	gone := func() *wire.Error { return &wire.Error{Code: wire.ConnectionLost, Detail: "timeout"} }
	stale := []client.Stale{{Offset: 7, Attempt: 1, Err: gone()}, {Offset: 3, Attempt: 2, Err: gone()}}
	var talk bytes.Buffer
	if got := status(tellStale(&talk, "q", stale)); got != statusIndeterminate {
		t.Errorf("status %d", got)
	}
	stale = append(stale, client.Stale{Offset: 9, Attempt: 1, Err: &wire.Error{Code: wire.StaleSettle}})
	if got := status(tellStale(&talk, "q", stale[2:])); got != statusRefused {
		t.Errorf("status %d", got)
	}
	lines := strings.Split(strings.TrimSuffix(talk.String(), "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "q: 2 deliveries, of offsets 3 to 7, may not be settled: ") ||
		!strings.HasPrefix(lines[1], "q: the delivery of offset 9 had no settlement: ") {
		t.Errorf("it says\n%s", talk.String())
	}
	if strings.Contains(lines[0], "Send it again") || tellStale(&talk, "q", nil) != nil {
		t.Error("what a consumer is told is for a publisher, or nothing is something")
	}
}
