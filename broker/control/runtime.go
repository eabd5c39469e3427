package control

// Runtime is what a Reconciler works on. The node implements it.
type Runtime interface {
	NodeRuntime
	LeaderRuntime
}

// NodeRuntime is the replicas as they run on this node.
//
// All methods return at once. What takes time is started and then asked for again: done says that it has
// come about and, where the disk is concerned, is flushed. All are idempotent: a call that was done before
// is done again without effect, also after a crash at any moment, when another life of the node calls it
// first. An error is a fact about this call; the same call follows after a back-off. One that carries a
// *Trouble names the reason that users see.
//
// Whoever finishes what was not done, finds a queue in trouble or out of it, or sees another replica lead or
// a member come and go, calls Reconciler.Wake; the reconciler asks now and then only where something is
// outstanding. Methods may call Wake and Applied on the reconciler that called them, but not Step.
type NodeRuntime interface {
	// Ensure opens this node's replica of the queue, the row of Status.Placement with this node and disk, as what that
	// row says:
	//
	//   - Owner: the queue's log has an owner and no group. If it is a group on the disk, of which this replica is the
	//     only voter, it is turned into an owner's: the epoch is above the group's last term (3→1). Learners are left
	//     behind.
	//   - else, a group. If it is an owner's on the disk, that is stopped and the group begins with a flushed snapshot at
	//     its last index, term the owner's epoch, with this replica as its only voter (1→3).
	//   - A replica of Status.Founders that is not here begins with Genesis{1, 1, Founders}; any other one begins with no
	//     members, and learns.
	//
	// The group's id is Metadata.UID for the queue's whole life, whatever becomes of its replicas. A replica may be made
	// only if its row is not Made and no deletion stands: otherwise it was made before, and a missing one is damage, an
	// error. If it can never serve again, the error carries a *Trouble with Lost.
	//
	// Where this replica owns or leads, the spec's limits are put into the log before it is done. Admission and delivery
	// begin once Ensure was called with an ObservedGeneration above 0: then the registry knows where the messages are.
	// If a deletion stands, admission stays closed.
	Ensure(q Queue) (done bool, err error)
	// Group is what this node's open replica of a group knows. Not called for an owner.
	Group(q Queue) (Group, error)
	// Reconfigure asks the group that this replica leads for exactly these members, in one joint step. It is begun, or
	// not begun with an error; that it is done shows in Group. A voter that is not one yet has to be a learner that has
	// caught up, else it is not begun. What is asked for is what this node's committed copy of the registry says, and
	// only if the configuration shows that the copy is not behind it.
	Reconfigure(q Queue, members []Replica) error
	// Transfer asks the group that this replica leads to be led by another one.
	Transfer(q Queue, to Replica) error
	// SetAside closes a replica that is Lost and sets its data aside, as it is, so that another one can be made on this
	// node; nothing of it is removed. Where it was done before, also in another life, what is here is the other one's.
	SetAside(q Queue, r Replica) (done bool, err error)
	// StopAdmission refuses messages from now on, typed, and goes on delivering. Called before Ensure
	// when a deletion stands, so the group need not be open.
	StopAdmission(q Queue) (done bool, err error)
	// Drained says how far consumers have come. The group is open, and this node serves it.
	Drained(q Queue) (Drain, error)
	// Disconnect ends every stream of the queue, typed, admission included, and puts back what is
	// unsettled. Done as well if the group is not open.
	Disconnect(q Queue) (done bool, left Drain, err error)
	// Destroy closes this node's replica of the group and takes its data away; that of one that is Lost is set aside, and
	// stays there. An Ensure that is under way ends first. What is not here is done. Only a replica that a committed
	// entry gave up gets here: of a queue whose Status.Destroying is committed, or a retired one.
	Destroy(group uint64, r Replica) (done bool, err error)
	// Propose proposes an entry of the control log, wherever that is led. On nil exactly one of Reconciler.Applied and
	// Reconciler.Dropped follows; an error means that there will be no entry.
	Propose(c Command) error
}

// Group is what a replica knows of its group at one moment.
type Group struct {
	// Serves says that this replica leads, and its term's first entry is applied. The rest is known only then.
	Serves bool
	// Members are those of the committed configuration, in any order. Changing says that a change is under way.
	Members  []Member
	Changing bool
}

// Member is one replica in a group's configuration.
type Member struct {
	Replica  uint64
	Number   uint64 // its node's
	Learner  bool
	CaughtUp bool // it was at the end of the log a moment ago, and answers
	Held     bool // it is known to hold a part of the log
	Ails     bool // its node's disk has no room or is slow, and the leader's does better
}

// LeaderRuntime is the control group and the nodes, as the leader of the control group sees them. The rules
// of NodeRuntime hold.
type LeaderRuntime interface {
	// Reachable says whether a node can be reached; this one always can.
	Reachable(number uint64) bool
	// Sound says whether the disk of a node has room and flushes in time, as far as is known here.
	Sound(number uint64) bool
	// ControlGroup is what this node knows of the control group; Serves if it leads. A control log with one owner and no
	// group is a group with one member.
	ControlGroup() (Group, error)
	// ReconfigureControl asks the control group for exactly these members, as Reconfigure does. A control log with one
	// owner becomes a group of one first.
	ReconfigureControl(members []Replica) error
}

// ConnectorRuntime runs connectors on this node. The rules of NodeRuntime hold. What they have got done is
// kept by them, never in the control log (T-6).
type ConnectorRuntime interface {
	// Start runs the connector as its spec says, in place of what ran under that uid with another one.
	Start(c Connector) (running bool, err error)
	// Stop ends it. Done as well if it does not run.
	Stop(uid uint64) (done bool, err error)
}

// Drain is what draining came to, in messages (W-28).
type Drain struct {
	Settled   uint64 // accepted or rejected since admission stopped, as far as this life of the node knows
	Unsettled uint64 // with a consumer now
	Requeued  uint64 // put back by Disconnect
	Left      uint64 // in the queue, Unsettled included; 0 is empty
}

// Trouble is an error of a Runtime with the reason that a condition shows, one word as DiskFull.
type Trouble struct {
	Reason  string
	Message string // what happened, what it means for the data, what to do
	// Lost says that this replica can never be opened again: of a group, another one takes its place.
	Lost bool
}

func (t *Trouble) Error() string { return t.Message }
