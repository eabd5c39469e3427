package main

import (
	"testing"

	"weida/broker/wire"
	"weida/fuzz/internal/label"
)

// TestPurges: what is purged is out, and what is left was under delivery.
func TestPurges(t *testing.T) {
	two := []event{send(1, "", 0), send(2, "", 0), ok(1, 0), ok(2, 1)}
	purge := func(f fate, count, left uint64) []event {
		return []event{purging{here, 9}, purged{here, 9, f, count, left}}
	}
	b1, b2 := body(1, "", 0, 0, 0), body(2, "", 0, 1, 0)
	in, out := books{In: 2, Ready: 2}, books{In: 2, Purged: 2}
	for _, c := range []struct {
		name, kind string
		list       []event
	}{
		{"done", "", tale(two, purge(done, 2, 0), shown(out))},
		{"one was left", "", tale(two, got(1, 0, 1), purge(done, 1, 1), shown(books{In: 2, Ready: 1, Purged: 1},
			body(1, "", 0, 0, 1)))},
		{"done, and all is there", "PURGE", tale(two, purge(done, 2, 0), shown(in, b1, b2))},
		{"done, and not counted", "BOOKS", tale(two, purge(done, 2, 0), shown(books{In: 2, Accepted: 2}))},
		{"more went than was said", "BOOKS", tale(two, purge(done, 1, 1), shown(out))},
		{"more were left than was said", "PURGE", tale(two, purge(done, 1, 0), shown(in, b1, b2))},
		{"perhaps, out", "", tale(two, purge(unknown, 0, 0), shown(out))},
		{"perhaps, in", "", tale(two, purge(unknown, 0, 0), shown(in, b1, b2))},
		{"refused, out", "LOST", tale(two, purge(refused, 0, 0), shown(out))},
		{"before they were sent, out", "LOST", tale(purge(done, 0, 0), two, shown(out))},
		{"before the last look, out", "LOST", tale(two, purge(unknown, 0, 0), shown(in, b1, b2), shown(out))},
		{"nobody saw what was purged", "", tale(send(1, "", 0), lost(1), purge(done, 1, 0), shown(books{In: 1, Purged: 1}))},
		{"nobody sent what was purged", "BOOKS", tale(purge(done, 1, 0), shown(books{In: 1, Purged: 1}))},
		{"purged, and back", "BACK", tale(two, purge(done, 2, 0), shown(out), got(1, 0, 1))},
	} {
		want(t, c.name, c.kind, c.list)
	}
}

// TestBooks: what came in is in or went out.
func TestBooks(t *testing.T) {
	one := []event{send(1, "", 0), ok(1, 0)}
	b := body(1, "", 0, 0, 0)
	for _, c := range []struct {
		name string
		b    books
	}{
		{"in", books{In: 2, Ready: 1}},
		{"ready", books{In: 1, Ready: 2}},
		{"accepted", books{In: 2, Ready: 1, Accepted: 1}},
		{"rejected", books{In: 2, Ready: 1, Rejected: 1}},
		{"purged", books{In: 2, Ready: 1, Purged: 1}},
		{"released", books{In: 1, Ready: 1, Released: 1}},
	} {
		want(t, c.name, "BOOKS", tale(one, shown(c.b, b)))
	}
}

// TestLimits: what is refused had no room, and what is taken had.
func TestLimits(t *testing.T) {
	limit := func(fate fate) []event {
		list := []event{mutating{Op: 5, Queue: "q", Verb: "apply", Spec: tight}, mutated{Op: 5, Queue: "q", Fate: fate}}
		if fate == done {
			list[1] = mutated{Op: 5, Queue: "q", Fate: done, Now: stands(2, 2, 5, 1, tight)}
			list = append(list, looked{Queue: "q", Now: stands(2, 2, 6, 2, tight)}, shown(books{}))
		}
		return list
	}
	large := send(3, "", 0)
	large.Length = 501
	b := func(n int) content { return body(n, "", 0, uint64(n-1), 0) }
	two := []event{send(1, "", 0), send(2, "", 0), ok(1, 0), ok(2, 1)}
	for _, c := range []struct {
		name, kind string
		list       []event
	}{
		{"full", "", tale(limit(done), two, send(3, "", 0), no(3, wire.QueueFull))},
		{"perhaps full", "", tale(limit(unknown), two, send(3, "", 0), no(3, wire.QueueFull))},
		{"refused with room", "LIMIT", tale(limit(done), send(1, "", 0), no(1, wire.QueueFull))},
		{"refused with room again", "LIMIT", tale(limit(done), two, got(1, 0, 1), settle(0, 1, wire.Accept, done),
			got(2, 1, 1), settle(1, 1, wire.Accept, done), send(3, "", 0), no(3, wire.QueueFull))},
		{"too large", "", tale(limit(done), large, no(3, wire.TooLarge))},
		{"not too large", "LIMIT", tale(limit(done), send(1, "", 0), no(1, wire.TooLarge))},
		{"too large, and taken", "LIMIT", tale(limit(done), large, ok(3, 0))},
		{"perhaps too large, and taken", "", tale(limit(unknown), large, ok(3, 0))},
		{"crowded", "LIMIT", tale(limit(done), two, send(3, "", 0), ok(3, 2),
			shown(books{In: 3, Ready: 3}, b(1), b(2), b(3)))},
	} {
		want(t, c.name, c.kind, c.list)
	}
}

// leaves is a resource whose deletion stands.
func leaves(version uint64) *resource {
	r := stands(2, 1, version, 1, flushed)
	r.Deleting, r.DrainUntil, r.Phase = true, 100, "Deleting"
	return r
}

// TestRegistry: versions and generations rise, what is asked is what stands, and nothing else changes (T-14 to T-21).
func TestRegistry(t *testing.T) {
	apply := func(f fate, now *resource) []event {
		return []event{
			mutating{Op: 5, Queue: "q", Verb: "apply", Spec: tight},
			mutated{Op: 5, Queue: "q", Fate: f, Now: now},
		}
	}
	now := func(r *resource) event { return looked{Queue: "q", Now: r} }
	reborn := []event{killed{1}, started{2}}
	version := uint64(1)
	stale := func(e mutated) []event {
		e.Op, e.Queue = 5, "q"
		return []event{mutating{Op: 5, Queue: "q", Verb: "apply", Spec: tight, Expected: &version}, e}
	}
	other := stands(2, 1, 4, 1, flushed)
	other.Phase = "Degraded"
	for _, c := range []struct {
		name, kind string
		list       []event
	}{
		{"changed", "", tale(apply(done, stands(2, 2, 5, 1, tight)), reborn, now(stands(2, 2, 6, 2, tight)))},
		{"changed, and back", "REGISTRY", tale(apply(done, stands(2, 2, 5, 1, tight)), reborn,
			now(stands(2, 1, 6, 1, flushed)))},
		{"changed to something else", "REGISTRY", tale(apply(done, stands(2, 2, 5, 1, spec{Durability: "written"})))},
		{"perhaps changed, so", "", tale(apply(unknown, nil), reborn, now(stands(2, 2, 6, 2, tight)))},
		{"perhaps changed, not so", "", tale(apply(unknown, nil), reborn, now(stands(2, 1, 3, 1, flushed)))},
		{"perhaps changed, decided, changed", "REGISTRY", tale(apply(unknown, nil), reborn,
			now(stands(2, 1, 3, 1, flushed)), now(stands(2, 2, 6, 2, tight)))},
		{"refused, and changed", "REGISTRY", tale(stale(mutated{
			Fate: refused, Code: wire.Conflict,
			Now: stands(2, 1, 3, 1, flushed),
		}), now(stands(2, 2, 6, 2, tight)))},
		{"refused without a reason", "REGISTRY", tale(stale(mutated{
			Fate: refused, Code: wire.Conflict,
			Now: stands(2, 1, 1, 1, flushed),
		}))},
		{"a stale version is taken", "STALE VERSION TAKEN", tale(stale(mutated{Fate: done, Now: stands(2, 2, 5, 1, tight)}))},
		{"the version falls", "REGISTRY", tale(now(stands(2, 1, 2, 1, flushed)))},
		{"the observed generation falls", "REGISTRY", tale(now(stands(2, 1, 4, 0, flushed)))},
		{"the generation rises by itself", "REGISTRY", tale(now(stands(2, 2, 4, 1, flushed)))},
		{"the spec changes by itself", "REGISTRY", tale(now(stands(2, 1, 4, 1, tight)))},
		{"it changes under one version", "REGISTRY", tale(now(stands(2, 1, 4, 1, flushed)), now(other))},
		{"it is gone by itself", "LOST QUEUE", tale(reborn, looked{Queue: "q"})},
		{"it is deleted by itself", "REGISTRY", tale(now(leaves(4)))},
		{"there is another by itself", "REGISTRY", tale(now(stands(7, 1, 7, 1, flushed)))},
		{"the registry's version falls", "REGISTRY", tale(looked{Queue: "q", Version: 9, Now: stands(2, 1, 3, 1, flushed)},
			looked{Queue: "q", Version: 8, Now: stands(2, 1, 3, 1, flushed)})},
		{"unknown to a client", "UNEXPECTED", tale(trouble{here, "open", wire.UnknownQueue, ""})},
		{"a broken protocol", "UNEXPECTED", tale(trouble{here, "open", wire.OK, "broken"})},
	} {
		want(t, c.name, c.kind, c.list)
	}
}

// TestDeletions: a deletion that was confirmed stays, and a queue that is made again shares nothing (T-19 to T-21).
func TestDeletions(t *testing.T) {
	deletion := func(f fate) []event {
		list := []event{mutating{Op: 5, Queue: "q", Verb: "delete"}, mutated{Op: 5, Queue: "q", Fate: f}}
		if f == done {
			list[1] = mutated{Op: 5, Queue: "q", Fate: f, Now: leaves(5)}
		}
		return list
	}
	now := func(r *resource) event { return looked{Queue: "q", Now: r} }
	reborn := []event{killed{1}, started{2}}
	again := func(uid uint64) []event {
		return []event{
			mutating{Op: 6, Queue: "q", Verb: "create", Spec: flushed},
			mutated{Op: 6, Queue: "q", Fate: done, Now: stands(uid, 1, uid, 0, flushed)},
		}
	}
	one := []event{send(1, "p", 1), ok(1, 0)}
	there := place{"q", 9}
	s := send(2, "p", 1)
	s.place = there
	a := ok(2, 0)
	a.place = there
	old, fresh := body(1, "p", 1, 0, 1), body(2, "p", 1, 0, 1)
	fresh.Label.UID = 9
	long := leaves(6)
	long.DrainUntil = 200
	for _, c := range []struct {
		name, kind string
		list       []event
	}{
		{"goes on, is gone", "", tale(deletion(done), reborn, now(leaves(6)), now(nil))},
		{"taken back", "REGISTRY", tale(deletion(done), reborn, now(stands(2, 1, 5, 1, flushed)))},
		{"drains longer", "REGISTRY", tale(deletion(done), now(long))},
		{"perhaps, not so", "", tale(deletion(unknown), reborn, now(stands(2, 1, 3, 1, flushed)))},
		{"perhaps, so", "", tale(deletion(unknown), reborn, now(leaves(5)), now(nil))},
		{"perhaps, decided, gone", "LOST QUEUE", tale(deletion(unknown), reborn, now(stands(2, 1, 3, 1, flushed)), now(nil))},
		{"gone, and back", "REGISTRY", tale(deletion(done), now(nil), now(leaves(6)))},
		{"made while it is there", "REGISTRY", tale(again(9))},
		{"made again", "", tale(one, deletion(done), now(nil), again(9), opened{there, "p", 1}, s, a,
			delivered{there, fresh})},
		{"made again with an old uid", "REGISTRY", tale(deletion(done), now(nil), again(4))},
		{"made again, the producer is known", "SHARED", tale(one, deletion(done), now(nil), again(9), opened{there, "p", 2})},
		{"made again, with an old body", "SHARED", tale(one, deletion(done), now(nil), again(9), delivered{there, old})},
		{"made again, with offsets", "BOOKS", tale(one, deletion(done), now(nil), again(9), audited{
			place: there,
			Books: books{In: 1, Purged: 1},
		})},
		{"made again, and gone", "LOST QUEUE", tale(deletion(done), now(nil), again(9), reborn, now(nil))},
		{"refused while it goes", "", tale(deletion(done), send(1, "p", 1), no(1, wire.QueueClosing))},
		{"taken after a start", "TAKEN WHILE DELETED", tale(deletion(done), reborn, one)},
	} {
		want(t, c.name, c.kind, c.list)
	}
}

// TestLabels: bodies say what they are, and nothing that was changed says so.
func TestLabels(t *testing.T) {
	for _, n := range []int{label.Room, 300, 5000, 200 << 10} {
		l := label.Label{Run: 7, Queue: "q", UID: 3, Producer: "-", Seq: 4, Message: 5, Length: n}
		b := l.Body()
		if got := label.Read(b); got == nil || *got != l || len(b) != n {
			t.Errorf("length %d: %+v of %d bytes", n, got, len(b))
		}
		for _, i := range []int{n / 2, n - 1} {
			b[i] ^= 1
			if i >= label.Room && label.Read(b) != nil {
				t.Errorf("length %d: byte %d is another, and the label holds", n, i)
			}
			b[i] ^= 1
		}
		if label.Read(b[:n-1]) != nil {
			t.Errorf("length %d: one byte is missing, and the label holds", n)
		}
	}
	for n := range label.Room {
		if b := (label.Label{Length: n}).Body(); len(b) != n || label.Read(b) != nil {
			t.Errorf("length %d: %d bytes, with a label", n, len(b))
		}
	}
}
