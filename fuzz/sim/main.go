package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

func main() {
	if err := command(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

// command runs the seeds that the arguments name.
func command(args []string, out io.Writer) error {
	f := flag.NewFlagSet("sim", flag.ContinueOnError)
	seeds := f.Int("seeds", 20, "how many seeds to run")
	seed := f.Uint64("seed", 0, "the first one; 0: a random one, printed")
	broken := f.String("mutations", "", "leave out each of these rules in turn (a,b,…), or all")
	verbose := f.Bool("verbose", false, "print the transcript of each run")
	if err := f.Parse(args); err != nil {
		return err
	}
	named := false
	f.Visit(func(x *flag.Flag) { named = named || x.Name == "seeds" })
	first := *seed
	if first == 0 {
		first = rand.Uint64() >> 20
	} else if !named {
		*seeds = 1
	}
	if *broken != "" {
		return runMutations(max(*seed, 1), *seeds, strings.TrimPrefix(*broken, "all"), out)
	}
	return runMany(first, *seeds, *verbose, out)
}

// runMany runs seeds from first on, until one breaks a rule.
func runMany(first uint64, n int, verbose bool, out io.Writer) error {
	fmt.Fprintf(out, "seeds %d to %d\n", first, first+uint64(n)-1)
	debug.SetGCPercent(400) // a run is small, and what it allocates is soon garbage
	total, began, told := newStats(), time.Now(), time.Now()
	for i := range n {
		o := runSeed(first+uint64(i), nil)
		total.add(&o.stats)
		if verbose || len(o.problems) > 0 {
			fmt.Fprint(out, o.report(verbose))
		}
		if len(o.problems) > 0 {
			return fmt.Errorf("seed %d breaks a rule", o.seed)
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			fmt.Fprintf(out, "%d of %d, %d events, %d commits, %s\n", i+1, n, total.events, total.commits,
				time.Since(began).Round(time.Second))
		}
	}
	total.table(out, n, time.Since(began))
	return total.complete(out, first, n)
}
