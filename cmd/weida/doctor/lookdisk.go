package doctor

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weida/fsync"
	"weida/fsync/flushprobe"
)

// deepest is the deepest directory on the way to path that is there.
func deepest(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for {
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			return filepath.EvalSymlinks(path)
		case err == nil:
			return "", fmt.Errorf("%s is no directory", path)
		case !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path):
			return "", err
		}
		path = filepath.Dir(path)
	}
}

func lookMount(data string) Mount {
	at, err := deepest(data)
	if err != nil {
		return Mount{Why: err.Error()}
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Mount{Why: err.Error()}
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, at, 0, unix.STATX_MNT_ID, &st); err != nil {
		return Mount{Why: fmt.Sprintf("statx %s: %v", at, err)}
	}
	m, found := parseMount(string(b), st.Mnt_id)
	if !found {
		return Mount{Why: fmt.Sprintf("the mount of %s is not to be seen from here", at)}
	}
	m.Looked = at
	m.Others = others(m.Point, at)
	return m
}

// parseMount finds a mount by its id in the text of a mountinfo.
func parseMount(text string, id uint64) (m Mount, found bool) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		left, right, _ := strings.Cut(lines.Text(), " - ")
		a, b := strings.Fields(left), strings.Fields(right)
		if len(a) < 6 || len(b) < 3 || a[0] != strconv.FormatUint(id, 10) {
			continue
		}
		m = Mount{Root: unescape(a[3]), Point: unescape(a[4]), Type: b[0], Source: unescape(b[1])}
		for _, o := range append(strings.Split(a[5], ","), strings.Split(b[2], ",")...) {
			if !slices.Contains(m.Options, o) {
				m.Options = append(m.Options, o)
			}
		}
		return m, true
	}
	return m, false
}

// unescape reads the octal escapes of a mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// others counts the names at a mount point that do not lead to dir.
func others(point, dir string) (n int) {
	way, err := filepath.Rel(point, dir)
	if err != nil || way == "." {
		return 0
	}
	first, _, _ := strings.Cut(way, string(filepath.Separator))
	list, err := os.ReadDir(point)
	if err != nil {
		return 0 // whoever may not look sees nothing to tell of
	}
	for _, e := range list {
		if e.Name() != first && e.Name() != "lost+found" {
			n++
		}
	}
	return n
}

func lookSpace(m *Mount, t *Target) Space {
	if m.Why != "" {
		return Space{Why: m.Why}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(m.Looked, &st); err != nil {
		return Space{Why: fmt.Sprintf("statfs %s: %v", m.Looked, err)}
	}
	unit := uint64(st.Frsize)
	return Space{
		Bytes: st.Blocks * unit, FreeBytes: st.Bavail * unit, Inodes: st.Files, FreeInodes: st.Ffree,
		MessageMax: uint64(t.MessageMax),
	}
}

// probePatience is how long flushes are measured at most; one that stalls is waited for all the same.
const probePatience = 15 * time.Second

// errEnough ends a measurement that takes too long.
var errEnough = errors.New("enough")

// probeDisk writes to the file system: whether room is kept, and what a flush takes.
func probeDisk(ctx context.Context, f *Facts, busy string, progress func(string)) {
	if busy == "" {
		busy = f.Mount.Why
	}
	if busy != "" {
		f.Allocate.Why, f.Flush.Why = busy, busy
		return
	}
	dir := probeDir(f.Data, f.Mount.Looked)
	f.Allocate = lookAllocate(filepath.Join(dir, probeName()))
	if f.Allocate.Why != "" {
		f.Flush.Why = f.Allocate.Why
		return
	}
	began := time.Now()
	r, err := flushprobe.Run(fsync.OS(), filepath.Join(dir, probeName()), flushprobe.Options{
		Each: func(done int) error {
			progress(fmt.Sprintf("measuring flushes: %d of %d", done, flushprobe.WritesDefault))
			if time.Since(began) > probePatience {
				return errEnough
			}
			return ctx.Err()
		},
	})
	if err != nil && !errors.Is(err, errEnough) || len(r.Took) == 0 {
		f.Flush.Why = fmt.Sprintf("flushes could not be measured in %s: %v", dir, err)
		return
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	f.Flush = Flush{
		Writes: len(r.Took), P50: us(r.Quantile(0.5)), P99: us(r.Quantile(0.99)), Max: us(r.Quantile(1)),
		Bars: buckets(r.Took),
	}
}

// probeDir is where the probe file goes: beside the data directory if that is the same file system, so that a file
// which outlives a doctor that was killed is in nobody's way; else into it.
func probeDir(data, looked string) string {
	abs, err := filepath.Abs(data)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil || looked != abs {
		return looked // there is no data directory yet
	}
	parent := filepath.Dir(abs)
	var here, there unix.Stat_t
	if unix.Stat(abs, &here) == nil && unix.Stat(parent, &there) == nil && here.Dev == there.Dev &&
		unix.Access(parent, unix.W_OK) == nil {
		return parent
	}
	return abs
}

func probeName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // it never fails
	return ".weida-doctor-" + hex.EncodeToString(b[:])
}

// lookAllocate asks for room and looks whether it is there. The store's own Allocate takes a sparse file where there is
// no room to be had.
func lookAllocate(path string) (a Allocate) {
	const room = 1 << 20
	f, err := fsync.OS().Create(path)
	if err == nil {
		defer func() {
			if err := errors.Join(f.Close(), fsync.OS().Remove(path)); err != nil && a.Why == "" {
				a.Why = err.Error()
			}
		}()
		err = f.Allocate(0, room)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Stat(path, &st)
	}
	if err != nil {
		return Allocate{Why: "nothing can be written there: " + err.Error()}
	}
	return Allocate{Kept: st.Blocks*512 >= room}
}

// buckets counts durations, sorted, in steps that double.
func buckets(took []time.Duration) (list []Bucket) {
	from := time.Microsecond
	for _, d := range took {
		for d >= 2*from {
			from *= 2
			if len(list) > 0 {
				list = append(list, bucket(from))
			}
		}
		if len(list) == 0 {
			list = append(list, bucket(from))
		}
		list[len(list)-1].Count++
	}
	return list
}

func bucket(from time.Duration) Bucket {
	us := float64(from.Microseconds())
	return Bucket{From: us, To: 2 * us}
}
