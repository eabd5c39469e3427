package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asked skips a test that needs the machine unless it is asked for.
func asked(t *testing.T) {
	t.Helper()
	if os.Getenv("WEIDA_MACHINE") == "" {
		t.Skip("needs root and loop devices; run it with .ci/run machine")
	}
}

// command runs one or fails the test.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// image makes a file system of some MiB in a file.
func image(t *testing.T, kind string, mib int64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), kind+".img")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(mib << 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	switch kind {
	case "ext4":
		command(t, "mkfs.ext4", "-q", "-F", name)
	case "xfs":
		command(t, "mkfs.xfs", "-q", "-f", name)
	default:
		t.Fatalf("no file system %s", kind)
	}
	return name
}

// mount mounts an image until the test ends, with options besides loop.
func mount(t *testing.T, image string, options ...string) string {
	t.Helper()
	dir := t.TempDir()
	command(t, "mount", "-o", strings.Join(append(options, "loop"), ","), image, dir)
	t.Cleanup(func() { command(t, "umount", dir) })
	return dir
}
