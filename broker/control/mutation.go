package control

import "fmt"

// Verb is what a mutation does.
type Verb string

// The verbs of users. Controllers have commands of their own.
const (
	// Apply makes the resource or changes its spec; the same spec again changes nothing (T-17).
	Apply Verb = "apply"
	// Create is refused where the name is taken (T-18).
	Create Verb = "create"
	// Delete asks for the deletion; asked again it may only bring the end of draining nearer (T-20).
	Delete Verb = "delete"
)

// The verbs for nodes, which no other kind has. Each of them done again changes nothing.
const (
	// NodeAdd makes a key known, so that the node may come. It is named by the name it is to have.
	NodeAdd Verb = "add"
	// NodeDrain has everything moved away from a node, which stays a member; NodeUndrain ends that.
	NodeDrain   Verb = "drain"
	NodeUndrain Verb = "undrain"
	// NodeRemove drains a node and then takes it out of the cluster. It cannot be taken back.
	NodeRemove Verb = "remove"
)

// Mutation is one change that a user asks for: one entry of the control log.
type Mutation struct {
	Verb      Verb           `json:"verb"`
	Kind      Kind           `json:"kind"`
	Name      string         `json:"name"`
	Queue     *QueueSpec     `json:"queue,omitempty"`     // of apply and create
	Connector *ConnectorSpec `json:"connector,omitempty"` // of apply and create
	Node      *NodeSpec      `json:"node,omitempty"`      // of add
	// Want is where a queue that this makes is to be, as Prepare says; set by the node that leads the control group. What
	// does not fit when the entry is applied is left to a decision of its own.
	Want []Spot `json:"want,omitempty"`
	// Expected is the resource version the user has seen; nil does not check (T-15, T-16). 0 is "there is none".
	Expected *uint64 `json:"expected,omitempty"`
	// Drain is how long a deletion lets consumers drain; nil takes the spec's.
	Drain *Duration `json:"drain,omitempty"`
	// At is when it was asked for, in milliseconds since 1970; set by the node that proposes it.
	At int64 `json:"at"`
}

// Result is what a committed command did. The resources are copies; the caller owns them.
type Result struct {
	Queue     *Queue     // as it stands after it, also if refused; nil if there is none; of Remove: as it stood
	Connector *Connector // likewise
	Node      *Node      // likewise
	Changed   bool       // false: nothing was to be done
	Removed   bool       // the record went with this entry; the resource is as it stood
	Err       *Error     // refused; then nothing changed
}

// Reason is why a mutation was refused.
type Reason string

// The reasons.
const (
	Conflict Reason = "conflict"  // the expected version is stale
	Exists   Reason = "exists"    // create of a name that is taken
	NotFound Reason = "not_found" // no such resource
	Invalid  Reason = "invalid"   // the spec is not one; Field says where
	Removing Reason = "deleting"  // the resource is being deleted and cannot change
	TooMany  Reason = "too_many"  // the registry is at its bound
	Unsafe   Reason = "unsafe"    // the cluster could not go on, or not safely
)

// Error is a refused mutation: the reason, the state now, and what would be needed.
type Error struct {
	Reason  Reason
	Kind    Kind
	Name    string
	Field   string // of Invalid: the path of the field, as spec.replicas
	Message string
	Now     uint64 // of Conflict: the version that stands
	// Expected is, of Conflict, the version that the mutation expected.
	Expected uint64
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %s", e.Kind, e.Name, e.Message) }
