package main

import (
	"os"
	"slices"
	"time"
)

// spent is the use of resources between the two edges of a pass.
type spent struct {
	broker, client time.Duration
	nodes          []time.Duration // of broker, by node
	busy, all      time.Duration   // CPU time of the machine: used by anybody, and there
	rounds         float64         // of the node's flushes, as its metrics count them
	hasRounds      bool
	device         int64 // flushes that the device did, for everybody
	hasDevice      bool
}

// totals are spent over several passes.
type totals struct {
	spent
	messages int64
}

func (t *totals) add(s spent, messages int64) {
	first := t.messages == 0
	t.broker += s.broker
	t.nodes = append(t.nodes, make([]time.Duration, len(s.nodes)-len(t.nodes))...)
	for i, d := range s.nodes {
		t.nodes[i] += d
	}
	t.client += s.client
	t.busy += s.busy
	t.all += s.all
	t.rounds += s.rounds
	t.device += s.device
	t.hasRounds = s.hasRounds && (first || t.hasRounds)
	t.hasDevice = s.hasDevice && (first || t.hasDevice)
	t.messages += messages
}

// perMessage is the CPU time of broker and client in microseconds.
func (t *totals) perMessage() (broker, client float64) {
	n := max(1, float64(t.messages))
	return micros(t.broker) / n, micros(t.client) / n
}

// byNode is the CPU time of each node in microseconds per message, and nothing where one node is all.
func (t *totals) byNode() (list []float64) {
	if len(t.nodes) < 2 {
		return nil
	}
	for _, d := range t.nodes {
		list = append(list, micros(d)/max(1, float64(t.messages)))
	}
	return list
}

// others is the share of the machine's CPU time that other programs had.
func (t *totals) others() float64 {
	return max(0, float64(t.busy-t.broker-t.client)/max(1, float64(t.all)))
}

// perFlush is how many messages shared a flush; nil where nobody counts.
func (t *totals) perFlush() (node, device *float64) {
	ratio := func(flushes float64, counted bool) *float64 {
		if !counted || flushes == 0 {
			return nil
		}
		v := float64(t.messages) / flushes
		return &v
	}
	return ratio(t.rounds, t.hasRounds), ratio(float64(t.device), t.hasDevice)
}

// meter reads what a child and this process use.
type meter struct {
	pids   []int
	dir    string                  // on the device whose flushes are counted
	rounds func() (float64, error) // flush rounds of the child; nil if it has none

	readings []spent
	total    totals
}

// add counts what was spent between the last two readings.
func (m *meter) add(messages int64) { m.total.add(m.used(), messages) }

// read notes where the counters stand.
func (m *meter) read() (err error) {
	var s spent
	for _, pid := range m.pids {
		t, err := cpuTime(pid)
		if err != nil {
			return err
		}
		s.broker += t
		s.nodes = append(s.nodes, t)
	}
	if s.client, err = cpuTime(os.Getpid()); err != nil {
		return err
	}
	if s.busy, s.all, err = machineTime(); err != nil {
		return err
	}
	s.device, s.hasDevice = deviceFlushes(m.dir)
	if m.rounds != nil {
		s.rounds, err = m.rounds()
		s.hasRounds = true
	}
	m.readings = append(m.readings, s)
	return err
}

// used is what was spent between the last two readings.
func (m *meter) used() spent {
	a, b := m.readings[len(m.readings)-2], m.readings[len(m.readings)-1]
	nodes := slices.Clone(b.nodes)
	for i := range nodes {
		nodes[i] -= a.nodes[i]
	}
	return spent{
		nodes: nodes, broker: b.broker - a.broker, client: b.client - a.client, rounds: b.rounds - a.rounds,
		busy: b.busy - a.busy, all: b.all - a.all,
		hasRounds: a.hasRounds && b.hasRounds, device: b.device - a.device, hasDevice: a.hasDevice && b.hasDevice,
	}
}
