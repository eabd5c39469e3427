package doctor

import (
	"time"

	"weida/broker/admin"
)

// Target is what is looked at: a data directory, and what the node file says about the node on it.
type Target struct {
	Data string // the data directory, which may not be there yet
	// Config is the node file, "" if only the directory was named; then the fields below are empty.
	Config        string
	Name          string
	Listen, Admin string
	MessageMax    int64 // bytes; 1 GiB if zero
	Seeds         []Seed
	Number        uint64 // of a node that joins, which no seed has
	Peers         []string
	Version       admin.Version // of this binary
}

// Seed is another node as a node file names it. The fingerprint of one that was only named by its address is "".
type Seed struct {
	Name        string `json:"name"`
	Address     string `json:"address"`
	Fingerprint string `json:"fingerprint"`
}

// Facts are what was seen. A part that could not be looked at says in Why why not, and nothing else in it counts.
type Facts struct {
	Data     string    `json:"data"`
	Config   string    `json:"config"`
	Node     string    `json:"node"`
	At       time.Time `json:"at"`
	Running  Running   `json:"running"`
	Kernel   Kernel    `json:"kernel"`
	Mount    Mount     `json:"mount"`
	Devices  Devices   `json:"devices"`
	Space    Space     `json:"space"`
	Allocate Allocate  `json:"allocate"`
	Flush    Flush     `json:"flush"`
	Files    Files     `json:"files"`
	Memory   Memory    `json:"memory"`
	UDP      UDP       `json:"udp"`
	Clock    Clock     `json:"clock"`
	Access   Access    `json:"access"`
	Store    Store     `json:"store"`
	Builds   Builds    `json:"builds"`
	Key      Key       `json:"key"`
	Seeds    Seeds     `json:"seeds"`
	Ports    []Port    `json:"ports"`
	Peers    []Peer    `json:"peers"`
}

// Running says whether a node has the data directory open.
type Running struct {
	Why  string `json:"why"`
	Held bool   `json:"held"` // somebody holds its lock
	PID  int    `json:"pid"`  // of the node; 0 if it is not known, or not to be seen from here
}

// Kernel is the kernel, and why it does not do, "" if it does.
type Kernel struct {
	Release string `json:"release"`
	Bad     string `json:"bad"`
}

// Mount is the file system under the data directory, or under what is there of its path.
type Mount struct {
	Why     string   `json:"why"`
	Looked  string   `json:"looked"` // the directory that was looked at: the deepest one that is there
	Point   string   `json:"point"`
	Root    string   `json:"root"` // the part of the file system that is mounted there; / is all of it
	Type    string   `json:"type"`
	Source  string   `json:"source"`
	Options []string `json:"options"` // of the mount and of the file system
	Others  int      `json:"others"`  // names at the mount point that do not lead to the data directory
}

// Devices are what is under the file system, down to those that keep the bytes.
type Devices struct {
	Why  string   `json:"why"`
	List []Device `json:"list"`
}

// Device is one block device without another one below it.
type Device struct {
	Name       string `json:"name"`
	Cache      string `json:"cache"`      // as the kernel has it: "write back", "write through", "" if not known
	DriveCache string `json:"driveCache"` // as the drive itself says, of SCSI and SATA; "" if it is not known
	Rotational bool   `json:"rotational"`
	Virtual    bool   `json:"virtual"` // somebody else's storage: of a host, of a network, of a file
	Memory     bool   `json:"memory"`  // it is gone with the power
	Persistent bool   `json:"persistent"`
	Model      string `json:"model"`
}

// Space is what is free, for somebody without privileges.
type Space struct {
	Why         string `json:"why"`
	Bytes       uint64 `json:"bytes"`
	FreeBytes   uint64 `json:"freeBytes"`
	Inodes      uint64 `json:"inodes"` // 0: the file system makes them as they are needed
	FreeInodes  uint64 `json:"freeInodes"`
	MessageMax  uint64 `json:"messageMax"` // the largest message that the node takes, in bytes
	GroupsThere int    `json:"groupsThere"`
}

// Allocate says whether the file system keeps room that was asked for.
type Allocate struct {
	Why  string `json:"why"`
	Kept bool   `json:"kept"`
}

// Flush is what flushes were measured to take, in microseconds.
type Flush struct {
	Why    string   `json:"why"`
	Writes int      `json:"writes"`
	P50    float64  `json:"p50_us"`
	P99    float64  `json:"p99_us"`
	Max    float64  `json:"max_us"`
	Bars   []Bucket `json:"histogram"`
}

// Bucket counts the flushes that took from From until To, in microseconds.
type Bucket struct {
	From  float64 `json:"from_us"`
	To    float64 `json:"to_us"`
	Count int     `json:"count"`
}

// Files is how many files the node, or a process started from here, may have open.
type Files struct {
	Why    string `json:"why"`
	Max    uint64 `json:"max"`
	OfNode bool   `json:"ofNode"` // the limit is that of the node that runs
}

// Memory is what there is for the node, in bytes.
type Memory struct {
	Why     string `json:"why"`
	Machine uint64 `json:"machine"`
	Limit   uint64 `json:"limit"` // of its control group; 0 is none
}

// UDP is how large a socket's buffers can be made, in bytes.
type UDP struct {
	Why    string `json:"why"`
	Read   int    `json:"read"`
	Write  int    `json:"write"`
	Wanted int    `json:"wanted"`
}

// Clock is what the kernel says about its clock, and what was seen of it meanwhile.
type Clock struct {
	Why      string        `json:"why"`
	Synced   bool          `json:"kept"`
	MaxError time.Duration `json:"maxError_ns"`
	Watched  time.Duration `json:"watched_ns"`
	Jump     time.Duration `json:"jump_ns"` // of the wall clock against the monotonic one, while it was watched
}

// Access is who may do what with the node's files.
type Access struct {
	Why      string `json:"why"`
	There    bool   `json:"there"` // there is a data directory
	Me       int    `json:"me"`    // the user that looks
	Owner    int    `json:"owner"`
	Mode     uint32 `json:"mode"`
	KeyMode  uint32 `json:"keyMode"` // 0: there is no key
	FileMode uint32 `json:"fileMode"`
	Foreign  int    `json:"foreign"` // files in it of another owner than its own
	Example  string `json:"example"` // one of them
	NodeUser int    `json:"nodeUser"`
}

// Store is what the data directory says it is.
type Store struct {
	Why     string `json:"why"`
	Absent  bool   `json:"absent"` // there is nothing yet
	Bad     string `json:"bad"`    // what is wrong, "" if it is sound
	Foreign bool   `json:"foreign"`
	Version bool   `json:"version"` // what is wrong is that another version wrote it
	Disk    string `json:"disk"`
	Clean   bool   `json:"clean"`
	Groups  int    `json:"groups"`
	Left    int    `json:"left"` // names that are none of the store's
	Format  int    `json:"format"`
}

// Builds are the versions of this binary, of the node that runs, and of others that could be asked.
type Builds struct {
	Mine  admin.Version   `json:"mine"`
	Why   string          `json:"why"`  // the node was not asked
	Node  *admin.Version  `json:"node"` // nil: it runs not, or was not asked
	Peers []PeerBuild     `json:"peers"`
	Ready []admin.Problem `json:"problems"` // that the node itself tells of
}

// PeerBuild is the version of another node.
type PeerBuild struct {
	Name    string        `json:"name"`
	Version admin.Version `json:"version"`
}

// Key is the node's key pair.
type Key struct {
	Why         string    `json:"why"`
	Absent      bool      `json:"absent"`
	Bad         string    `json:"bad"`
	Fingerprint string    `json:"fingerprint"`
	NotBefore   time.Time `json:"notBefore"`
	NotAfter    time.Time `json:"notAfter"` // zero: there is no certificate yet
}

// Seeds is what the node file says about the cluster.
type Seeds struct {
	Why    string `json:"why"`
	List   []Seed `json:"list"`
	Number uint64 `json:"number"`
	Name   string `json:"name"`   // of this node, in its file
	Listen string `json:"listen"` // where this node listens
}

// Port is one of the node's addresses.
type Port struct {
	Network string `json:"network"` // udp or tcp
	Address string `json:"address"`
	Why     string `json:"why"` // it was not tried
	Bad     string `json:"bad"` // it cannot be listened on
}

// Peer is another node, as it could be reached from here.
type Peer struct {
	Seed
	Why      string        `json:"why"`
	Resolved []string      `json:"resolved"`
	NoName   string        `json:"noName"`   // why its name leads nowhere
	Answered bool          `json:"answered"` // somebody speaks QUIC and the protocol there
	Away     bool          `json:"away"`     // it turned this key away
	NotMine  bool          `json:"notMine"`  // this node has no key yet, so one made for the moment was shown
	Proved   string        `json:"proved"`   // the key that it proved
	Bad      string        `json:"bad"`      // why it could not be reached
	Took     time.Duration `json:"took_ns"`  // of the handshake
}
