package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lookDevices follows the file system down to the devices that keep its bytes. sys is where sysfs is mounted.
func lookDevices(sys string, m *Mount) Devices {
	if m.Why != "" {
		return Devices{Why: m.Why}
	}
	var st unix.Stat_t
	if err := unix.Stat(m.Looked, &st); err != nil {
		return Devices{Why: fmt.Sprintf("stat %s: %v", m.Looked, err)}
	}
	number := st.Dev
	// Of a file system that spans devices the first one stands for all.
	if unix.Major(number) == 0 && strings.HasPrefix(m.Source, "/dev/") {
		if err := unix.Stat(m.Source, &st); err == nil {
			number = st.Rdev
		}
	}
	if unix.Major(number) == 0 {
		return Devices{Why: fmt.Sprintf("%s has no block device below it", m.Type)}
	}
	list, err := leaves(sys, fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number)), 0)
	if err != nil {
		return Devices{Why: err.Error()}
	}
	return Devices{List: list}
}

// stackMax bounds how many devices lie one upon another.
const stackMax = 16

// leaves are the devices below the one with a number, or that one.
func leaves(sys, number string, depth int) ([]Device, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, "dev", "block", number))
	if err != nil {
		return nil, fmt.Errorf("the device %s is not to be seen from here: %w", number, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	below, _ := os.ReadDir(filepath.Join(dir, "slaves")) // none: it is a leaf
	if len(below) == 0 || depth == stackMax {
		return []Device{device(dir)}, nil
	}
	var all []Device
	for _, e := range below {
		n := line(filepath.Join(dir, "slaves", e.Name(), "dev"))
		list, err := leaves(sys, n, depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// What the names of devices, and the names that drives give themselves, say of them.
var (
	virtualNames  = []string{"vd", "xvd", "nbd", "loop", "rbd", "drbd", "sbd"}
	memoryNames   = []string{"ram", "zram"}
	virtualModels = []string{
		"qemu", "virtual", "vmware", "elastic block store", "persistentdisk", "msft", "vbox",
	}
)

func device(dir string) Device {
	name := filepath.Base(dir)
	d := Device{
		Name: name, Cache: line(filepath.Join(dir, "queue", "write_cache")),
		Rotational: line(filepath.Join(dir, "queue", "rotational")) == "1",
		Model:      line(filepath.Join(dir, "device", "model")),
		Persistent: strings.HasPrefix(name, "pmem"), Memory: startsWith(name, memoryNames),
		Virtual: startsWith(name, virtualNames),
	}
	for _, word := range virtualModels {
		d.Virtual = d.Virtual || strings.Contains(strings.ToLower(d.Model), word)
	}
	types, _ := filepath.Glob(filepath.Join(dir, "device", "scsi_disk", "*", "cache_type")) // a constant pattern
	if len(types) > 0 {
		d.DriveCache = line(types[0])
	}
	return d
}

func startsWith(name string, list []string) bool {
	for _, p := range list {
		if rest, ok := strings.CutPrefix(name, p); ok && rest != "" {
			return true
		}
	}
	return false
}

// line is the text of a file of one line, "" if it cannot be read.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
