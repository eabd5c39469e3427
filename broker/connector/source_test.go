package connector_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
)

// T-10, X-13: every finished line is published once, in order, whatever its length; the file is followed.
func TestSourceFollows(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("x", 300_000)
	edge := strings.Repeat("y", wire.InlineMax)
	r.write("f", "one\n\nthree\n"+long+"\n"+edge+"\n"+edge+"y\nunfin")
	u := r.run(r.options(sourceSpec()))
	u.untilAt(6)
	r.grow("f", "ished\neight\n")
	u.untilAt(8)
	s := u.Status()
	if s.Phase != control.Ready || s.Reason != "" || s.Messages != 8 || s.Done {
		t.Errorf("%+v", s)
	}
	u.stop()
	r.holds(1, "one", "", "three", long, edge, edge+"y", "unfinished", "eight")
}

// A file that is not followed is published to its end, its last line also without a newline; then Run ends.
func TestSourceOnce(t *testing.T) {
	r := newRig(t)
	r.write("f", "one\ntwo")
	o := r.options(with(sourceSpec(), "follow", "false"))
	u := r.run(o)
	u.finished()
	if s := u.Status(); !s.Done || s.Position != 2 {
		t.Errorf("%+v", s)
	}
	u = r.run(o)
	u.finished()
	r.holds(1, "one", "two")
	r.grow("f", " and more\n")
	u = r.run(o)
	u.untilWhy(control.Degraded, "FileChanged")
	u.stop()
	r.holds(1, "one", "two")
}

// B-230.2: the connector goes on over restarts of itself and of its node, with and without its state file: nothing is
// lost, nothing is doubled, the order holds.
func TestSourceRestarts(t *testing.T) {
	const n, phases = 9000, 6
	r := newRig(t)
	lines := numbered(1, n)
	r.write("f", text(lines[:n/phases]))
	u := r.run(r.options(sourceSpec()))
	for k := range phases {
		if k > 0 {
			r.grow("f", text(lines[k*n/phases:(k+1)*n/phases]))
		}
		u.untilAt(uint64(k*n/phases + n/phases/3)) // in the middle
		switch k % 3 {
		case 0: // the connector ends, and comes back knowing where it was
			u.stop()
			u = r.run(r.options(sourceSpec()))
		case 1: // it comes back without
			u.stop()
			r.remove(stateName)
			u = r.run(r.options(sourceSpec()))
		case 2: // the node goes
			r.stop()
			r.start()
		}
	}
	u.untilAt(n)
	u.stop()
	r.holds(1, lines...)
}

// The queue answers for what it has: lines that are sent again under their sequences are not stored again.
func TestSourceSendsAgain(t *testing.T) {
	r := newRig(t)
	lines := numbered(1, 5000)
	r.write("f", text(lines))
	u := r.run(r.options(sourceSpec()))
	u.untilAt(5000)
	u.stop()
	r.remove(stateName)
	u = r.run(r.options(sourceSpec()))
	u.untilAt(5000)
	u.stop()
	r.holds(1, lines...)
	r.grow("f", "more\n")
	u = r.run(r.options(sourceSpec()))
	u.untilAt(5001)
	u.stop()
	r.holds(1, append(lines, "more")...)
}

// A source that starts at the end passes over what is there, and over nothing that comes while it does not run.
func TestSourceStartsAtEnd(t *testing.T) {
	r := newRig(t)
	o := r.options(with(sourceSpec(), "startAt", "end"))
	r.write("f", text(numbered(1, 10))+"unfin")
	u := r.run(o)
	u.untilAt(10)
	u.stop()
	r.grow("f", "ished\n12\n")
	u = r.run(o)
	u.untilAt(12)
	u.stop()
	r.holds(11, "unfinished", "12")
	r.remove(stateName) // the queue knows where it began
	r.grow("f", "13\n")
	u = r.run(o)
	u.untilAt(13)
	u.stop()
	r.holds(11, "unfinished", "12", "13")
}

// T-10: a queue that does not exist is waited for; a file, too.
func TestSourceWaits(t *testing.T) {
	r := newRig(t)
	spec := sourceSpec()
	spec.Queue = "later"
	u := r.run(r.options(spec))
	s := u.untilWhy(control.Pending, "FileNotFound")
	if !strings.Contains(s.Message, r.path("f")) {
		t.Error(s.Message)
	}
	r.write("f", "one\n")
	s = u.untilWhy(control.Pending, "QueueNotFound")
	if !strings.Contains(s.Message, "There is no queue of that name") {
		t.Error(s.Message)
	}
	r.make("later")
	u.untilAt(1)
	r.stop()
	r.grow("f", "two\n")
	u.untilWhy(control.Degraded, "Unreachable")
	r.start()
	u.untilAt(2)
	u.stop()
}

// A file that is not the one it was is not published from: nobody knows which of its lines are new.
func TestSourceOfAnotherFile(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*rig)
	}{
		{"shorter", func(r *rig) { r.write("f", "one\n") }},
		{"replaced", func(r *rig) { r.write("f", "ONE\ntwo\nthree\nfour\n") }},
		{"moved away", func(r *rig) {
			if err := os.Rename(r.path("f"), r.path("f.1")); err != nil {
				r.t.Fatal(err)
			}
			r.write("f", "other\nlines\nare here\nnow\n")
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newRig(t)
			r.write("f", "one\ntwo\nthree\n")
			u := r.run(r.options(sourceSpec()))
			u.untilAt(3)
			c.change(r)
			u.untilWhy(control.Degraded, "FileChanged")
			u.stop()
			if c.what == "shorter" { // without a state file the queue's count tells
				r.remove(stateName)
				u = r.run(r.options(sourceSpec()))
				u.untilWhy(control.Degraded, "FileChanged")
				u.stop()
			}
			r.holds(1, "one", "two", "three")
			r.write("f", "one\ntwo\nthree\nfour\n")
			u = r.run(r.options(sourceSpec()))
			u.untilAt(4)
			u.stop()
			r.holds(1, "one", "two", "three", "four")
		})
	}
}

// A queue that has forgotten all that it confirmed gets nothing: every line would come again.
func TestSourceIsForgotten(t *testing.T) {
	r := newRig(t)
	r.write("f", "one\ntwo\n")
	u := r.run(r.options(sourceSpec()))
	u.untilAt(2)
	u.stop()
	if err := r.client().Retire(r.ctx, "q", "connector-7"); err != nil {
		t.Fatal(err)
	}
	u = r.run(r.options(sourceSpec()))
	u.untilWhy(control.Degraded, "PositionForgotten")
	u.stop()
	r.holds(1, "one", "two")
	if err := u.Forget(r.ctx); err != nil { // which is what makes it begin anew
		t.Fatal(err)
	}
	u = r.run(r.options(sourceSpec()))
	u.untilAt(2)
	u.stop()
	if got := r.inQueue(); len(got) != 4 {
		t.Errorf("%d messages", len(got))
	}
}

// A line below one that the queue has may be missing there: it was refused for the moment when the source was killed.
// It is found without a state file, too.
func TestSourceFillsGap(t *testing.T) {
	const n, missing = 2000, 1500
	r := newRig(t)
	err := r.n.MakeQueue(r.ctx, "small", control.QueueSpec{Limits: control.QueueLimits{MessageBytes: 100}})
	if err != nil {
		t.Fatal(err)
	}
	r.queue = "small"
	lines := numbered(1, n)
	r.write("f", text(lines))
	p, err := r.client().Producer(r.ctx, "small", client.ProducerOptions{
		Want: wire.Stored(wire.Flushed), ID: "connector-7",
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range lines[:n-20] {
		if i+1 == missing {
			l = strings.Repeat("x", 101) // refused for a reason, so that its place stays open
		}
		if err := p.Send(r.ctx, client.Message{Bytes: []byte(l), Seq: uint64(i + 1)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(r.ctx); err != nil {
		t.Fatal(err)
	}
	spec := sourceSpec()
	spec.Queue = "small"
	u := r.run(r.options(spec))
	u.untilAt(n)
	u.stop()
	var want []message
	for _, i := range slices.Concat(upTo(1, missing-1), upTo(missing+1, n-20), []int{missing}, upTo(n-19, n)) {
		want = append(want, message{uint64(i), lines[i-1]})
	}
	if got := r.inQueue(); !slices.Equal(got, want) {
		t.Errorf("%d messages, want %d: %v", len(got), len(want), got)
	}
}

// upTo is the numbers from first to last.
func upTo(first, last int) (list []int) {
	for i := first; i <= last; i++ {
		list = append(list, i)
	}
	return list
}

// Evidence that the queue cannot give is not weakened: nothing is published.
func TestSourceIsNotWeakened(t *testing.T) {
	r := newRig(t)
	r.write("f", "one\n")
	spec := sourceSpec()
	spec.Evidence = "replicated:3:flushed"
	u := r.run(r.options(spec))
	u.untilWhy(control.Degraded, "NotOffered")
	u.stop()
	r.holds(1)
}

// A line that the queue refuses holds the source at it; it goes on when there is room.
func TestSourceMeetsFullQueue(t *testing.T) {
	r := newRig(t)
	if err := r.n.MakeQueue(r.ctx, "small", control.QueueSpec{Limits: control.QueueLimits{Messages: 50}}); err != nil {
		t.Fatal(err)
	}
	lines := numbered(1, 400)
	r.write("f", text(lines))
	spec := sourceSpec()
	spec.Queue = "small"
	u := r.run(r.options(spec))
	u.untilWhy(control.Degraded, "QueueFull")
	got := r.drain("small", 400)
	u.untilAt(400)
	u.stop()
	slices.Sort(got)
	slices.Sort(lines)
	if !slices.Equal(got, lines) {
		t.Errorf("%d messages, or not the lines", len(got))
	}
}

// A second one with the same uid waits: they would tread on each other.
func TestOnlyOneRuns(t *testing.T) {
	r := newRig(t)
	r.write("f", "one\n")
	first := r.run(r.options(sourceSpec()))
	first.untilAt(1)
	second := r.run(r.options(sourceSpec()))
	second.untilWhy(control.Pending, "Locked")
	first.stop()
	second.untilAt(1)
	second.stop()
	r.holds(1, "one")
}
