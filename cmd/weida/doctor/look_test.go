package doctor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weida/broker/endpoint"
	"weida/fsync"
	"weida/wal"
)

func TestParseMount(t *testing.T) {
	const text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n" +
		"36 22 8:1 /vol /mnt/my\\040disk rw,noatime master:1 - xfs /dev/sda1 rw,attr2,nobarrier\n"
	m, found := parseMount(text, 36)
	if !found || m.Root != "/vol" || m.Point != "/mnt/my disk" || m.Type != "xfs" || m.Source != "/dev/sda1" ||
		!slices.Equal(m.Options, []string{"rw", "noatime", "attr2", "nobarrier"}) {
		t.Errorf("%+v, %v", m, found)
	}
	if m, found = parseMount(text, 3); found {
		t.Errorf("there is no mount 3: %+v", m)
	}
}

func TestParseLimit(t *testing.T) {
	const text = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             96000                96000                processes \n" +
		"Max open files            1024                 524288               files     \n"
	if n, err := parseLimit(text); n != 524288 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := parseLimit(strings.ReplaceAll(text, "524288", "unlimited")); n < 1<<20 || err != nil {
		t.Errorf("unlimited: %d, %v", n, err)
	}
	if n, err := parseLimit("nothing"); err == nil {
		t.Errorf("nothing: %d", n)
	}
}

// TestGroupLimit: the smallest limit on the way up counts, in either version of control groups.
func TestGroupLimit(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("a/memory.max", "2147483648")
	put("a/b/memory.max", "max")
	put("memory/x/memory.limit_in_bytes", "1073741824")
	put("memory/memory.limit_in_bytes", "9223372036854771712")
	for text, want := range map[string]uint64{
		"0::/a/b\n": 2 << 30, "0::/\n": 0, "0::/c\n": 0, "4:memory:/x/y\n": 1 << 30, "4:memory:/\n": 0,
		"3:cpu:/x\n4:memory:/x\n0::/a\n": 1 << 30, "nonsense": 0, "": 0,
	} {
		if got := groupLimit(root, text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestDevices walks a made sysfs: a logical volume on a partition of a drive that says what the kernel does not.
func TestDevices(t *testing.T) {
	sys := t.TempDir()
	put := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(sys, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sys, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, from string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(sys, from)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(sys, to), filepath.Join(sys, from)); err != nil {
			t.Fatal(err)
		}
	}
	put("block/sda/queue/write_cache", "write through")
	put("block/sda/queue/rotational", "1")
	put("block/sda/device/model", "ST2000")
	put("block/sda/device/scsi_disk/0:0:0:0/cache_type", "write back")
	put("block/sda/sda1/partition", "1")
	put("block/sda/sda1/dev", "8:1")
	put("block/dm-0/queue/write_cache", "write back")
	link("block/sda/sda1", "block/dm-0/slaves/sda1")
	link("block/sda/sda1", "dev/block/8:1")
	link("block/dm-0", "dev/block/253:0")
	list, err := leaves(sys, "253:0", 0)
	want := Device{
		Name: "sda", Cache: "write through", DriveCache: "write back", Rotational: true, Model: "ST2000",
	}
	if err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("%+v, %v", list, err)
	}
	if c := writeCache(&Devices{List: list}); c.Verdict != Fail {
		t.Errorf("%+v", c)
	}
	if _, err := leaves(sys, "9:9", 0); err == nil {
		t.Error("a device that is not there was found")
	}
	for name, want := range map[string]Device{
		"vda": {Virtual: true}, "loop3": {Virtual: true}, "zram0": {Memory: true}, "ram1": {Memory: true},
		"pmem0": {Persistent: true}, "nvme0n1": {}, "sdb": {},
	} {
		want.Name = name
		if got := device(filepath.Join(sys, "block", name)); got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestBuckets(t *testing.T) {
	us := time.Microsecond
	got := buckets([]time.Duration{300, 9 * us, 10 * us, 17 * us, 70 * us})
	want := []Bucket{{1, 2, 1}, {2, 4, 0}, {4, 8, 0}, {8, 16, 2}, {16, 32, 1}, {32, 64, 0}, {64, 128, 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := buckets([]time.Duration{100 * us}); !slices.Equal(got, []Bucket{{64, 128, 1}}) {
		t.Errorf("%v", got)
	}
	if got := buckets(nil); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

// TestGatherHere looks at the machine that it runs on: a directory that is not there yet, its flushes measured, nothing
// left behind.
func TestGatherHere(t *testing.T) {
	parent := t.TempDir()
	told := 0
	f := Gather(context.Background(), Target{
		Data: filepath.Join(parent, "new"), Config: "", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
	}, func(string) { told++ })
	for what, why := range map[string]string{
		"mount": f.Mount.Why, "space": f.Space.Why, "allocate": f.Allocate.Why, "flush": f.Flush.Why, "files": f.Files.Why,
		"memory": f.Memory.Why, "udp": f.UDP.Why, "access": f.Access.Why, "store": f.Store.Why, "key": f.Key.Why,
		"running": f.Running.Why, "kernel": f.Kernel.Bad,
	} {
		if why != "" {
			t.Errorf("%s: %s", what, why)
		}
	}
	if f.Flush.P50 <= 0 || f.Flush.P99 < f.Flush.P50 || f.Flush.Max < f.Flush.P99 || f.Flush.Writes == 0 || told < 2 {
		t.Errorf("%+v, told %d times", f.Flush, told)
	}
	sum := 0
	for _, b := range f.Flush.Bars {
		sum += b.Count
	}
	if sum != f.Flush.Writes {
		t.Errorf("%d flushes in the bars, %d made", sum, f.Flush.Writes)
	}
	if f.Space.FreeBytes == 0 || f.Memory.Machine == 0 || f.Files.Max == 0 || f.UDP.Read == 0 || f.Mount.Type == "" {
		t.Errorf("%+v", f)
	}
	if !f.Store.Absent || !f.Key.Absent || f.Running.Held || len(f.Ports) != 2 || f.Ports[0].Bad+f.Ports[1].Bad != "" {
		t.Errorf("%+v", f)
	}
	if list, err := os.ReadDir(parent); err != nil || len(list) != 0 {
		t.Errorf("%v is left, %v", list, err)
	}
}

// TestTmpfs: a file system in memory is found out, by its name and by its flushes.
func TestTmpfs(t *testing.T) {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("there is no tmpfs at /dev/shm")
	}
	if err := unix.Access("/dev/shm", unix.W_OK); err != nil {
		t.Skip("nothing can be written to /dev/shm: ", err)
	}
	t.Setenv("TMPDIR", "/dev/shm")
	dir := t.TempDir()
	verdicts := make(map[string]Verdict)
	for _, c := range Judge(Gather(context.Background(), Target{Data: filepath.Join(dir, "n1")}, nil)) {
		verdicts[c.Name] = c.Verdict
	}
	if verdicts["file system"] != Fail || verdicts["write cache"] != Skipped {
		t.Errorf("%v", verdicts)
	}
}

// TestStoreThere: a data directory with its lock held is left alone; without, it is measured beside it.
func TestStoreThere(t *testing.T) {
	parent := t.TempDir()
	data := filepath.Join(parent, "n1")
	if err := wal.InitStore(fsync.OS(), data, nil); err != nil {
		t.Fatal(err)
	}
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), data, "node")
	if err != nil {
		t.Fatal(err)
	}
	f := Gather(context.Background(), Target{Data: data}, nil)
	if f.Store.Bad != "" || f.Store.Absent || len(f.Store.Disk) != 32 || f.Key.Fingerprint != id.Fingerprint().String() ||
		f.Access.Mode != 0o700 || f.Access.KeyMode != 0o600 || f.Flush.Writes == 0 {
		t.Errorf("%+v", f)
	}
	if probeDir(data, f.Mount.Looked) != filepath.Dir(f.Mount.Looked) {
		t.Errorf("the probe goes to %s", probeDir(data, f.Mount.Looked))
	}
	lock, err := fsync.OS().Lock(filepath.Join(data, "LOCK"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }() // the test is over
	before := names(t, parent)
	f = Gather(context.Background(), Target{Data: data, Listen: "127.0.0.1:0"}, nil)
	if !f.Running.Held || f.Flush.Why == "" || f.Allocate.Why == "" || f.Flush.Writes != 0 || f.Ports[0].Why == "" {
		t.Errorf("it was not left alone: %+v", f)
	}
	if after := names(t, parent); !slices.Equal(before, after) {
		t.Errorf("%v became %v", before, after)
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		list = append(list, path+info.ModTime().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestKeys: a key that is damaged, and a certificate of another key, are told; neither is made or changed.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	if k := lookKey(dir); !k.Absent {
		t.Errorf("%+v", k)
	}
	if _, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "node"); err != nil {
		t.Fatal(err)
	}
	if k := lookKey(dir); k.Bad != "" || k.NotAfter.IsZero() {
		t.Errorf("%+v", k)
	}
	crt := filepath.Join(dir, "node.crt")
	if err := os.Remove(crt); err != nil {
		t.Fatal(err)
	}
	if k := lookKey(dir); k.Bad != "" || !k.NotAfter.IsZero() || k.Fingerprint == "" {
		t.Errorf("%+v", k)
	}
	if _, err := os.Lstat(crt); err == nil {
		t.Error("the look made a certificate")
	}
	if _, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "other"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "other.crt"), crt); err != nil {
		t.Fatal(err)
	}
	if k := lookKey(dir); !strings.Contains(k.Bad, "another key") {
		t.Errorf("%+v", k)
	}
	if err := os.WriteFile(filepath.Join(dir, "node.key"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k := lookKey(dir); !strings.Contains(k.Bad, "no PEM") {
		t.Errorf("%+v", k)
	}
}

// TestForeignDirectory: what is no store, and what another version wrote, are two things.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if s := lookStore(dir); !s.Absent {
		t.Errorf("an empty one: %+v", s)
	}
	if err := os.WriteFile(filepath.Join(dir, "photo.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s := lookStore(dir); !s.Foreign || s.Absent {
		t.Errorf("%+v", s)
	}
}

// TestPorts: one that is taken and one that is no address of this machine.
func TestPorts(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // nothing was sent
	list := lookPorts(&Target{Listen: c.LocalAddr().String(), Admin: "192.0.2.1:7444"}, "")
	if a, b := port(&list[0]), port(&list[1]); a.Verdict != Fail || !strings.Contains(a.Found, "in use") ||
		b.Verdict != Fail || !strings.Contains(b.Found, "no address of this machine") {
		t.Errorf("%+v\n%+v", a, b)
	}
}
