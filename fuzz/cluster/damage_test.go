package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weida/broker/control"
	"weida/broker/wire"
)

// While a producer and a consumer never pause, nodes are killed, a byte in the middle of a log is changed, a directory
// goes, and they are started again: the leader's replica of the queue, a follower's, and a node's control log. Every
// group is healthy again without anybody's help, nothing that was confirmed is missing, and what was damaged lies aside
// (field cases 3, 4, 9, 10, 18; T-52).
func TestDamageHealsInUse(t *testing.T) {
	every(t)
	t.Parallel() // mostly it waits for elections and for what is silent
	r := newRig(t, 3)
	r.apply("q", control.QueueSpec{Replicas: 3})
	q, err := r.queue("q")
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(t, "q")
	p := &producing{r: r, l: l, id: "p", want: wire.Replicated(2, wire.Flushed), size: 200, every: time.Millisecond}
	k := &consuming{r: r, l: l, id: "k"}
	stopConsuming, stopProducing := r.background(k.run), r.background(p.run)
	goesOn := func() {
		before, _ := l.tally()
		r.await(l, "some more are confirmed and settled", func(c tally) bool {
			return c.confirmed >= before.confirmed+100 && c.settled >= before.settled+100
		})
	}
	goesOn()
	for _, s := range []struct {
		what  string
		leads bool
		group uint64
		ruin  func(t *testing.T, dir string)
	}{
		{"the leader's log", true, q.Metadata.UID, flipped},
		{"a follower's directory", false, q.Metadata.UID, func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}},
		{"a follower's log", false, q.Metadata.UID, flipped},
		{"a node's control log", false, 1, flipped},
	} {
		r.healthy(hang)
		x := r.leader("q")
		if !s.leads {
			x = r.others(x)[0]
		}
		dir := filepath.Join(x.Dir, "groups", fmt.Sprint(s.group))
		before := aside(t, dir)
		r.kill(x)
		s.ruin(t, dir)
		goesOn()
		began := time.Now()
		r.start(x)
		r.within(hang, "what was damaged lies aside", func() error {
			if n := aside(t, dir); n != before+1 {
				return fmt.Errorf("%d of group %d do", n-before, s.group)
			}
			return nil
		})
		r.healthy(hang)
		t.Logf("%s, on %s: healthy after %v", s.what, x.Name, time.Since(began).Round(time.Millisecond))
		goesOn()
	}
	stopProducing()
	r.await(l, "all are accepted", func(c tally) bool { return c.accepted == c.sent })
	stopConsuming()
	r.finish(l)
	r.owned(l)
}

// aside counts what lies aside of a group.
func aside(t *testing.T, dir string) (n int) {
	t.Helper()
	rows, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if strings.HasPrefix(row.Name(), filepath.Base(dir)+".lost-") {
			n++
		}
	}
	return n
}

// flipped changes a byte in the middle of what is written of a group's last segment.
func flipped(t *testing.T, dir string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for i := len(list) - 1; i >= 0; i-- {
		b, err := os.ReadFile(list[i])
		if err != nil {
			t.Fatal(err)
		}
		n := len(bytes.TrimRight(b, "\x00"))
		if n < 4<<10 { // made ahead, or the end of a log that nothing promises yet
			continue
		}
		b[n/2] ^= 0x10
		if err := os.WriteFile(list[i], b, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("there is no segment with anything in it in %s", dir)
}
