package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"text/tabwriter"
)

func main() {
	o := options{live: os.Stderr}
	flag.IntVar(&o.kills, "kills", 100, "how often to kill")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64()>>16, "decides load and moments")
	flag.StringVar(&o.dir, "dir", ".", "where kill-artefacts-SEED is made; removed if nothing is wrong")
	flag.IntVar(&o.loadMS, "load", 2000, "longest load before a kill, in milliseconds; mostly it is far shorter")
	flag.Parse()
	c, err := crash(o)
	fmt.Fprintln(os.Stderr)
	fmt.Print(table(o, c))
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(1)
	}
	fmt.Printf("nothing contradicts what was confirmed; more: go run ./fuzz/kill --kills 10000 --seed %d\n", o.seed)
}

// table says what a run did.
func table(o options, c counts) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	row("kills, seed\t%d, %d", o.kills, o.seed)
	row("messages sent, sent again\t%d, %d", c.messages, c.again)
	row("confirmed: written, flushed\t%d, %d", c.written, c.flushed)
	row("accepted only, refused, no answer\t%d, %d, %d", c.accepted, c.refused, c.unknown)
	row("confirmed in a later life than sent in\t%d", c.crossed)
	row("refused for a limit; found without an answer\t%d; %d", c.limited, c.found)
	row("deliveries, of these again\t%d, %d", c.deliveries, c.redeliveries)
	row("accepts, releases, rejects, no answer\t%d, %d, %d, %d", c.accepts, c.releases, c.rejects, c.settlesUnknown)
	row("purges, messages purged\t%d, %d", c.purges, c.purged)
	row("changes asked for, refused; queues made, deleted\t%d, %d; %d, %d", c.mutations, c.conflicts, c.made, c.deletions)
	row("queues looked through, messages found there\t%d, %d", c.audits, c.present)
	row("data directories verified offline, 0 damaged\t%d", c.verified)
	_ = w.Flush() // memory takes everything
	return b.String()
}
