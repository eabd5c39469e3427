package connector_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"weida/broker/connector"

	"weida/broker/client"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/faultfs"
)

// left is how many messages are in the queue, once nothing is under delivery.
func (r *rig) left() (n int) {
	r.t.Helper()
	for _, err := range r.client().Peek(r.ctx, "q", client.PeekOptions{}) {
		if err != nil {
			r.t.Fatal(err)
		}
		n++
	}
	return n
}

// wantFile waits until the sink has accepted n messages, stops it and compares the file.
func (u *run) wantFile(n uint64, text string) {
	u.r.t.Helper()
	u.until("done", func(s connector.Status) bool { return s.Messages >= n })
	for _, when := range []string{"runs", "ended"} { // its readers see no more and no less meanwhile
		if got := u.r.read("f"); got != text {
			u.r.t.Errorf("when the sink %s the file is %.80q (%d bytes), want %.80q (%d)", when, got, len(got), text, len(text))
		}
		if when == "runs" {
			u.stop()
		}
	}
}

// messages are appended in order behind what is there, and are gone from the queue when they were accepted.
func TestSinkAppends(t *testing.T) {
	r := newRig(t)
	r.write("f", "before\n")
	long := strings.Repeat("x", 600_000)
	r.publish("one", "", long, strings.Repeat("y", wire.InlineMax))
	r.publish(numbered(5, 1000)...)
	u := r.run(r.options(sinkSpec()))
	all := "before\none\n\n" + long + "\n" + strings.Repeat("y", wire.InlineMax) + "\n" + text(numbered(5, 1000))
	u.wantFile(1004, all)
	if n := r.left(); n > 0 {
		t.Errorf("%d messages are left", n)
	}
	if s := u.Status(); s.Position != uint64(len(all)) || s.Phase != control.Ready {
		t.Errorf("%+v", s)
	}
	r.publish("last")
	r.run(r.options(sinkSpec())).wantFile(1, all+"last\n")
}

// With a length before each message anything can be in it.
func TestSinkFramesByLength(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("x\n", 100_000)
	r.publish("one", "", "t\nwo", long)
	want := fmt.Sprintf("3\none\n0\n\n4\nt\nwo\n%d\n%s\n", len(long), long)
	r.run(r.options(with(sinkSpec(), "framing", "length"))).wantFile(4, want)
}

// A message that would be two lines is not written and not dropped, unless the spec says that it may be lost.
func TestSinkMeetsNewline(t *testing.T) {
	for _, body := range []string{"t\nwo", strings.Repeat("x", 500_000) + "\n" + strings.Repeat("x", 500_000)} {
		r := newRig(t)
		r.publish("one", body, "three")
		u := r.run(r.options(sinkSpec()))
		u.untilWhy(control.Degraded, "NotOneLine")
		u.stop()
		if got := r.read("f"); got != "one\n" {
			t.Errorf("the file is %.80q", got)
		}
		if n := r.left(); n != 2 {
			t.Errorf("%d messages are left", n)
		}
		spec := sinkSpec()
		spec.Loss = "duplicates, unframed"
		u = r.run(r.options(spec))
		u.wantFile(1, "one\nthree\n")
		if s := u.Status(); s.Rejected != 1 || r.left() > 0 {
			t.Errorf("%+v, %d left", s, r.left())
		}
	}
}

// What lies behind the mark belongs to messages that were not accepted and come again: it is cut. A file with other
// bytes before the mark is somebody else's, and is not touched.
func TestSinkCutsItsOwnTail(t *testing.T) {
	r := newRig(t)
	r.publish("one", "two")
	r.run(r.options(sinkSpec())).wantFile(2, "one\ntwo\n")
	r.grow("f", "three\nfour\nfive of another order\nsi")
	r.publish("three", "four")
	r.run(r.options(sinkSpec())).wantFile(2, "one\ntwo\nthree\nfour\n")
	const other = "somebody else's file, and a longer one\n"
	r.write("f", other)
	u := r.run(r.options(sinkSpec()))
	u.untilWhy(control.Degraded, "FileChanged")
	u.stop()
	if got := r.read("f"); got != other {
		t.Errorf("the file is %q", got)
	}
}

// A file that was moved away or emptied, as by a log rotation, begins anew.
func TestSinkBeginsAnew(t *testing.T) {
	r := newRig(t)
	r.publish("one")
	r.run(r.options(sinkSpec())).wantFile(1, "one\n")
	r.remove("f")
	r.publish("two")
	r.run(r.options(sinkSpec())).wantFile(1, "two\n")
	r.write("f", "")
	r.publish("three")
	r.run(r.options(sinkSpec())).wantFile(1, "three\n")
	r.remove(stateName)
	r.write("f", "no end")
	u := r.run(r.options(sinkSpec()))
	u.untilWhy(control.Degraded, "FileChanged")
	u.stop()
}

// No message is accepted that is not flushed: when the flush fails, and when the state cannot be written, everything
// comes again, and the file has each once.
func TestSinkMeetsFailingDisk(t *testing.T) {
	for _, c := range []struct {
		what  string
		match faultfs.Match
		err   error
		why   string
	}{
		{"flush", faultfs.Match{Op: faultfs.OpSync, Path: "f"}, errors.New("it is broken"), "Error"},
		{"state", faultfs.Match{Op: faultfs.OpRename, Path: stateName}, errors.New("it is broken"), "Error"},
		{"full", faultfs.Match{Op: faultfs.OpWrite, Path: "f"}, fsync.ErrDiskFull, "DiskFull"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newRig(t)
			r.publish(numbered(1, 100)...)
			o := r.options(sinkSpec())
			r.run(o).wantFile(100, text(numbered(1, 100)))
			r.publish(numbered(101, 100)...)
			disk := faultfs.New(fsync.OS())
			disk.Fail(c.match, 1, -1, c.err)
			o.Files = disk
			u := r.run(o)
			u.untilWhy(control.Degraded, c.why)
			u.stop()
			if n := r.left(); n != 100 {
				t.Fatalf("%d messages are left: some were accepted", n)
			}
			o.Files = nil
			r.run(o).wantFile(100, text(numbered(1, 200)))
		})
	}
}

// T-49: the sink goes on over restarts of itself and of its node. A message may be there twice, and none is missing.
func TestSinkRestarts(t *testing.T) {
	const n, phases = 6000, 6
	r := newRig(t)
	u := r.run(r.options(sinkSpec()))
	for k := range phases {
		r.publish(numbered(k*n/phases+1, n/phases)...)
		at := u.Status().Messages
		u.until("in the middle", func(s connector.Status) bool { return s.Messages > at || s.Messages == 0 })
		if k%2 == 0 {
			u.stop()
			u = r.run(r.options(sinkSpec()))
			continue
		}
		r.stop()
		r.start()
	}
	for r.left() > 0 {
		if r.ctx.Err() != nil {
			t.Fatalf("%+v", u.Status())
		}
	}
	u.stop()
	complete(t, r.read("f"), n)
}

// complete looks for every line from 1 to n, each whole; how many are there twice.
func complete(t *testing.T, text string, n int) (twice int) {
	t.Helper()
	seen := make(map[string]int)
	for l := range strings.Lines(text) {
		seen[l]++
	}
	for _, l := range numbered(1, n) {
		if seen[l+"\n"] == 0 {
			t.Fatalf("%s is missing", l)
		}
		twice += seen[l+"\n"] - 1
		delete(seen, l+"\n")
	}
	for l := range seen {
		t.Errorf("%q was never sent", l)
	}
	return twice
}

// Forget leaves nothing: no subscription, no state file.
func TestSinkForgets(t *testing.T) {
	r := newRig(t)
	r.publish("one")
	u := r.run(r.options(sinkSpec()))
	u.wantFile(1, "one\n")
	for range 2 {
		if err := u.Forget(r.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(r.path(stateName)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
