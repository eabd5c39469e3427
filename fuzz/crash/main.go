package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"weida/fuzz/internal/history"
	"weida/fuzz/internal/process"
)

func main() {
	bad, err := commandLine(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
	}
	if err != nil || bad {
		os.Exit(1)
	}
}

// commandLine does what the command is asked for. It says whether something is wrong with the cluster; an error is that
// nobody knows.
func commandLine(args []string, out, live io.Writer) (bad bool, err error) {
	o := options{live: live}
	flags := flag.NewFlagSet("crash", flag.ExitOnError)
	flags.IntVar(&o.nodes, "nodes", 3, "how many nodes: 1, 3, 5 or 7")
	flags.IntVar(&o.queues, "queues", 20, "how many queues")
	flags.DurationVar(&o.duration, "duration", 5*time.Minute, "how long there is load, and faults")
	words := flags.String("faults", "kill,pause,restart", "which `KINDS`, with commas: "+join(kinds)+"; or none")
	flags.StringVar(&o.fs, "fs", "none", "what is below the data directories: none, tmpfs, ext4 or xfs")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64()>>16, "decides faults and load")
	flags.IntVar(&o.rate, "rate", 400, "messages a second, all producers together")
	flags.DurationVar(&o.heal, "heal", 90*time.Second, "how long everything may take to be well again at the end")
	flags.StringVar(&o.dir, "dir", ".", "where crash-artefacts-SEED is made")
	flags.BoolVar(&o.keep, "keep", false, "keep the data directories also if nothing is wrong")
	flags.StringVar(&o.bin, "bin", "", "the `PROGRAM` weida; built from these sources if empty")
	flags.StringVar(&o.target, "target", "", "a context `FILE`: load and judge that cluster, and hurt nobody")
	flags.StringVar(&o.broken, "break", "", "have nodes without a `RULE`, and be content if that shows: "+breakables())
	plan := flags.Bool("plan", false, "print the schedule and do nothing")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if o.kinds, err = parse(*words); err != nil {
		return false, err
	}
	if !slices.Contains([]string{"none", "tmpfs", "ext4", "xfs", "btrfs"}, o.fs) {
		return false, fmt.Errorf("--fs is none, tmpfs, ext4, xfs or btrfs, not %q", o.fs)
	}
	if o.nodes < 1 || o.nodes%2 == 0 || o.nodes > 7 || o.queues < 1 || o.rate < 1 {
		return false, fmt.Errorf("--nodes is 1, 3, 5 or 7, --queues and --rate at least 1")
	}
	if o.target != "" {
		o.kinds, o.fs, o.bin, o.broken = nil, "none", "none", ""
	}
	if err := breakRule(o.broken); err != nil {
		return false, err
	}
	o.possible(live)
	o.again = o.repeat()
	if *plan {
		for _, f := range schedule(o.seed, o.nodes, o.duration, o.kinds) {
			fmt.Fprintln(out, f)
		}
		return false, nil
	}
	if o.has(partition) && os.Getenv(ownNamespace) == "" {
		if err := o.build(); err != nil { // in there nothing can be fetched
			return false, err
		}
		return false, enterNamespace("--seed", fmt.Sprint(o.seed), "--bin", o.bin)
	}
	if f, ok := live.(*os.File); ok {
		s, err := f.Stat()
		o.tty = err == nil && s.Mode()&os.ModeCharDevice != 0
	}
	if err := o.build(); err != nil {
		return false, err
	}
	fmt.Fprintln(live, o.again)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // ends the load early
	defer stop()
	res, err := attackAll(ctx, o)
	if o.tty {
		fmt.Fprintln(live)
	}
	if err != nil {
		return false, err
	}
	res.tell(out)
	return res.failed() == (o.broken == ""), nil
}

// repeat is the command that does the same once more.
func (o *options) repeat() string {
	text := "go run ./fuzz/crash "
	if o.target != "" {
		text += "--target " + o.target
	} else {
		text += fmt.Sprintf("--nodes %d --faults %s --fs %s", o.nodes, join(o.kinds), o.fs)
	}
	if o.broken != "" {
		text += " --break " + o.broken
	}
	return text + fmt.Sprintf(" --queues %d --duration %v --rate %d --seed %d", o.queues, o.duration, o.rate, o.seed)
}

// build makes the binary where the run's directory will be.
func (o *options) build() (err error) {
	if o.bin != "" {
		return nil
	}
	dir, err := o.directory()
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("%w; what an earlier run kept is not touched: move it away, or take another seed", err)
	}
	if o.broken != "" {
		o.bin, err = process.BuildSwitched(dir)
	} else {
		o.bin, err = process.Build(dir)
	}
	return err
}

// directory is where everything of the run is.
func (o *options) directory() (string, error) {
	return filepath.Abs(filepath.Join(o.dir, fmt.Sprintf("crash-artefacts-%d", o.seed)))
}

// shownMax is how many violations are printed: one mistake makes many.
const shownMax = 10

// tell says what a run showed.
func (res *result) tell(out io.Writer) {
	fmt.Fprint(out, res.table())
	for _, w := range res.wrong {
		fmt.Fprintf(out, "VIOLATION %s\n", w)
	}
	for _, w := range res.late {
		fmt.Fprintf(out, "LATE %s\n", w)
	}
	for _, list := range [][]history.Violation{res.report.Safety, res.report.Liveness} {
		for i := range list[:min(len(list), shownMax)] {
			fmt.Fprintf(out, "\n%s", list[i].Text(nil))
		}
		if len(list) > shownMax {
			fmt.Fprintf(out, "\n… and %d more; go run ./fuzz/history %s/history shows them\n", len(list)-shownMax, res.dir)
		}
	}
	for _, w := range res.troubles {
		fmt.Fprintf(out, "the harness had trouble: %s\n", w)
	}
	if res.o.broken != "" {
		fmt.Fprint(out, res.tellBroken())
	}
	if res.failed() {
		fmt.Fprintf(out, "kept: %s\nagain: %s\n", res.dir, res.o.again)
		return
	}
	fmt.Fprintf(out, "nothing contradicts what was acknowledged; picture: %s/run.svg\nagain: %s\n", res.dir, res.o.again)
}

func join(list []kind) string {
	var words []string
	for _, k := range list {
		words = append(words, string(k))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ",")
}

func parse(words string) (list []kind, err error) {
	if words == "none" || words == "" {
		return nil, nil
	}
	for _, w := range strings.Split(words, ",") {
		k := kind(strings.TrimSpace(w))
		if !slices.Contains(kinds, k) {
			return nil, fmt.Errorf("there is no fault %q; there are %s", w, join(kinds))
		}
		if !slices.Contains(list, k) {
			list = append(list, k)
		}
	}
	return list, nil
}

// possible leaves out what cannot be done here, and says why.
func (o *options) possible(live io.Writer) {
	missing := map[kind]string{}
	if why := networkMissing(); why != "" {
		missing[partition] = why
	}
	if o.nodes == 1 {
		missing[partition], missing[bitflip] = "one node has nobody to be cut off from", "one node has nobody to heal it"
		missing[rollback], missing[emptied] = "one node has nobody to tell it", "one node has nobody to tell it"
	}
	if why := diskMissing(o.fs); why != "" {
		fmt.Fprintf(live, "left out: --fs %s: %s\n", o.fs, why)
		o.fs = "none"
	}
	switch o.fs {
	case "none":
		missing[powerOff], missing[diskfull] = "--fs none has no power to cut", "--fs none has no end"
	case "tmpfs":
		missing[powerOff] = "--fs tmpfs has no power to cut"
	}
	o.kinds = slices.DeleteFunc(o.kinds, func(k kind) bool {
		if why := missing[k]; why != "" {
			fmt.Fprintf(live, "left out: %s: %s\n", k, why)
			return true
		}
		return false
	})
}
