package doctor

import (
	"strings"
	"testing"
	"time"

	"weida/broker/admin"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// sound are the facts of a machine on which nothing is to be done.
func sound() *Facts {
	build := admin.Version{Version: "v1", Commit: "c0ffee", StoreFormat: 1}
	return &Facts{
		Data: "/var/lib/weida", Config: "n1.yaml", Node: "n1", At: noon,
		Kernel: Kernel{Release: "6.18.0"},
		Mount: Mount{
			Looked: "/var/lib/weida", Point: "/var/lib/weida", Root: "/", Type: "xfs", Source: "/dev/nvme0n1",
			Options: []string{"rw"},
		},
		Devices:  Devices{List: []Device{{Name: "nvme0n1", Cache: "write through"}}},
		Space:    Space{Bytes: 100 << 30, FreeBytes: 90 << 30, Inodes: 1e6, FreeInodes: 1e6},
		Allocate: Allocate{Kept: true},
		Flush:    Flush{Writes: 300, P50: 40, P99: 200, Max: 900, Bars: []Bucket{{32, 64, 300}}},
		Files:    Files{Max: 65536}, Memory: Memory{Machine: 8 << 30},
		UDP:    UDP{Read: 7 << 20, Write: 7 << 20, Wanted: 7 << 20},
		Clock:  Clock{Synced: true, MaxError: time.Millisecond, Watched: time.Second},
		Access: Access{There: true, Me: 990, Owner: 990, Mode: 0o700, KeyMode: 0o600, FileMode: 0o644, NodeUser: -1},
		Store:  Store{Disk: "d1", Clean: true, Groups: 3, Format: 1},
		Builds: Builds{Mine: build, Node: &build, Peers: []PeerBuild{{"n2", build}}},
		Key:    Key{Fingerprint: "sha256:a", NotBefore: noon.AddDate(-1, 0, 0), NotAfter: noon.AddDate(50, 0, 0)},
		Seeds: Seeds{
			Name: "n1", Listen: "0.0.0.0:7443",
			List: []Seed{{"n1", "10.0.0.1:7443", "sha256:a"}, {"n2", "10.0.0.2:7443", "sha256:b"}, {"n3", "c:1", "sha256:c"}},
		},
		Ports: []Port{{Network: "udp", Address: "0.0.0.0:7443"}, {Network: "tcp", Address: "127.0.0.1:7444"}},
		Peers: []Peer{{
			Seed: Seed{"n2", "10.0.0.2:7443", "sha256:b"}, Answered: true, Proved: "sha256:b", Took: time.Millisecond,
			Resolved: []string{"10.0.0.2"},
		}},
	}
}

func TestNothingToDo(t *testing.T) {
	for _, c := range Judge(sound()) {
		if c.Verdict != OK || c.Do != "" || c.Found == "" {
			t.Errorf("%+v", c)
		}
	}
	if r := NewReport(sound()); r.Worst != OK || r.Counts[OK] != len(r.Checks) {
		t.Errorf("%v, %v", r.Worst, r.Counts)
	}
}

// badRow is one thing that is wrong with a sound machine, and what is said about it.
type badRow struct {
	check  string
	change func(*Facts)
	want   Verdict
	found  string // part of it
}

var badDisks = []badRow{
	{"file system", func(f *Facts) { f.Mount.Type = "tmpfs" }, Fail, "in memory"},
	{"file system", func(f *Facts) { f.Mount.Type = "overlay" }, Fail, "layer"},
	{"file system", func(f *Facts) { f.Mount.Type = "nfs4" }, Fail, "another machine"},
	{"file system", func(f *Facts) { f.Mount.Type = "fuse.sshfs" }, Fail, "another machine"},
	{"file system", func(f *Facts) { f.Mount.Type = "btrfs" }, Warn, "copies on every write"},
	{"file system", func(f *Facts) { f.Mount.Type = "zfs" }, Warn, "not tested"},
	{"file system", func(f *Facts) { f.Mount.Why = "no" }, Skipped, "no"},
	{"mount options", func(f *Facts) { f.Mount.Options = []string{"rw", "nobarrier"} }, Fail, "not passed on"},
	{"mount options", func(f *Facts) { f.Mount.Options = []string{"rw", "barrier=0"} }, Fail, "lost with the power"},
	{"mount options", func(f *Facts) { f.Mount.Options = []string{"volatile"} }, Fail, "on purpose"},
	{"mount options", func(f *Facts) { f.Mount.Options = []string{"ro"} }, Fail, "read-only"},
	{"mount options", func(f *Facts) { f.Mount.Options = []string{"rw", "sync"} }, Warn, "every write waits"},
	{"mount options", func(f *Facts) { f.Mount.Why = "no" }, Skipped, "no"},
	{"own file system", func(f *Facts) { f.Mount.Point = "/" }, Warn, "the system"},
	{"own file system", func(f *Facts) { f.Mount.Others = 3 }, Warn, "3 other names"},
	{"own file system", func(f *Facts) { f.Mount.Root = "/volumes/x" }, Warn, "part of a file system"},
	{"own file system", func(f *Facts) { f.Mount.Why = "no" }, Skipped, "no"},
	{"write cache", func(f *Facts) { f.Devices.List[0].Memory = true }, Fail, "gone with the power"},
	{"write cache", func(f *Facts) { f.Devices.List[0].DriveCache = "write back, no read (daft)" }, Fail, "never reach " +
		"it"},
	{"write cache", func(f *Facts) { f.Devices.Why = "no" }, Skipped, "no"},
	{"flush honesty", func(f *Facts) { f.Flush.P50 = 2 }, Fail, "may be a lie"},
	{"flush honesty", func(f *Facts) { f.Devices.List[0].Cache = "write back" }, Warn, "takes longer to program"},
	{"flush honesty", func(f *Facts) { f.Devices.List[0].Rotational = true }, Warn, "turns"},
	{"flush honesty", func(f *Facts) { f.Devices.List[0].Virtual, f.Flush.P50 = true, 12 }, Warn, "host"},
	{"flush honesty", func(f *Facts) { f.Devices.Why, f.Devices.List, f.Flush.P50 = "no", nil, 1 }, Fail, "no device"},
	{"flush honesty", func(f *Facts) { f.Flush.Why = "no" }, Skipped, "no"},
	{"flush speed", func(f *Facts) { f.Flush.P50 = 40e3 }, Warn, "slow"},
	{"flush speed", func(f *Facts) { f.Flush.P99 = 200e3 }, Warn, "slow"},
	{"flush speed", func(f *Facts) { f.Flush.Max = 26e6 }, Fail, "counts as failed"},
	{"flush speed", func(f *Facts) { f.Flush.Why = "no" }, Skipped, "no"},
	{"preallocation", func(f *Facts) { f.Allocate.Kept = false }, Warn, "keeps no room"},
	{"preallocation", func(f *Facts) { f.Allocate.Why = "no" }, Skipped, "no"},
	{"space", func(f *Facts) { f.Space.FreeBytes = 200 << 20 }, Fail, "the least"},
	{"space", func(f *Facts) { f.Space.FreeBytes = 900 << 20 }, Warn, "one message of 1.0 GiB"},
	{"space", func(f *Facts) { f.Space.FreeBytes, f.Space.MessageMax = 9<<30, 20<<30 }, Warn, "20.0 GiB"},
	{"space", func(f *Facts) { f.Space.FreeBytes, f.Space.GroupsThere = 9<<30, 1000 }, Warn, "segment for each"},
	{"space", func(f *Facts) { f.Space.FreeBytes = 9 << 30 }, Warn, "less than a tenth"},
	{"space", func(f *Facts) { f.Space.Why = "no" }, Skipped, "no"},
	{"inodes", func(f *Facts) { f.Space.FreeInodes = 100 }, Fail, "12 queues"},
	{"inodes", func(f *Facts) { f.Space.FreeInodes = 8000 }, Warn, "1000 queues"},
	{"inodes", func(f *Facts) { f.Space.Why = "no" }, Skipped, "no"},
}

var badMachines = []badRow{
	{"kernel", func(f *Facts) { f.Kernel = Kernel{"4.18.0", "too old"} }, Fail, "4.18.0"},
	{"open files", func(f *Facts) { f.Files.Max = 256 }, Fail, "0 queues"},
	{"open files", func(f *Facts) { f.Files.Max = 4096 }, Warn, "960 queues"},
	{"open files", func(f *Facts) { f.Files = Files{Max: 2048, OfNode: true} }, Warn, "the node that runs"},
	{"open files", func(f *Facts) { f.Files.Why = "no" }, Skipped, "no"},
	{"memory", func(f *Facts) { f.Memory.Limit = 128 << 20 }, Fail, "limit of the control group"},
	{"memory", func(f *Facts) { f.Memory.Limit = 512 << 20 }, Warn, "512.0 MiB"},
	{"memory", func(f *Facts) { f.Memory.Machine = 200 << 20 }, Fail, "whole machine"},
	{"memory", func(f *Facts) { f.Memory.Why = "no" }, Skipped, "no"},
	{"UDP buffers", func(f *Facts) { f.UDP.Read = 208 << 10 }, Warn, "208.0 KiB to read"},
	{"UDP buffers", func(f *Facts) { f.UDP.Write = 208 << 10 }, Warn, "lost under load"},
	{"UDP buffers", func(f *Facts) { f.UDP.Why = "no" }, Skipped, "no"},
	{"clock", func(f *Facts) { f.Clock.Synced = false }, Warn, "nobody keeps"},
	{"clock", func(f *Facts) { f.Clock.Why = "no" }, Skipped, "no"},
	{"clock jumps", func(f *Facts) { f.Clock.Jump = -time.Second }, Warn, "jumped by"},
	{"clock jumps", func(f *Facts) { f.Clock.Why = "no" }, Skipped, "no"},
}

var badNodes = []badRow{
	{"node", func(f *Facts) { f.Running.Why = "permission denied" }, Warn, "nothing was written"},
	{"node", func(f *Facts) {
		f.Running = Running{Held: true, PID: 7}
		f.Builds.Ready = []admin.Problem{{Object: "queue q", What: "no leader", Remedy: "start n2"}}
	}, Warn, "process 7, and tells of 1 problems"},
	{"owner", func(f *Facts) { f.Access.Foreign, f.Access.Example = 2, "x/1.seg" }, Fail, "2 files"},
	{"owner", func(f *Facts) { f.Access.NodeUser = 12 }, Fail, "runs as user 12"},
	{"owner", func(f *Facts) { f.Access.Me = 1000 }, Warn, "this is user 1000"},
	{"owner", func(f *Facts) { f.Access.There = false }, Skipped, "no data directory yet"},
	{"owner", func(f *Facts) { f.Access.Why = "no" }, Skipped, "no"},
	{"permissions", func(f *Facts) { f.Access.KeyMode = 0o644 }, Fail, "read the private key"},
	{"permissions", func(f *Facts) { f.Access.FileMode = 0o666 }, Fail, "whom the node trusts"},
	{"permissions", func(f *Facts) { f.Access.Mode = 0o777 }, Fail, "write to the data directory"},
	{"permissions", func(f *Facts) { f.Access.Mode = 0o755 }, Warn, "not encrypted"},
	{"permissions", func(f *Facts) { f.Access.There = false }, Skipped, "no data directory yet"},
	{"permissions", func(f *Facts) { f.Access.Why = "no" }, Skipped, "no"},
	{"store", func(f *Facts) { f.Store.Bad, f.Store.Foreign = "not a weida data directory", true }, Fail, "not a weida"},
	{"store", func(f *Facts) { f.Store.Bad, f.Store.Version = "format 9", true }, Fail, "format 9"},
	{"store", func(f *Facts) { f.Store.Bad = "corrupt" }, Fail, "corrupt"},
	{"store", func(f *Facts) { f.Store.Left = 2 }, Warn, "2 names"},
	{"store", func(f *Facts) { f.Store.Why = "no" }, Skipped, "no"},
	{"version", func(f *Facts) { f.Builds.Node = &admin.Version{Version: "v0", StoreFormat: 1} }, Warn, "is v0"},
	{"version", func(f *Facts) { f.Builds.Node = &admin.Version{Version: "v9", StoreFormat: 2} }, Fail, "format 2"},
	{"versions of peers", func(f *Facts) { f.Builds.Peers[0].Version.Commit = "old" }, Warn, "n2 is v1, commit old"},
	{"versions of peers", func(f *Facts) { f.Builds.Peers = nil }, Skipped, "their own machine only"},
	{"key", func(f *Facts) { f.Key.Bad = "torn" }, Fail, "torn"},
	{"key", func(f *Facts) { f.Key.NotAfter = noon.AddDate(0, 0, -1) }, Warn, "not the dates"},
	{"key", func(f *Facts) { f.Key.NotBefore = noon.AddDate(0, 0, 1) }, Warn, "not the dates"},
	{"key", func(f *Facts) { f.Key.NotAfter = noon.AddDate(0, 0, 9) }, Warn, "ends on 2030-01-10"},
	{"key", func(f *Facts) { f.Key.Why = "no" }, Skipped, "no"},
	{"seeds", func(f *Facts) { f.Key.Fingerprint = "sha256:z" }, Fail, "not among the 3"},
	{"seeds", func(f *Facts) { f.Key = Key{Absent: true} }, Warn, "no key yet"},
	{"seeds", func(f *Facts) { f.Seeds.Name = "m1" }, Warn, `"m1" here and "n1"`},
	{"seeds", func(f *Facts) { f.Seeds.Listen = "0.0.0.0:7000" }, Warn, "port 7000"},
	{"seeds", func(f *Facts) { f.Seeds.Why = "no" }, Skipped, "no"},
	{"seeds", func(f *Facts) { f.Key.Bad = "torn" }, Skipped, "could not be read"},
	{"port udp", func(f *Facts) { f.Ports[0].Bad = "address already in use" }, Fail, "already in use"},
	{"port tcp", func(f *Facts) { f.Ports[1].Bad = "cannot assign requested address" }, Fail, "no address of this " +
		"machine"},
	{"port tcp", func(f *Facts) { f.Ports[1].Why = "no" }, Skipped, "no"},
	{"peer n2", func(f *Facts) { f.Peers[0].NoName = "no such host" }, Fail, "leads nowhere"},
	{"peer n2", func(f *Facts) { f.Peers[0].Proved = "sha256:x" }, Fail, "another node"},
	{"peer n2", func(f *Facts) { f.Peers[0].Away, f.Peers[0].Proved = true, "" }, Fail, "turned this node's key away"},
	{"peer n2", func(f *Facts) { f.Peers[0].Answered, f.Peers[0].Proved = false, "" }, Warn, "not started yet"},
	{"peer n2", func(f *Facts) {
		f.Peers[0].Answered, f.Peers[0].Proved, f.Running.Held = false, "", true
	}, Fail, "does not answer"},
	{"peer c:1", func(f *Facts) { f.Peers[0] = Peer{Seed: Seed{Address: "c:1"}, Bad: "timeout"} }, Fail, "timeout"},
	{"peer n2", func(f *Facts) { f.Peers[0].Took = time.Second }, Warn, "in 1.0 s"},
	{"peer n2", func(f *Facts) { f.Peers[0].Why = "no" }, Skipped, "no"},
}

// TestBadMachines: each thing that is wrong is told by its own check, with what to do, and alone decides the verdict.
func TestBadMachines(t *testing.T) {
	seen := make(map[string]bool)
	for _, rows := range [][]badRow{badDisks, badMachines, badNodes} {
		for _, row := range rows {
			seen[row.check] = true
			f := sound()
			row.change(f)
			found := false
			for _, c := range Judge(f) {
				if c.Name != row.check {
					continue
				}
				found = true
				if c.Verdict != row.want || !strings.Contains(c.Found, row.found) {
					t.Errorf("%s: got %q, %q; want %q, %q", row.check, c.Verdict, c.Found, row.want, row.found)
				}
				if told := c.Do != ""; told != (c.Verdict == Fail || c.Verdict == Warn) {
					t.Errorf("%s: %s, and to do %q", row.check, c.Verdict, c.Do)
				}
			}
			if !found {
				t.Errorf("there is no check %q", row.check)
			}
		}
	}
	for _, c := range Judge(sound()) {
		if !seen[c.Name] {
			t.Errorf("nothing bad is tried on the check %q", c.Name)
		}
	}
}

// TestSoundInItsWay: what looks odd and is right is not complained about.
func TestSoundInItsWay(t *testing.T) {
	for name, row := range map[string]badRow{
		"a node that has no key": {"key", func(f *Facts) { f.Key = Key{Absent: true} }, OK, "first start"},
		"no certificate":         {"key", func(f *Facts) { f.Key.NotAfter = time.Time{} }, OK, "made again"},
		"a cluster of one":       {"seeds", func(f *Facts) { f.Seeds.List = nil }, OK, "this node alone"},
		"a node that joins": {"seeds", func(f *Facts) {
			f.Seeds.Number, f.Key.Fingerprint = 9, "sha256:z"
		}, OK, "joins later"},
		"a new directory":  {"store", func(f *Facts) { f.Store = Store{Absent: true, Format: 1} }, OK, "none yet"},
		"root looks":       {"owner", func(f *Facts) { f.Access.Me = 0 }, OK, "user 990"},
		"a node runs":      {"node", func(f *Facts) { f.Running.Held = true }, OK, "left alone"},
		"inodes on demand": {"inodes", func(f *Facts) { f.Space.Inodes, f.Space.FreeInodes = 0, 0 }, OK, "needed"},
		"a volatile cache": {"write cache", func(f *Facts) { f.Devices.List[0].Cache = "write back" }, OK, "kernel flushes"},
		"persistent memory": {"flush " +
			"honesty", func(f *Facts) { f.Flush.P50, f.Devices.List[0].Persistent = 2, true }, OK, "p50"},
		"a mirror, one disk of it fast": {"flush honesty", func(f *Facts) {
			f.Devices.List = append(f.Devices.List, Device{Name: "sda", Rotational: true})
		}, OK, "p50"},
		"an address without a key": {"peer c:1", func(f *Facts) {
			f.Peers[0] = Peer{Seed: Seed{Address: "c:1"}, Answered: true, Proved: "sha256:q"}
		}, OK, "sha256:q"},
		"no key to show yet": {"peer n2", func(f *Facts) {
			f.Peers[0].Away, f.Peers[0].NotMine, f.Peers[0].Proved = true, true, ""
		}, OK, "when this node has a key"},
		"a listener on any port": {"seeds", func(f *Facts) { f.Seeds.Listen = "127.0.0.1:0" }, OK, "as n1"},
		"the node was not asked": {"version", func(f *Facts) { f.Builds.Node, f.Builds.Why = nil, "refused" }, OK, "refused"},
	} {
		f := sound()
		row.change(f)
		for _, c := range Judge(f) {
			if c.Name == row.check && (c.Verdict != row.want || !strings.Contains(c.Found, row.found)) {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}

// TestText: the worst stands first, a finding with what to do behind it, and no line is wider than asked for.
func TestText(t *testing.T) {
	f := sound()
	f.Mount.Type, f.Clock.Synced, f.UDP.Why = "tmpfs", false, "no"
	f.Flush.Bars = []Bucket{{32, 64, 1}, {64, 128, 0}, {128, 256, 299}}
	text := string(NewReport(f).Text(80))
	at := 0
	for _, part := range []string{
		"n1, data in /var/lib/weida", "fail     file system", "-> put the data directory on ext4 or xfs", "warn     clock",
		"skipped  UDP buffers", "ok       kernel", "300 writes of 4 KiB", "32 µs  to 64 µs   1 #\n",
		"128 µs to 256 µs 299 ########################################\n", "1 to look at, 1 failed, 1 skipped",
	} {
		i := strings.Index(text[at:], part)
		if i < 0 {
			t.Fatalf("%q does not come, or too early, in\n%s", part, text)
		}
		at += i
	}
	for l := range strings.Lines(text) {
		if n := len([]rune(l)); n > 81 {
			t.Errorf("a line of %d columns: %s", n, l)
		}
	}
}
