package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"weida/fuzz/internal/process"
)

// nodes are attacked at a time.
const nodes = 3

// patience bounds a hang and decides nothing else: a machine may be slow.
const patience = 9 * time.Minute

// TestMain is also how the attackers of the tests start.
func TestMain(m *testing.M) {
	if text := os.Getenv(orderEnv); text != "" {
		if err := attackBy(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "attacker:", err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(nodes)); err != nil { // they wait more than they work
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// Every attack for a moment, beside a good client: no error of that one, every limit, everything back. Times are
// judged by the command alone. The attacks are spread over nodes so that one waits while another works.
func TestHostile(t *testing.T) {
	bin, err := process.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var parts [nodes][]attack
	for i, a := range attacks[2:] { // without those that are none
		a.fill /= 10
		a.want = nil // too short to be sure of them
		parts[i%nodes] = append(parts[i%nodes], a)
	}
	for i, part := range parts {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r, err := hostile(ctx, options{
				attacks: part, passes: 1, before: 20 * time.Millisecond, during: 300 * time.Millisecond,
				back: patience / 3, answer: patience / 3, rate: 100, size: 2, live: io.Discard,
			}, bin, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range r.good.errors() {
				t.Error("good client:", err)
			}
			for _, w := range r.rows() {
				t.Logf("%s: back after %.1f s; did %s; saw %s", w.Attack, w.BackSeconds, counts(w.Tally.Did),
					counts(w.Tally.Refusals))
				for _, p := range w.Problems {
					t.Errorf("%s: %s", w.Attack, p)
				}
			}
		})
	}
}
