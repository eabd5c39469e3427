package doctor

import (
	"fmt"
	"time"
)

func kernel(k *Kernel) Check {
	if k.Bad != "" {
		return fail("use Linux 5.8 or later", "%s: before 5.8 a lost write can go unreported, so the node does not start",
			k.Release)
	}
	return ok("Linux %s reports every lost write", k.Release)
}

// What a node opens: a few files for each queue that is busy, none for one that is idle, and some of its own.
const (
	filesOfNode  = 256
	filesOfQueue = 4
	queuesWanted = 1000
	filesLeast   = 1024
)

func openFiles(n *Files) Check {
	if n.Why != "" {
		return skipped(n.Why)
	}
	whose := "a node started from here"
	if n.OfNode {
		whose = "the node that runs"
	}
	const do = "raise it: `LimitNOFILE=65536` in its systemd unit, `ulimit -Hn 65536` in a shell, " +
		"`--ulimit nofile=65536` for a container"
	busy := (max(n.Max, filesOfNode) - filesOfNode) / filesOfQueue
	found := fmt.Sprintf("%s may have %d files open: enough for %d queues that are busy at once", whose, n.Max, busy)
	switch {
	case n.Max < filesLeast:
		return fail(do, "%s; %d is the least", found, filesLeast)
	case busy < queuesWanted:
		return warn(do, "%s", found)
	}
	return ok("%s", found)
}

const (
	memoryLeast = 256 << 20
	memoryGood  = 1 << 30
)

func memory(m *Memory) Check {
	if m.Why != "" {
		return skipped(m.Why)
	}
	have, found := m.Machine, fmt.Sprintf("%s, the whole machine", size(m.Machine))
	if m.Limit > 0 && m.Limit < m.Machine {
		have, found = m.Limit, fmt.Sprintf("%s by the limit of the control group, of %s", size(m.Limit), size(m.Machine))
	}
	switch {
	case have < memoryLeast:
		return fail("give it more: where it ends, the kernel kills the node",
			"%s; %s is the least", found, size(memoryLeast))
	case have < memoryGood:
		return warn("give it 1 GiB or more if there are to be many queues or large messages", "%s", found)
	}
	return ok("%s", found)
}

func udpBuffers(u *UDP) Check {
	if u.Why != "" {
		return skipped(u.Why)
	}
	found := fmt.Sprintf("a socket gets %s to read and %s to write, %s are wanted", size(uint64(u.Read)),
		size(uint64(u.Write)), size(uint64(u.Wanted)))
	if u.Read < u.Wanted || u.Write < u.Wanted {
		return warn(fmt.Sprintf("sysctl -w net.core.rmem_max=%d net.core.wmem_max=%d, and the same in /etc/sysctl.d",
			u.Wanted, u.Wanted), "%s: packets are lost under load, and sent again", found)
	}
	return ok("%s", found)
}

func clock(c *Clock) Check {
	switch {
	case c.Why != "":
		return skipped(c.Why)
	case !c.Synced:
		return warn("run chrony or systemd-timesyncd; on a guest its host may do it, and then this can be left",
			"nobody keeps the clock right, as far as the kernel knows; no promise hangs on it, but times in logs, deadlines of "+
				"deletions and the history of two nodes do")
	}
	return ok("kept right, at most %s off", span(c.MaxError))
}

// jumpMax is how far a clock that is being corrected may move while it is watched.
const jumpMax = 50 * time.Millisecond

func clockJumps(c *Clock) Check {
	watched := c.Watched.Round(time.Millisecond)
	switch {
	case c.Why != "":
		return skipped(c.Why)
	case c.Jump.Abs() > jumpMax:
		return warn("find out who sets it: two programs at once, or a guest whose host corrects it",
			"the clock jumped by %s within %v", span(c.Jump), watched)
	}
	return ok("none within %v", watched)
}
