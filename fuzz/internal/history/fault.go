package history

import (
	"slices"
	"time"
)

// This file is what faults may cost.

// fault is one that was done to nodes; over is when it was over, never while it is not.
type fault struct {
	kind        FaultKind
	nodes       []string
	began, over Time
}

const never = Time(1<<63 - 1)

func (t Time) duration() time.Duration { return time.Duration(t).Round(time.Millisecond) }

func (c *Checker) fault(e *Fault) {
	f := &fault{kind: e.Fault, nodes: e.Nodes, began: c.line.T, over: never}
	c.report.Counted.Faults[e.Fault]++
	c.faults = append(c.faults, f)
	c.begin(e.Ref, &pending{fault: f})
}

func (c *Checker) faultDone(e *FaultDone) {
	if p := c.end(e.Ref); p != nil && p.fault != nil {
		p.fault.over = c.line.T
	}
}

// struck counts the nodes that a fault of one of the kinds hit at or after a time.
func (c *Checker) struck(since Time, kinds ...FaultKind) int {
	nodes := make(map[string]bool)
	for _, f := range c.faults {
		if f.over >= since && slices.Contains(kinds, f.kind) {
			for _, n := range f.nodes {
				nodes[n] = true
			}
		}
	}
	return len(nodes)
}

// together counts the nodes that were damaged at the same time, at most, at or after a time.
func (c *Checker) together(since Time) (most int) {
	for _, f := range c.faults {
		if f.over < since || !f.damages() {
			continue
		}
		nodes := make(map[string]bool)
		for _, g := range c.faults {
			if g.damages() && g.began <= f.began && g.over >= f.began && g.over >= since {
				for _, n := range g.nodes {
					nodes[n] = true
				}
			}
		}
		most = max(most, len(nodes))
	}
	return most
}

func (f *fault) damages() bool { return f.kind == DiskLost || f.kind == DiskFault }

// mayLose says whether the faults that happened may cost a message, with the evidence that there is for it: all n
// replicas that held it flushed were damaged at a time, or all that held it written lost power or were damaged.
func (c *Checker) mayLose(p proofs) bool {
	if p.flushed.n > 0 && c.together(p.flushed.since) < p.flushed.n {
		return false
	}
	if p.written.n > 0 && c.struck(p.written.since, PowerCut, DiskLost, DiskFault) < p.written.n {
		return false
	}
	return true
}

// mayForget says whether a message that was seen somewhere may be there no longer, though nobody took it out.
func (c *Checker) mayForget(m *message, seen Time) bool {
	if m.confirmed {
		return c.mayLose(m.proofs)
	}
	return c.mayRewind(m.queue, seen)
}

// mayRewind says whether a queue may have forgotten what it did after a time without confirming it. What one replica
// alone has written is shown to consumers before it is flushed; what several have is committed, and flushed by most.
func (c *Checker) mayRewind(q *queue, since Time) bool {
	if q.owned {
		return c.struck(since, PowerCut, DiskLost, DiskFault) > 0
	}
	return c.together(since) > 1
}

// mayUnsettle says the same of what it confirmed: a queue that confirms what is not flushed may lose it with the power.
func (c *Checker) mayUnsettle(m *message, since Time) bool {
	if m.queue.owned && m.queue.written {
		return c.struck(since, PowerCut, DiskLost, DiskFault) > 0
	}
	if m.queue.owned {
		return c.together(since) > 0
	}
	return c.together(since) > 1
}
