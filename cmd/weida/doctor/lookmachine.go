package doctor

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weida/fsync"
)

func lookKernel() Kernel {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Kernel{Bad: err.Error()}
	}
	k := Kernel{Release: unix.ByteSliceToString(u.Release[:])}
	if err := fsync.CheckKernel(); err != nil {
		k.Bad = err.Error()
	}
	return k
}

// procOf is a file of a process: of the node where it is known, else of this one.
func procOf(pid int, name string) string {
	if pid == 0 {
		return "/proc/self/" + name
	}
	return fmt.Sprintf("/proc/%d/%s", pid, name)
}

func lookFiles(pid int) Files {
	b, err := os.ReadFile(procOf(pid, "limits"))
	if err != nil && pid != 0 {
		pid = 0
		b, err = os.ReadFile(procOf(0, "limits"))
	}
	if err != nil {
		return Files{Why: err.Error()}
	}
	// A node raises its own limit to the hard one when it starts.
	limit, err := parseLimit(string(b))
	if err != nil {
		return Files{Why: err.Error()}
	}
	return Files{Max: limit, OfNode: pid != 0}
}

// parseLimit finds the hard limit of open files in the text of /proc/PID/limits.
func parseLimit(text string) (uint64, error) {
	for l := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(l, "Max open files")
		fields := strings.Fields(rest)
		switch {
		case !ok || len(fields) < 2:
		case fields[1] == "unlimited":
			return math.MaxUint32, nil
		default:
			return strconv.ParseUint(fields[1], 10, 64)
		}
	}
	return 0, errors.New("the kernel names no limit of open files")
}

func lookMemory(pid int) Memory {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Memory{Why: err.Error()}
	}
	m := Memory{Machine: parseMemory(string(b))}
	groups, err := os.ReadFile(procOf(pid, "cgroup"))
	if err != nil {
		return m // no control groups, no limit
	}
	m.Limit = groupLimit("/sys/fs/cgroup", string(groups))
	return m
}

// parseMemory finds the size of the memory in the text of a meminfo.
func parseMemory(text string) uint64 {
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, "MemTotal:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64) // 0 is not known
			return n << 10
		}
	}
	return 0
}

// groupLimit is the smallest limit of memory on the way from a control group to the root, 0 if there is none. text is
// that of /proc/PID/cgroup; root is where the hierarchies are mounted.
func groupLimit(root, text string) (limit uint64) {
	for l := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(l), ":", 3)
		if len(parts) < 3 {
			continue
		}
		var bases []string
		file := "memory.max"
		switch {
		case parts[0] == "0":
			bases = []string{root, filepath.Join(root, "unified")}
		case parts[1] == "memory":
			bases, file = []string{filepath.Join(root, "memory")}, "memory.limit_in_bytes"
		}
		for _, base := range bases {
			for at := filepath.Clean("/" + parts[2]); ; at = filepath.Dir(at) {
				n, err := strconv.ParseUint(line(filepath.Join(base, at, file)), 10, 64) // "max" is none
				if err == nil && n < math.MaxInt64/2 && (limit == 0 || n < limit) {
					limit = n
				}
				if at == "/" {
					break
				}
			}
		}
	}
	return limit
}

// udpWanted is how large quic-go wants a socket's buffers to be, in bytes, as the kernel counts them.
const udpWanted = 7 << 20

func lookUDP() UDP {
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		return UDP{Why: err.Error()}
	}
	defer func() { _ = c.Close() }()                                         // nothing was sent
	_ = errors.Join(c.SetReadBuffer(udpWanted), c.SetWriteBuffer(udpWanted)) // what they became is asked
	u := UDP{Wanted: udpWanted}
	raw, err := c.SyscallConn()
	if err == nil {
		var rerr, werr error
		err = raw.Control(func(fd uintptr) {
			u.Read, rerr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
			u.Write, werr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		})
		err = errors.Join(err, rerr, werr)
	}
	if err != nil {
		return UDP{Why: err.Error()}
	}
	return u
}

// watched are both clocks at one moment.
type watched struct{ wall, mono time.Duration }

func watchClock() watched {
	var wall, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME, &wall) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return watched{}
	}
	return watched{time.Duration(wall.Nano()), time.Duration(mono.Nano())}
}

func lookClock(from watched) Clock {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return Clock{Why: "the kernel was not to be asked about its clock: " + err.Error()}
	}
	now := watchClock()
	took := now.mono - from.mono
	return Clock{
		Synced:   state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0,
		MaxError: time.Duration(t.Maxerror) * time.Microsecond,
		Watched:  took, Jump: now.wall - from.wall - took,
	}
}
