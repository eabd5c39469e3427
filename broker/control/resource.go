package control

import "time"

// Kind is a kind of resource. Names are unique within one (T-18).
type Kind string

// The kinds.
const (
	KindQueue     Kind = "Queue"
	KindConnector Kind = "Connector"
	// KindNode is a member of the cluster: it is changed by verbs of its own.
	KindNode Kind = "Node"
	// KindCluster is no resource: it is the control group in Place and Reached.
	KindCluster Kind = "Cluster"
)

// Metadata is what every resource has.
type Metadata struct {
	Name string `json:"name"`
	// UID is the control-log index of the entry that made the resource: it is never used again, and
	// it is the group id of a queue (T-12, T-19).
	UID uint64 `json:"uid,omitempty"`
	// Generation counts changes of the spec, from 1.
	Generation uint64 `json:"generation,omitempty"`
	// ResourceVersion is the control-log index of the last change of spec, deletion or status (T-14).
	ResourceVersion uint64 `json:"resourceVersion,omitempty"`
	// CreationTimestamp and DeletionTimestamp are in milliseconds since 1970, from the command that
	// made the resource or asked for its deletion; 0 is never.
	CreationTimestamp int64 `json:"creationTimestamp,omitempty"`
	DeletionTimestamp int64 `json:"deletionTimestamp,omitempty"`
	// DrainUntil is when draining ends at the latest, in milliseconds since 1970. It stands with
	// DeletionTimestamp (W-28: mandatory and finite).
	DrainUntil int64 `json:"drainUntil,omitempty"`
}

// Durability is how far a queue's replicas go before they count.
type Durability string

// The durabilities.
const (
	Flushed Durability = "flushed"
	Written Durability = "written"
)

// QueueSpec is what a user wants of a queue. The zero values of Limits and Placement are the defaults.
type QueueSpec struct {
	Replicas   int           `json:"replicas"`
	Durability Durability    `json:"durability"`
	Limits     QueueLimits   `json:"limits"`
	Placement  PlacementSpec `json:"placement"`
	// DrainDeadline is how long a deletion lets consumers drain the queue, unless the deletion says otherwise.
	DrainDeadline Duration `json:"drainDeadline"`
}

// QueueLimits bound what is in a queue; 0 is the default, which the profile of limits names.
type QueueLimits struct {
	Messages     uint64 `json:"messages"`     // messages in the queue
	Bytes        uint64 `json:"bytes"`        // of their bodies, with 256 bytes more for each (W-26)
	MessageBytes uint64 `json:"messageBytes"` // of one body
}

// PlacementSpec pins replicas to nodes, by fingerprint or by name of a member.
type PlacementSpec struct {
	Nodes           []string `json:"nodes,omitempty"`
	PreferredLeader string   `json:"preferredLeader,omitempty"`
}

// ConnectorSpec is what a user wants of a connector (T-10, T-11). Evidence and loss are mandatory.
type ConnectorSpec struct {
	Protocol  string            `json:"protocol"`
	Direction string            `json:"direction"` // source or sink
	Address   string            `json:"address"`
	Policy    map[string]string `json:"policy,omitempty"`
	Queue     string            `json:"queue"`
	Evidence  string            `json:"evidence"`
	Loss      string            `json:"loss"`
}

// Phase says in one word where a resource stands (T-13).
type Phase string

// The phases.
const (
	Pending  Phase = "Pending"
	Ready    Phase = "Ready"
	Degraded Phase = "Degraded"
	Deleting Phase = "Deleting"
)

// Status is what controllers found and did. It never changes the spec.
type Status struct {
	// ObservedGeneration is the generation whose work is done (T-24).
	ObservedGeneration uint64 `json:"observedGeneration"`
	Phase              Phase  `json:"phase"`
	// Destroying says that draining is over and the data goes: what has it is never opened again, also
	// not by a node that starts anew. Once set it stays.
	Destroying bool `json:"destroying,omitempty"`
	// Epoch counts the decisions about Placement and their steps. Each names the one before, so of two that
	// were made at once one is refused.
	Epoch     uint64    `json:"epoch,omitempty"`
	Step      Step      `json:"step,omitempty"` // of the change of Placement that is under way
	Placement []Replica `json:"placement,omitempty"`
	// Founders are the members that a group began with, if it began with several: the same on all of them, also on one
	// that comes late.
	Founders   []Founder   `json:"founders,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is a reason why a resource is not as its spec wants it, or a warning.
type Condition struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Types of conditions: what they are about.
const (
	CondPlacement  = "Placement"  // where the resource is or should be
	CondGroup      = "Group"      // the queue's group and its storage
	CondAttachment = "Attachment" // a connector and its queue
	CondRemoval    = "Removal"    // how far the deletion is
	CondMembership = "Membership" // a node and the cluster
)

// Queue is one queue as the registry knows it.
type Queue struct {
	Kind     Kind      `json:"kind"`
	Metadata Metadata  `json:"metadata"`
	Spec     QueueSpec `json:"spec"`
	Status   Status    `json:"status"`
}

// Connector is one connector as the registry knows it.
type Connector struct {
	Kind     Kind          `json:"kind"`
	Metadata Metadata      `json:"metadata"`
	Spec     ConnectorSpec `json:"spec"`
	Status   Status        `json:"status"`
}

// Duration is a time.Duration whose text form is Go's ("30s", "5m").
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
