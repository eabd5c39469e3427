package control

// Options of a reconciler. Node and Disk say who this node is and have to be given.
type Options struct {
	Node        string // the node's fingerprint
	Name        string // the node's name, which the first one of a cluster is registered by; none if empty
	Disk        string // id of the data directory's disk
	Incarnation uint64 // counts the starts of the node on that disk; none if 0
	Nonce       string // drawn for that start; none if empty
	// Follows says whether this start comes after the one of the same disk with that incarnation and nonce; any does if
	// nil.
	Follows func(incarnation uint64, nonce string) bool
	// Founded says that this node is one of a cluster: the first nodes of its registry come by Found. Otherwise it makes
	// itself the first one where there is none.
	Founded bool
	Address string // host:port of the messaging port, as others reach it; none if empty
	Admin   string // host:port of the admin port; none if empty

	Connectors ConnectorRuntime // runs connectors; none if nil: they stay pending

	BackoffMin int64 // milliseconds before the first repetition of what was in error; 100 if 0
	BackoffMax int64 // milliseconds between repetitions at most; 30,000 if 0
	Poll       int64 // milliseconds between questions for what is under way, if nobody wakes; 1,000 if 0
	Patience   int64 // milliseconds that a replica may be absent before the queue is said to be degraded; 10,000 if 0
	StepMax    int   // resources worked on in one step; 256 if 0
}

// Reconciler makes true what the registry says, and writes down what it found (T-21, T-23, T-24). It is a
// NodeReconciler, and a LeaderReconciler while this node leads the control group, as one thing. It is stepped
// by its owner, who also guards it and the State together: one goroutine at a time.
//
// The owner calls Load once, Applied after every entry of the control log, Dropped for proposals that got
// none, Lead and Follow when it comes to lead the control group and when it does not any more, and Step when one
// of these or Wake was called, and when the time that Step returned is over. What a step does to a disk must
// not outlive its reason: the State that Step sees is committed, and flushed here.
type Reconciler struct {
	rt     Runtime
	o      Options
	node   *NodeReconciler
	leader *LeaderReconciler // nil while another node leads
}

// NewReconciler returns a reconciler that knows nothing yet.
func NewReconciler(rt Runtime, o Options) *Reconciler {
	return &Reconciler{rt: rt, o: o, node: NewNodeReconciler(rt, o)}
}

// Load puts every resource on the list: at the start, when the log is replayed up to its end, and whenever a
// snapshot took the place of the state.
func (r *Reconciler) Load(s *State) {
	r.node.Load(s)
	if r.leader != nil {
		r.leader.Load(s)
	}
}

// Lead says that this node leads the control group from now on: everything that it has proposed before and that
// has no entry is Dropped before that.
func (r *Reconciler) Lead(s *State) {
	if r.leader == nil {
		r.leader = NewLeaderReconciler(r.rt, r.o)
		r.leader.Load(s)
	}
}

// Follow says that this node does not lead the control group.
func (r *Reconciler) Follow() { r.leader = nil }

// Prepare says where a queue is to be that a mutation makes, if this node leads the control group (State.Prepare).
func (r *Reconciler) Prepare(m *Mutation, s *State, coming [][]Spot) {
	if m.Want = nil; r.leader != nil {
		s.Prepare(m, r.leader.fit, coming)
	}
}

// Applied tells of an entry: the command and what it did, whoever proposed it.
func (r *Reconciler) Applied(c Command, res Result) {
	r.node.Applied(c, res)
	if r.leader != nil {
		r.leader.Applied(c, res)
	}
}

// Dropped tells that a proposal got no entry, or one that was lost. It is made again after a back-off if
// it is still wanted.
func (r *Reconciler) Dropped(c Command) {
	r.node.Dropped(c)
	if r.leader != nil {
		r.leader.Dropped(c)
	}
}

// Wake says that something about a resource is not as it was: work on it is done, or there is trouble,
// or the end of trouble, or another replica leads. Unknown ids are fine.
func (r *Reconciler) Wake(uid uint64) {
	r.node.Wake(uid)
	if r.leader != nil {
		r.leader.Wake(uid)
	}
}

// WakeAll says that it may be so of any: a node can be reached, or cannot any more.
func (r *Reconciler) WakeAll() {
	r.node.WakeAll()
	if r.leader != nil {
		r.leader.WakeAll()
	}
}

// Step works on what is ready at the time now, in milliseconds since 1970, and returns after how many
// milliseconds it is to be called again: 0 is at once, because there is more than one step takes, Idle is
// not before something happens.
func (r *Reconciler) Step(now int64, s *State) (wait int64) {
	wait = r.node.Step(now, s)
	if r.leader == nil {
		return wait
	}
	lead := r.leader.Step(now, s)
	if wait == Idle || lead != Idle && lead < wait {
		return lead
	}
	return wait
}
