package admin

// This file counts the voters that somebody has shown to be there.

// follow adds up how far the voters are, and returns how many their leader counts on. A voter whose node did not answer
// this very request is not in step, however lately its leader heard of it.
func (c *Cluster) follow(s *GroupState, g *Group) (heard int) {
	unknown := false
	for _, f := range g.Replication.Followers {
		if f.Learner {
			continue
		}
		if counted(g, f) {
			heard++
		}
		if c.inStep(g, f) {
			s.InStep++
		}
		if f.Replica.Replica == g.Replication.Self {
			continue
		}
		behind, ms := int64(-1), f.CaughtUpMS
		if f.HeardMS >= 0 {
			behind = max(int64(g.Written)-int64(f.Match), 0)
		}
		switch {
		case f.HeardMS > HeardMaxMS || !c.answers(f.Node): // what it had is no word on what it has: it may stand still
			ms = max(ms, f.HeardMS)
			if behind == 0 {
				behind = -1
			}
		case behind == 0:
			ms = 0
		}
		unknown = unknown || behind < 0
		s.BehindEntries, s.BehindMS = max(s.BehindEntries, behind), max(s.BehindMS, ms)
	}
	switch {
	case len(g.Replication.Followers) == 1:
		s.BehindEntries, s.BehindMS = 0, 0
	case unknown: // one that is not known hides none that is, and none that is not behind hides it
		s.BehindEntries, s.BehindMS = nought(s.BehindEntries), nought(s.BehindMS)
	}
	return heard
}

// nought is a distance of which it is not known whether it is the largest: 0 says nothing then.
func nought(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}

// inStep says whether a member can be counted on: its leader does, and its node answers now.
func (c *Cluster) inStep(g *Group, f Follower) bool {
	return counted(g, f) && (f.Replica.Replica == g.Replication.Self || c.answers(f.Node))
}

// counted says whether a leader counts on a member: it hears it, and it is being kept up, not brought up.
func counted(g *Group, f Follower) bool {
	if f.Replica.Replica == g.Replication.Self {
		return g.Trouble == ""
	}
	return f.HeardMS >= 0 && f.HeardMS <= HeardMaxMS && f.State == "replicate"
}

// answers says whether a node answered what was asked now.
func (c *Cluster) answers(node uint64) bool {
	f := c.factsOf(node)
	return f != nil && f.Why == ""
}
