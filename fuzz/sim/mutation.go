package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"weida/broker/queue"
	"weida/raftstore"
	"weida/wal"
)

// mutation is a rule that is not applied, or a lie that the world of a run tells: random runs have to notice it.
type mutation struct {
	name string
	what string // what goes wrong then
	// directed is a test that notices it, where random runs do only by luck; "" if they notice it soon.
	directed string
	off      func() (restore func())
	change   func(*options)
}

func replicaRule(name, what, directed string) mutation {
	return mutation{name: name, what: what, directed: directed, off: func() func() { return raftstore.SwitchOff(name) }}
}

func logRule(name, what, directed string) mutation {
	return mutation{name: name, what: what, directed: directed, off: func() func() { return wal.SwitchOff(name) }}
}

func worldRule(name, what string, change func(*mutations)) mutation {
	return mutation{name: name, what: what, change: func(o *options) { change(&o.mutate) }}
}

// mutationList are all of them. The last ones are rules of whom nothing in a run depends but how soon it goes on, or
// that stand behind two others: a test of raftstore or wal alone sees them.
var mutationList = []mutation{
	worldRule("drop", "a message is acknowledged and stored nowhere", func(m *mutations) { m.drop = true }),
	worldRule("swap", "two messages are delivered under each other's offset", func(m *mutations) { m.swap = true }),
	worldRule("twice", "a retry is stored a second time", func(m *mutations) { m.twice = true }),
	worldRule("byte", "a byte of a body changes before it is delivered", func(m *mutations) { m.flip = true }),
	worldRule("early", "a message is delivered and nobody has published it", func(m *mutations) { m.early = true }),
	worldRule("again", "a settle is confirmed, and the message comes again", func(m *mutations) { m.again = true }),
	worldRule("overstate", "evidence names a replica too many", func(m *mutations) { m.overstate = 1 }),
	worldRule("keepHeld", "a leader of before knows what is held", func(m *mutations) { m.keepHeld = true }),
	worldRule("ignoreFlush", "flushes of segments do nothing", func(m *mutations) { m.ignoreFlush = true }),
	worldRule("ignoreDirs", "flushes of directories do nothing", func(m *mutations) { m.ignoreDirs = true }),
	replicaRule("answersWait", "an answer leaves before the flush of its append", ""),
	logRule("truncateRecord", "a truncation is not in the log", ""),
	logRule("advanceEarly", "a mark counts before its flush", ""),
	logRule("largeFlush", "a large body is not flushed with its entry", ""),
	logRule("flushedVoid", "the flush of a truncated entry counts", "wal: TestCrashSuiteFindsEachRule"),
	logRule("sealFlush", "a segment is sealed before it is flushed", "wal: TestSealWaitsForLargeBody"),
	logRule("recoverFlush", "after a kill the tail counts before it is flushed", "wal: TestReopenFlushesTail"),
	replicaRule("hardWait", "a vote leaves before it is flushed", "fuzz/sim: TestStoriesCarryWeight"),
	replicaRule("truncatedAnswers", "an answer for truncated entries leaves", "raftstore: TestConflict"),
	replicaRule("gate", "an entry is taken whose body is not here", "fuzz/sim: TestStoriesCarryWeight"),
	replicaRule("incarnation", "what a node said before it died counts", "fuzz/sim: TestStoriesCarryWeight"),
	replicaRule("bodyProof", "a body counts without its digest", "fuzz/sim: TestStoriesCarryWeight"),
	replicaRule("tombstones", "nobody says that a body is settled", "raftstore: TestTombstones"),
	replicaRule("installBodies", "a snapshot counts without its bodies", "raftstore: TestInstall"),
	replicaRule("installFlush", "a snapshot counts before its bodies are flushed", "raftstore: TestInstallFlush"),
	replicaRule("firstEntry", "a leader serves before its first entry", "raftstore: TestFirstEntry"),
	replicaRule("forgetLeader", "the followers of a quiet leader wait for it", "raftstore: TestQuietLeaderDies"),
	replicaRule("quietEqual", "a group is quiet that is not in step", "raftstore: TestLateQuiet"),
	replicaRule("handOver", "a leader that is removed does not hand over", "raftstore: TestLeaderHandsOver"),
	replicaRule("decided", "a decided configuration is not known as such", "raftstore: TestNoOldConfiguration"),
	replicaRule("known", "who asks for votes in an old one is not told", "raftstore: TestToldOfTheEnd"),
}

// notice runs seeds from first on until one breaks a rule; tried is how many it took, problem is "" if none did.
func (m *mutation) notice(first, seeds uint64) (tried uint64, problem string) {
	if m.off != nil {
		defer m.off()()
	}
	for tried < seeds {
		out := runSeed(first+tried, m.change)
		if tried++; len(out.problems) > 0 {
			return tried, out.problems[0]
		}
	}
	return tried, ""
}

// runMutations prints for each mutation how many seeds it took, and which rule was broken. It fails where random runs
// notice nothing and there is no directed test.
func runMutations(first uint64, seeds int, only string, out io.Writer) error {
	var missed []string
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mutation\tseeds\tnoticed by\twhat goes wrong")
	for _, m := range mutationList {
		if only != "" && !strings.Contains(","+only+",", ","+m.name+",") {
			continue
		}
		tried, problem := m.notice(first, uint64(seeds))
		rule, _, _ := strings.Cut(problem, " ")
		switch {
		case problem != "":
		case m.directed != "":
			rule = m.directed
		default:
			rule = "nobody"
			missed = append(missed, m.name)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", m.name, tried, strings.TrimSuffix(rule, ":"), m.what)
		_ = w.Flush() // a table on the screen, line by line
	}
	if len(missed) > 0 {
		return fmt.Errorf("within %d seeds nobody notices %q", seeds, missed)
	}
	return nil
}

// mutate changes what a command does, on every replica alike.
func (d *desk) mutate(c *queue.Command) {
	switch {
	case d.o.mutate.twice && c.Kind == queue.PublishFrom:
		c.Kind, c.Slot, c.Seq, c.Low = queue.Publish, 0, 0, 0
	case d.o.mutate.again && c.Kind == queue.Settle && c.Verb == queue.Accept && c.Offset%20 == 0 && c.Attempt == 1:
		c.Verb = queue.Release
	}
}

// distort changes what leaves for a consumer.
func (d *desk) distort(e queue.Effect, b []byte) queue.Effect {
	switch m := d.o.mutate; {
	case m.flip && d.chance(30):
		b[d.rng.IntN(len(b))] ^= 4
	case m.swap && e.Offset%20 == 0:
		e.Offset++
	case m.swap && e.Offset%20 == 1:
		e.Offset--
	case m.early && d.chance(30):
		e.Offset = d.state.Counts().In
	}
	return e
}
