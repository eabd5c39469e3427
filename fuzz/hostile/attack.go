package main

// attack is one way to be hostile.
type attack struct {
	name string
	what string // in one line
	run  func(*foe)
	// fill is what the bait queue holds when it begins.
	fill, fillSize int
	// leaves says what of it stays in the bait queue by design: it is gone when that is deleted.
	leaves string
	// fills says that it takes every place there is: newcomers are refused meanwhile.
	fills bool
	// want are refusals that the attacker has to see.
	want []string
}

// attacks is every attack, in the order in which they are played.
var attacks = []attack{
	{name: "calm", what: "no attack: how far the figures wander by themselves", run: func(*foe) {}},
	{name: "burn", what: "no attack: a neighbour that takes the processors of an attacker", run: burn},

	{
		name: "half-open", what: "untrusted: handshakes that stop after their first packets", run: halfOpen,
		fills: true,
	},
	{
		name: "strangers", what: "untrusted: wrong key, no key, wrong protocol, over and over", run: strangers,
		want: []string{"key turned away"},
	},
	{name: "noise", what: "untrusted: datagrams of garbage, 10,000 a second", run: noise},
	{name: "replay-packets", what: "untrusted: a recorded session's datagrams, again and again", run: replayPackets},
	{
		name: "crowd", what: "as many connections of one key as are taken, all idle", run: crowd,
		want: []string{"connection closed with 2003 This key has 256 connections, and may have no more"},
	},
	{
		name: "vanish", what: "connections with open streams whose client is gone without a word", run: vanish,
	},

	{name: "streams", what: "all streams there are, one byte on each", run: floodStreams},
	{name: "open-and-reset", what: "streams of every kind, opened and reset at once", run: openAndReset},
	{
		name: "giant-lengths", what: "length prefixes, bodies, credits and counts near 2^62", run: giantLengths,
		want: []string{"E1101 malformed", "E1002 too_large"},
	},
	{name: "trickle", what: "first frames, messages and bodies, a byte at a time", run: trickle},
	{name: "unfinished", what: "messages of 64 KiB on all streams, each without its last bytes", run: unfinished},
	{name: "nameless-bodies", what: "bodies that no frame names, frames whose bodies never come", run: namelessBodies},
	{
		name: "replay-frames", what: "the same messages and settles again and again", run: replayFrames,
		want: []string{"E1006 bad_sequence", "E3001 stale_settle"},
	},

	{
		name: "producers", what: "producers until there may be no more, with the longest ids", run: crowdProducers,
		leaves: "its producers",
	},
	{
		name: "subscriptions", what: "durable subscriptions until there may be no more", run: crowdSubscriptions,
		fill: 2000, fillSize: 64, leaves: "its subscriptions", want: []string{"E3004 too_many_subscriptions"},
	},
	{
		name: "never-read", what: "consumers with all credit there is that read nothing, each superseding the last",
		run: neverRead, fill: 60_000, fillSize: 64,
	},
	{
		name: "settles-of-nothing", what: "settles of deliveries that never were, half without reading the answers",
		run: settleNothing, want: []string{"E3001 stale_settle"},
	},
	{name: "credits", what: "credit frames without end", run: credits},
	{
		name: "peeks", what: "peeks of a thousand messages in a loop, half of them not read", run: peeks,
		fill: 2000, fillSize: 16 << 10,
	},
	{
		name: "requests", what: "unsubscribes and retires of what is not there, purges without the role", run: requests,
		want: []string{"E1201 not_allowed"},
	},
	{
		name: "unread-refusals", what: "messages that are refused, whose refusals are not read", run: unreadRefusals,
	},

	{
		name: "admin-host", what: "HTTP: wrong hosts, foreign origins, changes without the header", run: adminHost,
		want: []string{"HTTP 403"},
	},
	{
		name: "admin-bodies", what: "HTTP: bodies without end, headers without end", run: adminBodies,
		want: []string{"HTTP 413", "HTTP 431"},
	},
	{name: "admin-slow", what: "HTTP: connections by the hundred, with headers that trickle or nothing", run: adminSlow},
}

func attackNamed(name string) (attack, bool) {
	for _, a := range attacks {
		if a.name == name {
			return a, true
		}
	}
	return attack{}, false
}

// burn takes what processors it gets and touches no node.
func burn(f *foe) {
	f.each(2, func(int) error {
		x := uint64(1)
		for range 1 << 20 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		f.did("rounds", int(x&1)+1)
		return nil
	})
}
