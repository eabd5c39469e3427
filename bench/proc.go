package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of CPU time in /proc; it has been 100 a second on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// cpuTime is the CPU time that a process has used, user and system, in steps of clockTick.
func cpuTime(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The second field is the command in parentheses and may hold anything; utime and stime are fields 14 and 15.
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	fields := strings.Fields(rest)
	const utime, stime = 14 - 3, 15 - 3
	if len(fields) <= stime {
		return 0, fmt.Errorf("%s: %d fields behind the command", path, len(fields))
	}
	var ticks int64
	for _, f := range []string{fields[utime], fields[stime]} {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// machineTime is the CPU time that all processors together were busy since the machine started, and that there was.
func machineTime() (busy, all time.Duration, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal; guests are counted in user
	const first, idle, iowait, limit = 1, 4, 5, 9
	if len(fields) < limit {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for i := first; i < limit; i++ {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		t := time.Duration(n) * clockTick
		all += t
		if i != idle && i != iowait {
			busy += t
		}
	}
	return busy, all, nil
}

// residentSize is the RSS of a process in bytes; pid may be "self".
func residentSize(pid string) (size int64, err error) { return statusSize(pid, "VmRSS:") }

// peakSize is the most RSS in bytes that a process has had.
func peakSize(pid string) (size int64, err error) { return statusSize(pid, "VmHWM:") }

func statusSize(pid, name string) (size int64, err error) {
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &size); err != nil {
				return 0, err
			}
			return size * 1024, nil
		}
	}
	return 0, fmt.Errorf("process %s: no %s", pid, name)
}

// deviceFlushes is how many flushes the device below dir has done for everybody since the machine started; false where
// the kernel does not count them for that device.
func deviceFlushes(dir string) (int64, bool) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return 0, false
	}
	const flushes = 15 // of the fields of Documentation/block/stat.rst, counted from 0
	fields := strings.Fields(string(b))
	if len(fields) <= flushes {
		return 0, false
	}
	n, err := strconv.ParseInt(fields[flushes], 10, 64)
	return n, err == nil
}
