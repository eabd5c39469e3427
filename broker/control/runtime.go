package control

// Runtime is what the reconciler works on: the queues as they run on this node. The node implements it.
//
// All methods return at once. What takes time is started and then asked for again: done says that it has
// come about and, where the disk is concerned, is flushed. All are idempotent: a call that was done before
// is done again without effect, also after a crash at any moment, when another life of the node calls it
// first. An error is a fact about this call; the same call follows after a back-off. One that carries a
// *Trouble names the reason that users see.
//
// Whoever finishes what was not done, or finds a queue in trouble or out of it, calls Reconciler.Wake; the
// reconciler asks now and then anyway. Methods may call Wake and Applied on the reconciler that called
// them, but not Step.
type Runtime interface {
	// Ensure makes the queue's group, id Metadata.UID, and opens it with the limits of the spec. The
	// group may be made only if Status.ObservedGeneration is 0 and no deletion stands: otherwise it was
	// made before, and a missing one is damage, an error.
	//
	// Admission and delivery begin once Ensure was called with an ObservedGeneration above 0: then the
	// registry knows where the messages are. If a deletion stands, admission stays closed.
	Ensure(q Queue) (done bool, err error)
	// StopAdmission refuses messages from now on, typed, and goes on delivering. Called before Ensure
	// when a deletion stands, so the group need not be open.
	StopAdmission(q Queue) (done bool, err error)
	// Drained says how far consumers have come. The group is open.
	Drained(q Queue) (Drain, error)
	// Disconnect ends every stream of the queue, typed, admission included, and puts back what is
	// unsettled. Done as well if the group is not open.
	Disconnect(q Queue) (done bool, left Drain, err error)
	// Destroy closes the group and takes its directory away. An Ensure that is under way ends first. A
	// group that is not here is done. Only a queue whose Status.Destroying is committed gets here.
	Destroy(q Queue) (done bool, err error)
	// Propose proposes an entry of the control log. On nil exactly one of Reconciler.Applied and
	// Reconciler.Dropped follows; an error means that there will be no entry.
	Propose(c Command) error
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
}

func (t *Trouble) Error() string { return t.Message }
