package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// logTail is how much of the end of each log is told, in bytes.
const logTail = 1 << 20

func logs(_ context.Context, b *Bundle) ([]byte, error) {
	if len(b.Logs) == 0 {
		return nil, errNone("no log is known: a node writes to standard error, and --log names a file that has it, as from " +
			"`journalctl -u weida > FILE`")
	}
	var out bytes.Buffer
	for i, path := range b.Logs {
		text, err := tail(path, logTail)
		if err != nil {
			return nil, err
		}
		told, dropped := tellLog(text)
		fmt.Fprintf(&out, "== log %d, its last %s; %d lines that are not a node's were left out\n", i+1,
			size(uint64(len(text))), dropped)
		out.Write(told)
	}
	return out.Bytes(), nil
}

// tail is the end of a file, from the beginning of a line on.
func tail(path string, limit int64) (_ string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	from := max(info.Size()-limit, 0)
	b, err := io.ReadAll(io.NewSectionReader(f, from, limit))
	if err != nil {
		return "", err
	}
	if from > 0 {
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	return string(b), nil
}

// logKeys are the attributes of a node's log that are told. Texts are scrubbed.
var logKeys = map[string]bool{
	"time": true, "level": true, "msg": true, "err": true, "queue": true, "group": true, "index": true, "node": true,
	"peer": true, "offset": true, "path": true, "target": true, "took": true, "detail": true, "uid": true, "number": true,
	"key": true, "code": true, "reason": true, "changed": true, "verb": true, "kind": true, "name": true, "from": true,
	"to": true, "frame": true, "version": true, "last": true, "method": true,
}

var (
	// logLine is a line of a node, as itself, as `dev` shows it, or behind what journald puts before it.
	logLine = regexp.MustCompile(`(?:^|[ |])time=\d{4}-\S+ level=[A-Z]+ `)
	devName = regexp.MustCompile(`^(\S{1,64}) \| `)
	// traceLine is a line of what a Go program says when it ends by a panic.
	traceLine = regexp.MustCompile(`^(goroutine \d+ .*\[[a-z ,0-9]+\]:|` +
		`\t\S+\.(?:go|s):\d+( \+0x[0-9a-f]+)?|` +
		`(?:created by )?[\w./*()\[\]-]+\.[\w./*()\[\]-]+( in goroutine \d+)?|` +
		`(?:fatal error|panic|runtime): .*|SIG[A-Z]+: .*)$`)
	traceArgs = regexp.MustCompile(`\((?:0x[0-9a-f]+\??|\{|\}|,| |\.\.\.|_)+\)$`)
)

// tellLog keeps of a log what a node of this version writes, and counts the lines that it does not keep.
func tellLog(text string) (told []byte, dropped int) {
	var out bytes.Buffer
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\r\n")
		line, fine := tellLine(l)
		if !fine {
			dropped++
			continue
		}
		out.WriteString(line + "\n")
	}
	return out.Bytes(), dropped
}

func tellLine(l string) (string, bool) {
	prefix := ""
	if m := devName.FindStringSubmatch(l); m != nil && knownNode.MatchString(m[1]) {
		prefix, l = m[0], l[len(m[0]):]
	}
	if at := logLine.FindStringIndex(l); at != nil {
		l = l[at[0]:]
		return prefix + tellAttrs(strings.TrimLeft(l, " |")), true
	}
	l = traceArgs.ReplaceAllString(l, "")
	if l != "" && (traceLine.MatchString(l) || strings.HasPrefix(l, "weida: ")) { // how the process ended
		return prefix + scrub(l), true
	}
	return "", l == ""
}

// knownNode is what `dev` calls its nodes.
var knownNode = regexp.MustCompile(`^n\d$`)

// tellAttrs keeps the attributes that are known.
func tellAttrs(l string) string {
	var parts []string
	left := 0
	foreign := false // it is about something that others have named: a connector's spec, a file that nobody knows
	for l != "" {
		key, value, rest := nextAttr(l)
		l = rest
		if key == "path" && !knownName.MatchString(filepath.Base(value)) {
			foreign, value = true, filepath.Join(filepath.Dir(value), gone)
		}
		switch {
		case !logKeys[key]:
			left++
		case foreign && (key == "err" || key == "detail"):
			parts = append(parts, key+"="+gone)
		default:
			foreign = foreign || key == "msg" && strings.Contains(value, "connector")
			if value = scrub(value); strings.ContainsAny(value, " \"=") {
				value = strconv.Quote(value)
			}
			parts = append(parts, key+"="+value)
		}
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("left=%d", left))
	}
	return strings.Join(parts, " ")
}

// nextAttr reads key=value from the front of a line; what is none has the key "".
func nextAttr(l string) (key, value, rest string) {
	word, _, _ := strings.Cut(l, " ")
	key, _, is := strings.Cut(word, "=")
	if !is {
		return "", "", strings.TrimLeft(l[len(word):], " ")
	}
	l = l[len(key)+1:]
	if quoted, err := strconv.QuotedPrefix(l); err == nil {
		value, _ = strconv.Unquote(quoted) // it is quoted
		return key, value, strings.TrimLeft(l[len(quoted):], " ")
	}
	value, rest, _ = strings.Cut(l, " ")
	return key, value, strings.TrimLeft(rest, " ")
}

// settings are those of the kernel that a store feels.
var settings = []string{
	"vm/dirty_background_ratio", "vm/dirty_ratio", "vm/dirty_bytes", "vm/dirty_expire_centisecs", "vm/swappiness",
	"vm/overcommit_memory", "vm/max_map_count", "fs/file-max", "net/core/rmem_max", "net/core/wmem_max",
	"net/core/netdev_max_backlog", "kernel/pid_max",
}

func kernelFacts(_ context.Context, b *Bundle) ([]byte, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	text := unix.ByteSliceToString
	fmt.Fprintf(&out, "%s %s %s %s\n", text(u.Sysname[:]), text(u.Release[:]), text(u.Version[:]), text(u.Machine[:]))
	fmt.Fprintf(&out, "uptime %s\nload %s\n", line("/proc/uptime"), line("/proc/loadavg"))
	for l := range strings.Lines(line("/proc/meminfo")) {
		switch name, _, _ := strings.Cut(l, ":"); name {
		case "MemTotal", "MemFree", "MemAvailable", "Cached", "Dirty", "Writeback", "SwapTotal", "SwapFree":
			out.WriteString(strings.TrimRight(l, "\n") + "\n")
		}
	}
	for _, s := range settings {
		fmt.Fprintf(&out, "%s = %s\n", s, line("/proc/sys/"+s))
	}
	for _, what := range []string{"io", "memory", "cpu"} { // how long processes waited for it
		if l := line("/proc/pressure/" + what); l != "" {
			fmt.Fprintf(&out, "pressure %s\n%s\n", what, l)
		}
	}
	fmt.Fprintf(&out, "file system %s at %s, %v\n", b.Report.Facts.Mount.Type, b.Report.Facts.Mount.Point,
		b.Report.Facts.Mount.Options)
	return out.Bytes(), nil
}
