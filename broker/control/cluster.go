package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Cluster is the control group as the registry has it: its members by node. It is no resource and has no
// name; Reached and Place name it by its kind.
type Cluster struct {
	// ID is derived from the fingerprints of the nodes that the cluster began with: 16 bytes as 32 hex digits, "" before
	// there is a node.
	ID       string    `json:"id"`
	Epoch    uint64    `json:"epoch"`
	Step     Step      `json:"step,omitempty"`
	Replicas []Replica `json:"replicas"`
}

const (
	// ControlVotersMax bounds the voters of the control group; the other nodes learn its log (T-27).
	ControlVotersMax = 5
	// GenesisIndex is the index at which a cluster's control log begins: everything below is the number of no
	// resource, so that the first nodes can have numbers from 1.
	GenesisIndex = 64
)

// Cluster returns a copy of what the registry says of the control group.
func (s *State) Cluster() Cluster {
	c := s.cluster
	c.Replicas = slices.Clone(c.Replicas)
	return c
}

// Seed is a node that a cluster begins with.
type Seed struct {
	Name        string
	Fingerprint string
	Address     string // host:port
	Admin       string // host:port, "" if there is none
}

// Found is the first entry of a cluster's control log: the nodes that it begins with.
type Found struct {
	Seeds []Seed // in order of their fingerprints
	At    int64  // milliseconds since 1970
}

// Birth is how a cluster begins: the same on every seed, whatever order they are listed in.
type Birth struct {
	ClusterID [16]byte
	// Members are the first members of the control group. Its genesis is at term 1 and GenesisIndex.
	Members []Replica
	seeds   []Seed
}

// Genesis is the beginning of a cluster of these nodes. One is fine, and three or more are; two are refused (T-37).
func Genesis(seeds []Seed) (Birth, error) {
	list := slices.Clone(seeds)
	slices.SortFunc(list, func(a, b Seed) int { return strings.Compare(a.Fingerprint, b.Fingerprint) })
	if why := seedsFlaw(list); why != "" {
		return Birth{}, fmt.Errorf("control: genesis: %s", why)
	}
	b := Birth{seeds: list}
	id, err := hex.DecodeString(clusterID(fingerprints(list)))
	if err != nil || copy(b.ClusterID[:], id) != len(b.ClusterID) {
		panic("bug: control: a cluster id that is not 16 bytes")
	}
	b.Members = firstMembers(list)
	return b, nil
}

// Command is the first entry of the log. Several may be proposed; the first counts.
func (b Birth) Command(at int64) Command {
	return Command{Found: &Found{Seeds: slices.Clone(b.seeds), At: at}}
}

// firstMembers gives the nodes, which are in order, their numbers and replicas.
func firstMembers(seeds []Seed) []Replica {
	voters := votersOf(len(seeds))
	var list []Replica
	for i, s := range seeds {
		n := uint64(i + 1)
		list = append(list, Replica{Replica: n, Number: n, Node: s.Fingerprint, Learner: i >= voters})
	}
	return list
}

// votersOf is how many of n nodes vote in the control group: an odd number, and never two.
func votersOf(n int) int {
	n = min(n, ControlVotersMax)
	return n - (n+1)%2
}

func fingerprints(seeds []Seed) []string {
	list := make([]string, len(seeds))
	for i, s := range seeds {
		list[i] = s.Fingerprint
	}
	return list
}

func clusterID(fingerprints []string) string {
	sum := sha256.Sum256([]byte("weida cluster\n" + strings.Join(fingerprints, "\n")))
	return hex.EncodeToString(sum[:16])
}

// seedsFlaw is why a cluster cannot begin with these nodes, "" if it can.
func seedsFlaw(list []Seed) string {
	switch {
	case len(list) == 0:
		return "a cluster begins with one node at least"
	case len(list) == 2:
		return "a cluster of two nodes tolerates no failure: begin with one, or with three or more"
	case len(list) > NodesMax:
		return fmt.Sprintf("a cluster has at most %d nodes", NodesMax)
	}
	names := make(map[string]bool, len(list))
	for i, s := range list {
		name := seedName(i, s)
		switch {
		case flaw(s.Fingerprint, 1, memberMax) != "":
			return "a seed's fingerprint " + flaw(s.Fingerprint, 1, memberMax)
		case i > 0 && list[i-1].Fingerprint == s.Fingerprint:
			return fmt.Sprintf("the key %s is named twice: a key is one node", s.Fingerprint)
		case flaw(name, 1, memberMax) != "":
			return "a seed's name " + flaw(name, 1, memberMax)
		case flaw(s.Address, 0, textMax) != "" || flaw(s.Admin, 0, textMax) != "":
			return fmt.Sprintf("an address of seed %q is none", name)
		case names[name]:
			return fmt.Sprintf("two seeds are called %q", name)
		}
		names[name] = true
	}
	return ""
}

// seedName is what the i-th node is called.
func seedName(i int, s Seed) string {
	if s.Name == "" {
		return fmt.Sprintf("node-%d", i+1)
	}
	return s.Name
}

// found makes the first nodes.
func (s *State) found(c *Found) Result {
	refuse := func(r Reason, format string, args ...any) Result {
		return Result{Err: &Error{Reason: r, Kind: KindCluster, Message: fmt.Sprintf(format, args...)}}
	}
	sorted := slices.IsSortedFunc(c.Seeds, func(a, b Seed) int { return strings.Compare(a.Fingerprint, b.Fingerprint) })
	switch {
	case len(s.nodes) > 0:
		return refuse(Exists, "the cluster has its first nodes already")
	case !sorted:
		return refuse(Invalid, "the seeds are not in order of their fingerprints")
	case seedsFlaw(c.Seeds) != "":
		return refuse(Invalid, "%s", seedsFlaw(c.Seeds))
	case s.version <= uint64(len(c.Seeds)) || len(s.names) > 0:
		return refuse(Invalid, "the log has given their numbers away")
	case c.At <= 0:
		return refuse(Invalid, "it begins at no time")
	}
	s.cluster = Cluster{ID: clusterID(fingerprints(c.Seeds)), Epoch: 1, Replicas: firstMembers(c.Seeds)}
	for i, seed := range c.Seeds {
		r := s.cluster.Replicas[i]
		n := &Node{
			Kind: KindNode,
			Metadata: Metadata{
				Name: seedName(i, seed), UID: r.Number, Generation: 1, ResourceVersion: s.version, CreationTimestamp: c.At,
			},
			Spec:   NodeSpec{seed.Fingerprint, seed.Address, seed.Admin},
			Status: NodeStatus{State: NodeMember, Voter: !r.Learner},
		}
		s.touch(Added, s.putNode(n))
	}
	return Result{Changed: true}
}

// come notes the disk of a node that has not been here before.
func (c *Cluster) come(number uint64, disk string) {
	for i := range c.Replicas {
		if r := &c.Replicas[i]; r.Number == number && r.Disk == "" {
			r.Disk = disk
		}
	}
}

// placeCluster takes a decision about the members of the control group.
func (s *State) placeCluster(c *Place) Result {
	refuse := func(r Reason, format string, args ...any) Result {
		return Result{Err: &Error{Reason: r, Kind: KindCluster, Message: fmt.Sprintf(format, args...)}}
	}
	switch {
	case c.Epoch != s.cluster.Epoch:
		return refuse(Conflict, "the control group is at epoch %d, and the decision was made on %d", s.cluster.Epoch, c.Epoch)
	case s.cluster.Step == Switching:
		return refuse(Conflict, "its members are being switched; the next decision comes when that is done")
	}
	if why := s.spotsFlaw(KindCluster, c.Want, s.cluster.Replicas); why != "" {
		return refuse(Invalid, "%s", why)
	}
	rows, _ := s.relocate(s.cluster.Replicas, c.Want)
	if fresh := len(rows) - len(s.cluster.Replicas); fresh > ReplicasPerEntry {
		return refuse(Invalid, "%d members come at once: at most %d in one entry", fresh, ReplicasPerEntry)
	}
	step := stepOf(rows)
	if step == Steady && len(rows) < len(s.cluster.Replicas) {
		step = Adding // learners leave the configuration
	}
	if step == s.cluster.Step && slices.Equal(rows, s.cluster.Replicas) {
		return Result{}
	}
	s.setCluster(rows, step)
	return Result{Changed: true}
}

// reachedCluster ends a step of the control group.
func (s *State) reachedCluster(c *Reached) Result {
	if c.Epoch != s.cluster.Epoch || s.cluster.Step == Steady {
		return Result{Err: &Error{Reason: Conflict, Kind: KindCluster, Message: fmt.Sprintf(
			"the control group is at epoch %d and step %q; what was reached is of epoch %d", s.cluster.Epoch,
			s.cluster.Step, c.Epoch)}}
	}
	rows, _, step := stepped(s.cluster.Step, s.cluster.Replicas)
	s.setCluster(rows, step)
	return Result{Changed: true}
}

// setCluster takes over the members of the next epoch.
func (s *State) setCluster(rows []Replica, step Step) {
	s.cluster.Replicas, s.cluster.Step = rows, step
	s.cluster.Epoch++
	s.seat()
}

// observeCluster notes which members hold the control log.
func (s *State) observeCluster(c *Observe) Result {
	rows := markMade(s.cluster.Replicas, c.Made)
	if slices.Equal(rows, s.cluster.Replicas) {
		return Result{}
	}
	s.cluster.Replicas = rows
	s.seat()
	return Result{Changed: true}
}

// seat says of each node what follows from the members: whether it votes, and whether it has joined.
func (s *State) seat() {
	voters := 0
	for _, r := range s.cluster.Replicas {
		if !r.Learner {
			voters++
		}
	}
	for _, n := range s.nodesByNumber() {
		var mine Replica
		for _, r := range s.cluster.Replicas {
			if r.Number == n.Number() && s.good(&r) {
				mine = r
			}
		}
		voter := mine.Number != 0 && !mine.Learner
		joined := n.Status.State == NodeJoining && mine.Made && s.cluster.Step == Steady && voters > 1
		if voter == n.Status.Voter && !joined {
			continue
		}
		n.Status.Voter = voter
		if joined {
			n.Status.State, n.Status.Conditions = NodeMember, nil
		}
		s.moved(object{meta: &n.Metadata, node: n})
	}
}
