package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict is how one check came out.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"
	Warn    Verdict = "warn"    // it works, worse than it could or with less safety
	Fail    Verdict = "fail"    // it will not work, or what is confirmed may be lost
	Skipped Verdict = "skipped" // it was not looked at, and Found says why
)

// Check is one judgement: what was found, and what to do about it, "" where there is nothing to do.
type Check struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	Do      string  `json:"do"`
}

func ok(found string, args ...any) Check {
	return Check{Verdict: OK, Found: fmt.Sprintf(found, args...)}
}

func skipped(why string) Check { return Check{Verdict: Skipped, Found: why} }

func warn(do, found string, args ...any) Check {
	return Check{"", Warn, fmt.Sprintf(found, args...), do}
}

func fail(do, found string, args ...any) Check {
	return Check{"", Fail, fmt.Sprintf(found, args...), do}
}

// Judge judges everything. It is a function of its argument. Every check comes once, in the order in which one looks;
// each peer and each port is a check of its own.
func Judge(f *Facts) []Check {
	var list []Check
	add := func(name string, c Check) {
		c.Name = name
		list = append(list, c)
	}
	add("node", node(f))
	add("kernel", kernel(&f.Kernel))
	add("file system", fileSystem(&f.Mount))
	add("mount options", mountOptions(&f.Mount))
	add("own file system", ownFileSystem(&f.Mount))
	add("write cache", writeCache(&f.Devices))
	add("flush honesty", flushHonesty(&f.Flush, &f.Devices))
	add("flush speed", flushSpeed(&f.Flush))
	add("preallocation", preallocation(&f.Allocate))
	add("space", space(&f.Space))
	add("inodes", inodes(&f.Space))
	add("open files", openFiles(&f.Files))
	add("memory", memory(&f.Memory))
	add("UDP buffers", udpBuffers(&f.UDP))
	add("clock", clock(&f.Clock))
	add("clock jumps", clockJumps(&f.Clock))
	add("owner", owner(&f.Access))
	add("permissions", permissions(&f.Access))
	add("store", store(&f.Store))
	add("version", version(&f.Builds))
	add("versions of peers", peerVersions(&f.Builds))
	add("key", key(&f.Key, f.At))
	add("seeds", seeds(&f.Seeds, &f.Key))
	for i := range f.Ports {
		add("port "+f.Ports[i].Network, port(&f.Ports[i]))
	}
	for i := range f.Peers {
		p := &f.Peers[i]
		add("peer "+cmp.Or(p.Name, p.Address), peer(p, f.Running.Held))
	}
	return list
}

// WorstFirst sorts checks for people: what has to be done stands at the top.
func WorstFirst(list []Check) []Check {
	order := []Verdict{Fail, Warn, Skipped, OK}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Check) int {
		return cmp.Compare(slices.Index(order, a.Verdict), slices.Index(order, b.Verdict))
	})
	return list
}

// Counts counts checks by verdict.
func Counts(list []Check) map[Verdict]int {
	counts := map[Verdict]int{OK: 0, Warn: 0, Fail: 0, Skipped: 0}
	for _, c := range list {
		counts[c.Verdict]++
	}
	return counts
}

// size is a number of bytes for people.
func size(n uint64) string {
	v, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[unit])
}

// micros is a time in microseconds for people.
func micros(us float64) string {
	switch {
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 1e6:
		return fmt.Sprintf("%.2f ms", us/1000)
	}
	return fmt.Sprintf("%.1f s", us/1e6)
}

func span(d time.Duration) string { return micros(float64(d.Nanoseconds()) / 1000) }

// commas joins words.
func commas(words []string) string { return strings.Join(words, ", ") }
