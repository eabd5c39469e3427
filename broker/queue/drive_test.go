package queue

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestMain lets WEIDA_RUNS say how many random histories each test plays. What the command line says wins.
func TestMain(m *testing.M) {
	set := map[string]string{"rapid.steps": "60"}
	if n := os.Getenv("WEIDA_RUNS"); n != "" {
		set["rapid.checks"] = n
	}
	for name, value := range set {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	os.Exit(m.Run())
}

// both is a State and the model that it has to agree with, driven by the same commands.
type both struct {
	s     *State
	m     *model
	ref   Ref
	log   []Command
	saved []saved
}

// saved is what the queue was at some moment.
type saved struct {
	at       int // commands applied
	snapshot []byte
	view     *View
	peek     []Message
	counts   Counts
}

var (
	subscriptions = rapid.SampledFrom([]string{"a", "b", "c"})
	sessions      = rapid.Uint64Range(1, 5)
	ids           = rapid.SampledFrom([]string{"p", "q", "r"})
	identities    = rapid.SampledFrom([][32]byte{{1}, {1}, {1}, {2}})
)

// apply sends a command through its encoding into the State, and compares all effects.
func (b *both) apply(t *rapid.T, c Command) {
	back, err := Decode(c.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	back.Body, back.Length, back.Large = c.Body, c.Length, c.Large
	if back != c {
		t.Fatalf("decoded %+v as %+v", c, back)
	}
	b.log = append(b.log, c)
	want := b.m.apply(c)
	if got := b.s.Apply(c, nil); !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v:\ngot  %+v\nwant %+v", c, got, want)
	}
}

// body draws the next body: refs mostly rise by one, some are large.
func (b *both) body(t *rapid.T, c Command) Command {
	switch rapid.IntRange(0, 9).Draw(t, "gap") {
	case 0:
		b.ref.Seq += 3
	case 1:
		b.ref = Ref{b.ref.Term + 1, 1}
	case 2:
		c.Large = &Large{Digest: [16]byte{byte(b.ref.Seq)}}
	}
	b.ref.Seq++
	c.Body, c.Length = b.ref, int64(rapid.SampledFrom([]int{0, 10, 10, 300, 70_000}).Draw(t, "length"))
	if c.Large != nil {
		c.Large.Length = c.Length
	}
	return c
}

func (b *both) publish(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		b.apply(t, b.body(t, Command{Kind: Publish}))
	}
}

// publishFrom publishes new sequences, old ones again, retired ones, ones too far and by unknown slots.
func (b *both) publishFrom(t *rapid.T) {
	p := b.m.producers[ids.Draw(t, "id")]
	c := Command{Kind: PublishFrom, Slot: rapid.Uint64Range(0, 9).Draw(t, "slot"), Seq: 1}
	next := uint64(1)
	if p != nil {
		c.Slot, c.Low = p.slot, p.low
		for seq := range p.done {
			next = max(next, seq+1)
		}
	}
	for range rapid.IntRange(1, 6).Draw(t, "n") {
		switch rapid.IntRange(0, 9).Draw(t, "manner") {
		case 0:
			c.Seq = rapid.Uint64Range(0, next).Draw(t, "again")
		case 1:
			c.Seq = next + rapid.SampledFrom([]uint64{1, 2, SequencesMax - 2, SequencesMax}).Draw(t, "ahead")
		case 2:
			c.Seq, c.Low = next, rapid.Uint64Range(0, next+1).Draw(t, "low")
		default:
			c.Seq = next
		}
		b.apply(t, b.body(t, c))
		next = max(next, c.Seq+1)
	}
}

func (b *both) register(t *rapid.T) {
	b.apply(t, Command{
		Kind: rapid.SampledFrom([]Kind{Register, Register, Retire}).Draw(t, "kind"), Producer: ids.Draw(t, "id"),
		Identity: identities.Draw(t, "identity"), Session: sessions.Draw(t, "session"),
	})
}

func (b *both) configure(t *rapid.T) {
	b.apply(t, Command{
		Kind: Configure, MaxMessages: rapid.SampledFrom([]uint64{0, 0, 3, 20}).Draw(t, "messages"),
		MaxBytes: rapid.SampledFrom([]uint64{0, 0, 600, 100_000}).Draw(t, "bytes"),
		Closed:   rapid.IntRange(0, 9).Draw(t, "closed") == 0,
	})
}

func (b *both) purge(t *rapid.T) {
	b.apply(t, Command{Kind: Purge, Session: sessions.Draw(t, "session")})
}

func (b *both) attach(t *rapid.T) {
	b.apply(t, Command{
		Kind: Attach, Subscription: subscriptions.Draw(t, "id"), Session: sessions.Draw(t, "session"),
		Limit: rapid.Uint64Range(0, 40).Draw(t, "limit"),
	})
}

func (b *both) leave(t *rapid.T) {
	b.apply(t, Command{
		Kind:         rapid.SampledFrom([]Kind{Detach, Detach, Unsubscribe}).Draw(t, "kind"),
		Subscription: subscriptions.Draw(t, "id"),
	})
}

func (b *both) detach(t *rapid.T) {
	c := Command{Kind: Detach, Subscription: subscriptions.Draw(t, "id"), Session: sessions.Draw(t, "session")}
	switch rapid.IntRange(0, 9).Draw(t, "all") {
	case 0:
		c = Command{Kind: DetachAll}
	case 1:
		c = Command{Kind: DetachBelow, Session: c.Session}
	}
	b.apply(t, c)
}

func (b *both) limit(t *rapid.T) {
	c := Command{Kind: Grant, Subscription: subscriptions.Draw(t, "id"), Session: sessions.Draw(t, "session")}
	if sub := b.m.sub(c.Subscription); sub != nil {
		c.Limit = sub.delivered
		if rapid.IntRange(0, 3).Draw(t, "own") > 0 {
			c.Session = sub.session
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "any") == 0 {
		c.Kind, c.Session = Limit, 0
	}
	c.Limit += rapid.Uint64Range(0, 20).Draw(t, "more")
	b.apply(t, c)
}

// settle settles what is open, and now and then what is not.
func (b *both) settle(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		c := Command{
			Kind: Settle, Subscription: subscriptions.Draw(t, "id"), Session: sessions.Draw(t, "session"),
			Attempt: 1, Term: 1, Verb: Verb(rapid.IntRange(1, 3).Draw(t, "verb")),
			Offset: rapid.Uint64Range(0, b.m.next).Draw(t, "offset"),
		}
		if list := b.m.offsets(); len(list) > 0 {
			c.Offset = rapid.SampledFrom(list).Draw(t, "present")
		}
		if msg := b.m.messages[c.Offset]; msg != nil {
			if msg.sub != "" {
				c.Subscription = msg.sub
			}
			c.Attempt, c.Term = msg.attempts, msg.body.Term
			switch rapid.IntRange(0, 9).Draw(t, "wrong") {
			case 0:
				c.Attempt--
			case 1:
				c.Term--
			case 2:
				c.Subscription = subscriptions.Draw(t, "other")
			}
		}
		b.apply(t, c)
	}
}

// save keeps the moment.
func (b *both) save(t *rapid.T) {
	v := b.s.View()
	x := saved{len(b.log), b.s.Snapshot(), v, b.m.peek(0, 1000), b.m.books()}
	if len(b.saved) < 4 {
		b.saved = append(b.saved, x)
		return
	}
	b.saved[rapid.IntRange(0, 3).Draw(t, "instead")] = x
}

// restore goes on with what comes out of a snapshot.
func (b *both) restore(t *rapid.T) {
	b.s = restored(t, b.s.Snapshot(), rapid.IntRange(1, 100).Draw(t, "piece"))
}

// restored restores a snapshot that comes in pieces of n bytes.
func restored(t *rapid.T, snapshot []byte, n int) *State {
	var r Restorer
	for piece := range slices.Chunk(snapshot, n) {
		if err := r.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	s, err := r.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.Snapshot(), snapshot) {
		t.Fatal("a restored state has another snapshot")
	}
	return s
}

// replay: any snapshot and the commands behind it lead to the same state; a view is what it was.
func (b *both) replay(t *rapid.T) {
	for _, x := range b.saved {
		s := restored(t, x.snapshot, 1000)
		for _, c := range b.log[x.at:] {
			s.Apply(c, nil)
		}
		if !bytes.Equal(s.Snapshot(), b.s.Snapshot()) {
			t.Fatalf("the snapshot of command %d and those behind it lead to another state than all %d", x.at, len(b.log))
		}
		var got []byte
		x.view.Pieces(func(p []byte) bool { got = append(got, p...); return true })
		if !bytes.Equal(got, x.snapshot) {
			t.Fatalf("the view of command %d changed", x.at)
		}
		if peek := x.view.Peek(0, 1000); !reflect.DeepEqual(peek, x.peek) {
			t.Fatalf("the view of command %d has %+v, had %+v", x.at, peek, x.peek)
		}
		if x.view.Counts() != x.counts || x.view.Next() != x.counts.In {
			t.Fatalf("the view of command %d counts %+v, had %+v", x.at, x.view.Counts(), x.counts)
		}
	}
}

func (b *both) check(t *rapid.T) {
	c := b.s.Counts()
	if want := b.m.books(); c != want {
		t.Fatalf("counts %+v, want %+v", c, want)
	}
	if c.In != c.Ready+c.Unsettled+c.Accepted+c.Rejected+c.Purged || b.s.Next() != c.In {
		t.Fatalf("the books do not balance: %+v", c)
	}
	from, n := rapid.Uint64Range(0, b.m.next).Draw(t, "from"), rapid.IntRange(0, 20).Draw(t, "n")
	if got, want := b.s.View().Peek(from, n), b.m.peek(from, n); !reflect.DeepEqual(got, want) {
		t.Fatalf("peek %d from %d:\ngot  %+v\nwant %+v", n, from, got, want)
	}
	var bodies, want []string
	b.s.Bodies(func(r Ref) bool { bodies = append(bodies, fmt.Sprint(r)); return true })
	for _, o := range b.m.offsets() {
		want = append(want, fmt.Sprint(b.m.messages[o].body))
	}
	if !slices.Equal(bodies, want) {
		t.Fatalf("bodies %v, want %v", bodies, want)
	}
}

// TestQueueModel compares every effect, count and peek with the model's, through restores and views (W-20 to W-31).
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &both{s: &State{}, m: newModel(), ref: Ref{Term: 1}}
		t.Repeat(map[string]func(*rapid.T){
			"publish": b.publish, "publish from": b.publishFrom, "publish from 2": b.publishFrom,
			"register": b.register, "configure": b.configure, "purge": b.purge,
			"attach": b.attach, "detach": b.detach, "leave": b.leave, "limit": b.limit, "settle": b.settle,
			"settle 2": b.settle, "save": b.save, "restore": b.restore, "replay": b.replay, "": b.check,
		})
	})
}
