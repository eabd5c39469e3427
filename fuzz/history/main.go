// Command history judges histories that runs have kept: of each directory all files *.jsonl in it and below it are one
// history.
//
//	go run ./fuzz/history DIR...
//
// It prints what each history holds, how often each rule was asked and broken, which part of what each producer sent is
// missing, and every contradiction with the lines that show it. It ends with status 1 if a rule is broken, and with
// status 2 if a history cannot be read. The rules are in fuzz/internal/history/rules.go.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"weida/fuzz/internal/history"
)

func main() {
	var o history.Options
	flag.DurationVar(&o.HealMax, "heal", 2*time.Minute, "within how long after the faults everything has to go on")
	flag.IntVar(&o.LinearMax, "linear", 300, "up to how many operations of a queue one order of them is looked for")
	flag.StringVar(&o.Pictures, "pictures", "", "a directory for pictures of operations that have no order")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "history: name the directories to judge: go run ./fuzz/history DIR...")
		os.Exit(2)
	}
	status := 0
	for _, dir := range flag.Args() {
		err := judge(os.Stdout, dir, o)
		switch {
		case errors.Is(err, errBroken):
			status = max(status, 1)
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
			status = 2
		}
	}
	os.Exit(status)
}

var errBroken = errors.New("history: a rule is broken")

// judge prints what is to be said of one history. Its error is errBroken, or why it cannot be read.
func judge(w io.Writer, dir string, o history.Options) error {
	r, files, err := history.Check(dir, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n%s", dir, r.Table())
	for _, list := range [][]history.Violation{r.Safety, r.Liveness} {
		for i := range list {
			fmt.Fprint(w, "\n"+list[i].Text(files))
		}
	}
	if !r.OK() {
		fmt.Fprintf(w, "\n%d contradictions to safety, %d to liveness\n\n", len(r.Safety), len(r.Liveness))
		return errBroken
	}
	fmt.Fprintf(w, "nothing contradicts what was confirmed\n\n")
	return nil
}
