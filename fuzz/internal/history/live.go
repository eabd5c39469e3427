package history

import "slices"

// This file is what a checker makes of the time after the faults.

// live judges rule Liveness.
func (c *Checker) live() {
	if c.healed == 0 {
		c.unjudged("nothing says that the faults were over: liveness")
		return
	}
	bound := c.healed + Time(c.o.HealMax)
	for _, q := range c.sorted() {
		if q.leaving > 0 || !q.touched {
			continue
		}
		c.judged(Liveness)
		shown := []mark{q.tried}
		switch {
		case q.goesOn == 0:
			c.breach(Liveness, shown, "queue %s (uid %d) confirmed nothing that was sent after the faults", q.Name, q.UID)
		case q.goesOn > bound:
			c.breach(Liveness, shown, "queue %s (uid %d) confirmed nothing until %v after the faults", q.Name, q.UID,
				(q.goesOn - c.healed).duration())
		}
		switch {
		case !q.final:
			c.unjudged("queue %s (uid %d) was not drained after the faults", q.Name, q.UID)
		case q.audited > bound:
			c.breach(Liveness, shown, "queue %s (uid %d) was not drained until %v after the faults", q.Name, q.UID,
				(q.audited - c.healed).duration())
		}
	}
	switch {
	case c.health == nil:
		c.unjudged("nobody asked after the cluster's health in the end")
	case len(c.health.Wrong) > 0:
		c.judged(Liveness)
		slices.Sort(c.health.Wrong)
		c.breach(Liveness, []mark{c.healthy}, "in the end the cluster says of itself: %q", c.health.Wrong)
	default:
		c.judged(Liveness)
	}
}
