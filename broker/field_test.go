package broker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weida/broker/control"
	"weida/broker/queue"
	"weida/broker/wire"
	"weida/fsync"
	"weida/fsync/memfs"
)

// Field case 8 (nats-server 5876): the power is cut as soon as a hundred queues are made: all are there, and take
// messages.
func TestPowerCutAfterCreating(t *testing.T) {
	disk := memfs.New()
	r := newRig(t, func(c *Config) {
		c.files = disk
		if err := fsync.MkdirAll(disk, filepath.Dir(c.Dir)); err != nil {
			t.Fatal(err)
		}
	})
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("q%d", i))
		r.make(names[i], control.QueueSpec{})
	}
	image := disk.Clone()
	image.PowerCut(memfs.KeepNone, nil)
	r.close()
	r.config.files = image
	r.open()
	conn := r.dial()
	for _, name := range names {
		l := r.line(conn, &wire.OpenProducer{Queue: name, Want: wire.Stored(wire.Flushed)})
		frame[*wire.Opened](l)
		if e := l.put(1, name); e.Offset != 0 {
			t.Errorf("%s begins with offset %d", name, e.Offset)
		}
		if err := l.stream.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Field case 9 (rabbitmq-server 4251): a last record that is torn is cut in silence; a damaged one in the middle keeps
// its queue alone from opening. The node starts and other queues serve, both times.
func TestDamagedLogIsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(b []byte, end int)
		opens  bool
	}{
		"Torn":   {func(b []byte, end int) { clear(b[end-20 : end]) }, true},
		"Middle": {func(b []byte, end int) { b[end/2] ^= 4 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			p := r.producer(wire.Stored(wire.Flushed))
			for seq := range uint64(20) {
				p.put(seq+1, fmt.Sprintf("message %d", seq))
			}
			segment := filepath.Join(r.groupDir("demo"), "00000001.seg")
			r.crash(func() {
				b, err := os.ReadFile(segment)
				if err != nil {
					t.Fatal(err)
				}
				c.damage(b, len(bytes.TrimRight(b, "\x00")))
				if err := os.WriteFile(segment, b, 0o600); err != nil {
					t.Fatal(err)
				}
			})
			other := r.line(r.dial(), &wire.OpenProducer{Queue: "other", Want: wire.Stored(wire.Flushed)})
			frame[*wire.Opened](other)
			other.put(1, "fine")
			if c.opens {
				k := r.consumer("s", 100)
				for i := range uint64(19) { // the last one was torn
					k.get(i, 1, fmt.Sprintf("message %d", i))
				}
				return
			}
			l := r.line(r.dial(), &wire.OpenProducer{Queue: "demo", Want: wire.Stored(wire.Flushed)})
			l.end(wire.NotReady)
			if h := r.node.Health(); len(h.Ready) != 1 || h.Ready[0].Object != "queue demo" {
				t.Errorf("%+v", h)
			}
		})
	}
}

// Field case 52 (nats-server 5382): a node whose disk is full up to what is kept from messages is killed and starts on
// it: it serves what is there, refuses messages with the reason, deletes nothing, and takes messages again when there
// is room. On a disk on which not even a small file has room, as others may leave it, a node does not start, says why,
// and changes nothing.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := memfs.New()
	r := newRig(t, func(c *Config) {
		c.files = disk
		if err := fsync.MkdirAll(disk, filepath.Dir(c.Dir)); err != nil {
			t.Fatal(err)
		}
	})
	p := r.producer(wire.Stored(wire.Flushed))
	const stored = 100
	for seq := range uint64(stored) {
		p.send(&wire.Publish{Seq: seq + 1, Low: 1, Body: pattern(60_000)})
		frame[*wire.EvidenceFrame](p)
	}
	disk.SetCapacity(disk.Used() + disk.Used()/100)
	small := p.untilFull(stored + 1)
	image := disk.Clone() // as a kill leaves it
	r.close()
	had := filesOf(image)

	crammed := image.Clone()
	crammed.SetCapacity(crammed.Used())
	r.config.files = crammed
	if n, err := Open(r.config); err == nil || !errors.Is(err, fsync.ErrDiskFull) {
		t.Errorf("on a disk without any room it starts as %v: %v", n, err)
	}
	if now := filesOf(crammed); !slices.Equal(now, had) {
		t.Errorf("there were %v, and now %v", had, now)
	}

	r.config.files = image
	r.open()
	p = r.producer(wire.Stored(wire.Flushed))
	more := p.untilFull(1) // it looks for room soon after it has started
	now := filesOf(image)
	for _, name := range had {
		if !slices.Contains(now, name) {
			t.Errorf("%s is gone", name)
		}
	}
	k := r.consumer("s", stored+small+more)
	var first *wire.Deliver
	for i := range stored + small + more {
		d := *frame[*wire.Deliver](k)
		if d.Offset != i || i < stored && !bytes.Equal(d.Body, pattern(60_000)) {
			t.Fatalf("offset %d instead of %d", d.Offset, i)
		}
		if i == 0 {
			first = &d
		}
	}
	k.settle(first, wire.Accept, wire.OK)
	image.SetCapacity(0)
	seq := more + 1
	r.until("there is room", func() bool {
		seq++
		p.send(&wire.Publish{Seq: seq, Low: 1, Body: []byte("after")})
		_, ok := p.next().(*wire.EvidenceFrame)
		return ok
	})
}

// untilFull publishes small messages from a sequence on until one is refused because the disk is full, and says how
// many were taken.
func (l *line) untilFull(seq uint64) (taken uint64) {
	l.t.Helper()
	l.until("the disk counts as full", func() bool {
		l.send(&wire.Publish{Seq: seq + taken, Low: 1, Body: []byte("x")})
		switch f := l.next().(type) {
		case *wire.EvidenceFrame:
			taken++
			return false
		case *wire.Refused:
			return f.Code == wire.DiskFull
		default:
			l.t.Fatalf("%+v", f)
			return true
		}
	})
	return taken
}

// filesOf are all files of groups, by name.
func filesOf(disk *memfs.FS) (list []string) {
	for _, name := range disk.Files() {
		if strings.Contains(name, "/groups/") {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// Field case 54 (nats-server 5905, nats-server 6258): a queue shows the bytes of its bodies and those that it has on
// the disk, and refuses by the first, with 256 more for each message, whatever the second are.
func TestLimitCountsLogicalBytes(t *testing.T) {
	r := newRig(t, nil)
	const size, fit = 4000, 5
	limit := uint64(fit*(size+queue.MessageCost) + size)
	r.make("demo", control.QueueSpec{Limits: control.QueueLimits{Bytes: limit}})
	p := r.producer(wire.Stored(wire.Flushed))
	body := strings.Repeat("a", size)
	for seq := range uint64(fit) {
		p.put(seq+1, body)
	}
	p.send(&wire.Publish{Seq: fit + 1, Low: 1, Body: []byte(body)})
	p.refused(fit+1, wire.QueueFull)
	live, ok := r.node.Live(uint64(r.node.lookup("demo").id))
	if !ok || live.Bytes != fit*size {
		t.Errorf("there are %d bytes, of which the limit counts %d more each, and the queue shows %d", fit*size,
			queue.MessageCost, live.Bytes)
	}
	if live.DiskBytes < fit*size {
		t.Errorf("%d bytes are on the disk, of %d that cannot be made smaller", live.DiskBytes, fit*size)
	}
}
