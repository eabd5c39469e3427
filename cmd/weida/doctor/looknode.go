package doctor

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"weida/broker/endpoint"
	"weida/fsync"
	"weida/segment"
	"weida/wal"
)

func lookRunning(data string) Running {
	held, err := fsync.Held(filepath.Join(data, "LOCK"))
	if err != nil {
		return Running{Why: err.Error()}
	}
	r := Running{Held: held}
	if pid, err := strconv.Atoi(line(filepath.Join(data, "pid"))); held && err == nil && pid > 0 {
		if _, err := os.Stat(procOf(pid, "stat")); err == nil {
			r.PID = pid
		}
	}
	return r
}

// ownedMax bounds the files whose owner is looked at.
const ownedMax = 20_000

var errOwned = errors.New("as many as are looked at")

func lookAccess(data, config string, pid int) Access {
	a := Access{Me: os.Geteuid(), NodeUser: -1}
	if config != "" {
		info, err := os.Stat(config)
		if err != nil {
			return Access{Why: err.Error()}
		}
		a.FileMode = uint32(info.Mode().Perm())
	}
	if info, err := os.Stat(procOf(pid, "stat")); err == nil && pid != 0 {
		a.NodeUser = ownerOf(info)
	}
	info, err := os.Stat(data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a
	case err != nil:
		return Access{Why: err.Error()}
	}
	a.There, a.Owner, a.Mode = true, ownerOf(info), uint32(info.Mode().Perm())
	if mode, err := fsync.Mode(filepath.Join(data, "node.key")); err == nil {
		a.KeyMode = uint32(mode.Perm())
	}
	seen := 0
	err = filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a node that runs makes and removes files
		}
		if err != nil {
			return err
		}
		if seen++; seen > ownedMax {
			return errOwned
		}
		if info, err := d.Info(); err == nil && ownerOf(info) != a.Owner && d.Name() != "lost+found" {
			if a.Foreign++; a.Foreign == 1 {
				a.Example = path
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errOwned) {
		return Access{Why: err.Error()}
	}
	return a
}

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// beforeStore are the names in a directory of which the store has not taken hold yet.
var beforeStore = []string{"lost+found", "LOCK", "node.key", "node.crt"}

func lookStore(data string) Store {
	s := Store{Format: segment.Version}
	list, err := os.ReadDir(data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Absent = true
		return s
	case err != nil:
		return Store{Why: err.Error()}
	}
	if !slices.ContainsFunc(list, func(e fs.DirEntry) bool { return !slices.Contains(beforeStore, e.Name()) }) {
		s.Absent = true
		return s
	}
	in, err := wal.InspectStore(fsync.OS(), data)
	var version *segment.VersionError
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Store{Why: err.Error()}
	case err != nil:
		s.Bad, s.Foreign, s.Version = err.Error(), errors.Is(err, wal.ErrNotStore), errors.As(err, &version)
	}
	s.Groups, s.Left = len(in.Groups), len(in.Left)
	if err == nil {
		s.Disk, s.Clean = fmt.Sprintf("%x", in.Identity.Disk), in.Identity.CleanStop
	}
	return s
}

const keyFileMax = 16 << 10

// lookKey reads the key pair without making either part, as the node would.
func lookKey(data string) Key {
	b, err := fsync.ReadFile(fsync.OS(), filepath.Join(data, "node.key"), keyFileMax)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Key{Absent: true}
	case errors.Is(err, fs.ErrPermission):
		return Key{Why: err.Error()}
	case err != nil:
		return Key{Bad: err.Error()}
	}
	secret, err := endpoint.ParseKey(b)
	if err != nil {
		return Key{Bad: "node.key: " + err.Error()}
	}
	public, err := x509.MarshalPKIXPublicKey(secret.Public())
	if err != nil {
		return Key{Bad: "node.key: " + err.Error()}
	}
	k := Key{Fingerprint: endpoint.Fingerprint(sha256.Sum256(public)).String()}
	b, err = fsync.ReadFile(fsync.OS(), filepath.Join(data, "node.crt"), keyFileMax)
	if errors.Is(err, fs.ErrNotExist) {
		return k
	}
	block, _ := pem.Decode(b)
	if err == nil && block == nil {
		err = errors.New("it holds no PEM block")
	}
	var leaf *x509.Certificate
	if err == nil {
		leaf, err = x509.ParseCertificate(block.Bytes)
	}
	if err == nil && !bytes.Equal(leaf.RawSubjectPublicKeyInfo, public) {
		err = errors.New("it is the certificate of another key")
	}
	if err != nil {
		k.Bad = "node.crt: " + err.Error() + "; node.key is sound: remove node.crt, and it is made again from it"
		return k
	}
	k.NotBefore, k.NotAfter = leaf.NotBefore, leaf.NotAfter
	return k
}

// lookPorts tries the node's addresses for a moment.
func lookPorts(t *Target, busy string) (list []Port) {
	if t.Listen != "" {
		p := Port{Network: "udp", Address: t.Listen, Why: busy}
		if busy == "" {
			if c, err := net.ListenPacket("udp", t.Listen); err != nil {
				p.Bad = err.Error()
			} else {
				_ = c.Close() // nothing was sent
			}
		}
		list = append(list, p)
	}
	if t.Admin != "" {
		p := Port{Network: "tcp", Address: t.Admin, Why: busy}
		if busy == "" {
			if l, err := net.Listen("tcp", t.Admin); err != nil {
				p.Bad = err.Error()
			} else {
				_ = l.Close() // nobody came
			}
		}
		list = append(list, p)
	}
	return list
}
