package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMachineMounts looks at file systems that it makes and mounts as nobody should. It needs root and loop devices,
// and runs in the step `.ci/run machine`, which sets WEIDA_MACHINE.
func TestMachineMounts(t *testing.T) {
	if os.Getenv("WEIDA_MACHINE") == "" {
		t.Skip("needs root and loop devices; run it with .ci/run machine")
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	image := filepath.Join(t.TempDir(), "ext4.img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	run("mkfs.ext4", "-q", "-F", "-N", "64", image)
	for _, c := range []struct {
		name string
		args []string
		want map[string]Verdict
		left string // why nothing was measured, "" if it was
	}{
		{"own", []string{"-o", "loop", image}, map[string]Verdict{
			"file system": OK, "mount options": OK, "own file system": OK, "write cache": OK, "preallocation": OK,
			"space": Fail, "inodes": Fail,
		}, ""},
		{"nobarrier", []string{"-o", "loop,nobarrier", image}, map[string]Verdict{
			"file system": OK, "mount options": Fail,
		}, ""},
		{"read-only", []string{"-o", "loop,ro", image}, map[string]Verdict{
			"mount options": Fail, "preallocation": Skipped, "flush speed": Skipped,
		}, "nothing can be written there"},
		{"memory", []string{"-t", "tmpfs", "-o", "size=16m", "weida"}, map[string]Verdict{
			"file system": Fail, "write cache": Skipped, "flush honesty": Fail, "space": Fail,
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			run("mount", append(c.args, dir)...)
			t.Cleanup(func() { run("umount", dir) })
			f := Gather(context.Background(), Target{Data: dir}, nil)
			got := make(map[string]Check)
			for _, one := range Judge(f) {
				got[one.Name] = one
			}
			for name, want := range c.want {
				if got[name].Verdict != want {
					t.Errorf("%s: %+v, want %s", name, got[name], want)
				}
			}
			if f.Mount.Point != dir || (f.Flush.Why == "") != (c.left == "") {
				t.Errorf("%+v\n%+v", f.Mount, f.Flush)
			}
			if list, err := os.ReadDir(dir); err != nil || len(list) > 1 { // lost+found
				t.Errorf("%v is left, %v", list, err)
			}
		})
	}
}
