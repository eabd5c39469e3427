package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
)

func main() {
	o := options{live: os.Stderr}
	flag.IntVar(&o.kills, "kills", 100, "how often to kill")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64()>>16, "decides load and moments")
	flag.StringVar(&o.dir, "dir", ".", "where crash-artefacts-SEED is made; removed if nothing is wrong")
	flag.IntVar(&o.loadMS, "load", 400, "longest load before a kill, in milliseconds")
	flag.Parse()
	c, err := crash(o)
	fmt.Fprintln(os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
	fmt.Println(summary(o, c))
}

func summary(o options, c counts) string {
	return fmt.Sprintf("%d kills, seed %d: %d messages confirmed (%d written, %d flushed), none lost, none changed; "+
		"%d refused, none stored; %d without an answer, %d of them stored", o.kills, o.seed, c.written+c.flushed,
		c.written, c.flushed, c.refused, c.open, c.found)
}
