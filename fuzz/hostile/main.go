package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"weida/fuzz/internal/process"
)

func main() {
	if text := os.Getenv(orderEnv); text != "" {
		if err := attackBy(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "hostile: attacker:", err)
			os.Exit(1)
		}
		return
	}
	if err := command(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

// errFound is a run that found something; the report has said what.
var errFound = errors.New("see above")

func command(args []string, out, live io.Writer) (err error) {
	o := options{kill: true, live: live}
	flags := flag.NewFlagSet("hostile", flag.ExitOnError)
	names := flags.String("attacks", "", "`NAMES` with commas between them; all if empty, and calm and burn always")
	list := flags.Bool("list", false, "say what attacks there are")
	format := flags.String("o", "table", "`FORMAT` of the report: table or json")
	flags.IntVar(&o.passes, "passes", 3, "how often each attack is played")
	flags.DurationVar(&o.before, "before", 4*time.Second, "how long the node is watched before each attack")
	flags.DurationVar(&o.during, "during", 4*time.Second, "how long each attack is")
	flags.DurationVar(&o.back, "back", 30*time.Second, "how long the node may take to be as before")
	flags.DurationVar(&o.answer, "answer", 5*time.Second, "how long the node may take to let a newcomer in")
	flags.DurationVar(&o.patience, "patience", 20*time.Second,
		"how long to wait before each attack for others to leave the machine alone")
	flags.IntVar(&o.rate, "rate", 200, "messages a second of the good client")
	flags.IntVar(&o.size, "size", 8, "how many connections an attack uses; some use a multiple")
	flags.IntVar(&o.processors, "processors", 1, "how many processors an attacker may use")
	flags.IntVar(&o.yield, "yield", 19, "how far attackers step back: their nice value above this process's")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, a := range attacks {
			fmt.Fprintf(out, "%-20s %s\n", a.name, a.what)
		}
		return nil
	}
	if *format != "table" && *format != "json" {
		return fmt.Errorf("-o is table or json, not %q", *format)
	}
	if o.attacks, err = choose(*names); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "weida-hostile-")
	if err != nil {
		return err
	}
	bin, err := process.Build(dir)
	if err != nil {
		return err
	}
	r, err := hostile(context.Background(), o, bin, dir)
	fmt.Fprintf(live, "\r%40s\r", "")
	if err != nil {
		return fmt.Errorf("%w; what the node said is in %s", err, dir)
	}
	if err := r.report(out, *format); err != nil {
		return fmt.Errorf("%w; what the node said is in %s", err, dir)
	}
	return os.RemoveAll(dir)
}

// choose finds attacks by name.
func choose(names string) ([]attack, error) {
	if names == "" {
		return attacks, nil
	}
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if _, ok := attackNamed(name); !ok {
			return nil, fmt.Errorf("there is no attack %q; -list says which there are", name)
		}
	}
	var list []attack
	for _, a := range attacks {
		if slices.Contains(wanted, a.name) || a.name == "calm" || a.name == "burn" {
			list = append(list, a)
		}
	}
	return list, nil
}
