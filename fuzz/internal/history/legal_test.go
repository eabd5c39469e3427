package history

import (
	"flag"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// judge checks lines; linear is up to how many operations one order of them is looked for.
func judge(lines []Line, linear int) *Report {
	c := New(Options{LinearMax: linear, LinearTime: time.Second})
	for i := range lines {
		c.Add(&lines[i])
	}
	return c.Finish()
}

var shapes = map[string]shape{
	"Replicated":   {},
	"OwnedFlushed": {owned: true},
	"OwnedWritten": {owned: true, written: true},
}

// Random histories of a cluster that does nothing wrong pass, and all that can be judged is.
func TestLegalHistoriesPass(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				w := newWorld(rt, s)
				w.run(rapid.IntRange(5, 120).Draw(rt, "steps"))
				if r := judge(w.lines, 30); !r.OK() {
					rt.Fatal(w.tell(r))
				}
			})
		})
	}
}

func (w *world) tell(r *Report) string {
	text := r.Table()
	for _, list := range [][]Violation{r.Safety, r.Liveness} {
		for i := range list {
			text += "\n" + list[i].Text(nil)
		}
	}
	for i := range w.lines {
		text += w.lines[i].String() + "\n"
	}
	return text
}

// TestMain lets WEIDA_RUNS say how many random histories each test plays. What the command line says wins.
func TestMain(m *testing.M) {
	set := map[string]string{"rapid.checks": "60"}
	if n := os.Getenv("WEIDA_RUNS"); n != "" {
		set["rapid.checks"] = n
	}
	for name, value := range set {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	os.Exit(m.Run())
}
