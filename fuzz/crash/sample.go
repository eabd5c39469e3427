package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"weida/broker/admin"
)

// sample is what was done by a moment.
type sample struct {
	at               time.Duration
	acked, delivered int
}

// change is a group that got another leader.
type change struct {
	at    time.Duration
	group string
	to    string
}

// sampling looks at the run twice a second, for the live line and the picture, until ctx ends. A run without a rule is
// ended when that is noticed.
func (r *run) sampling(ctx context.Context, enough func()) {
	rng := rand.New(rand.NewPCG(r.o.seed, 3))
	leaders := make(map[string]string)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c := r.history.counts()
		r.mu.Lock()
		r.samples = append(r.samples, sample{r.now(), c.acked, c.delivered})
		r.mu.Unlock()
		if n%2 == 0 {
			r.leaders(ctx, rng, leaders)
		}
		if bad := r.say(c); bad > 0 && r.noticed == 0 {
			r.noticed = r.now()
			if r.o.broken != "" {
				enough()
			}
		}
	}
}

// leaders asks somebody who leads, and notes what is different.
func (r *run) leaders(ctx context.Context, rng *rand.Rand, was map[string]string) {
	x := r.anyone(rng)
	if x == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := x.Status(ctx)
	if err != nil {
		return // it is down, or cut off
	}
	for _, g := range s.Groups {
		if g.Leader == "" {
			continue
		}
		key := g.Group
		if g.Group != admin.ControlName {
			key = fmt.Sprintf("%s/%d", g.Group, g.ID)
		}
		if old := was[key]; old != "" && old != g.Leader {
			r.mu.Lock()
			r.elected = append(r.elected, change{r.now(), g.Group, g.Leader})
			r.mu.Unlock()
		}
		was[key] = g.Leader
	}
}

// sayEvery is how often the live line is written where there is no terminal.
const sayEvery = 10 * time.Second

// say writes the live line, and returns how many violations there are.
func (r *run) say(c counts) (bad int) {
	r.mu.Lock()
	bad = len(r.problems) + int(r.history.broken.Load())
	text := fmt.Sprintf("%s of %s · seed %d · %d acknowledged, %d delivered · %s · %d leader changes · %d violations",
		r.now().Round(time.Second), r.o.duration, r.o.seed, c.acked, c.delivered, faultsOf(r.begun), len(r.elected),
		bad)
	r.mu.Unlock()
	switch {
	case r.o.live == nil:
	case r.o.tty:
		fmt.Fprintf(r.o.live, "\r%s\x1b[K", text)
	case r.now() >= r.said+sayEvery:
		r.said = r.now().Truncate(sayEvery)
		fmt.Fprintln(r.o.live, text)
	}
	return bad
}

// faultsOf counts faults in words.
func faultsOf(begun map[kind]int) string {
	text := ""
	for _, k := range kinds {
		if n := begun[k]; n > 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d %s", n, k)
		}
	}
	if text == "" {
		return "no faults"
	}
	return text
}
