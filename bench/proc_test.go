package main

import (
	"os"
	"testing"
	"time"
)

// TestProc: what /proc says of this process rises with what it does, and the machine's time holds it.
func TestProc(t *testing.T) {
	busy, all, err := machineTime()
	if err != nil {
		t.Fatal(err)
	}
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	used := before
	for sum := 0; used-before < 5*clockTick; sum++ { // burns CPU until that is seen
		if sum%1_000_000 == 0 {
			if used, err = cpuTime(os.Getpid()); err != nil {
				t.Fatal(err)
			}
		}
	}
	busyNow, allNow, err := machineTime()
	if err != nil {
		t.Fatal(err)
	}
	// The kernel counts the two in different places, a tick apart.
	if slack := 2 * clockTick; busyNow-busy < used-before-slack || allNow-all < busyNow-busy {
		t.Errorf("this process used %v, the machine %v of %v", used-before, busyNow-busy, allNow-all)
	}
	if size, err := residentSize("self"); err != nil || size < 1<<20 {
		t.Errorf("RSS of %d, %v", size, err)
	}
}

func TestTotals(t *testing.T) {
	var sum totals
	s := spent{
		broker: 30 * time.Millisecond, client: 10 * time.Millisecond, busy: 90 * time.Millisecond,
		all: 200 * time.Millisecond, rounds: 5, hasRounds: true, device: 8,
	}
	sum.add(s, 100)
	sum.add(s, 300)
	if broker, client := sum.perMessage(); broker != 150 || client != 50 {
		t.Errorf("per message: %v and %v µs", broker, client)
	}
	if got := sum.others(); got != 0.25 {
		t.Errorf("others: %v", got)
	}
	if node, device := sum.perFlush(); node == nil || *node != 40 || device != nil {
		t.Errorf("per flush: %s, %s", maybe(node), maybe(device))
	}
}

// TestPacer: messages of all lanes are evenly spread, in turn.
func TestPacer(t *testing.T) {
	p := newPacer(1000, 4)
	for n := range int64(12) {
		lane, k := int(n%4), n/4
		if got := p.due(lane, k).Sub(p.began); got != time.Duration(n)*time.Millisecond {
			t.Errorf("message %d of lane %d is due at %v", k, lane, got)
		}
	}
}
