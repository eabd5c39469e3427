package wire

// The frames of this file each start a stream of their own, which ends with the answer.

// OpenPeek asks for messages without taking them: Deliver frames in order of offset, then a PeekEnd.
// Nothing changes by it.
type OpenPeek struct {
	Queue string
	From  uint64 // lowest offset to show
	Count uint64 // at most so many
}

// Type is TypeOpenPeek.
func (*OpenPeek) Type() Type { return TypeOpenPeek }

func (f *OpenPeek) encode(e *enc) { e.text(f.Queue); e.uint(f.From); e.uint(f.Count) }

func (f *OpenPeek) decode(d *dec) {
	f.Queue = d.text(QueueMax, "queue name")
	f.From = d.uint()
	f.Count = d.uint()
}

// PeekEnd ends the answer to OpenPeek. Next is where to go on from; it is above every message that was
// there if More is false.
type PeekEnd struct {
	Next uint64
	More bool
}

// Type is TypePeekEnd.
func (*PeekEnd) Type() Type { return TypePeekEnd }

func (f *PeekEnd) encode(e *enc) { e.uint(f.Next); e.bool(f.More) }
func (f *PeekEnd) decode(d *dec) { f.Next = d.uint(); f.More = d.bool() }

// Purge takes every message out of a queue that is not under delivery. It needs the role admin.
type Purge struct{ Queue string }

// Type is TypePurge.
func (*Purge) Type() Type { return TypePurge }

func (f *Purge) encode(e *enc) { e.text(f.Queue) }
func (f *Purge) decode(d *dec) { f.Queue = d.text(QueueMax, "queue name") }

// Purged answers Purge once that is committed, applied and flushed.
type Purged struct {
	Count uint64 // messages that went
	Left  uint64 // messages that stayed, being under delivery
}

// Type is TypePurged.
func (*Purged) Type() Type { return TypePurged }

func (f *Purged) encode(e *enc) { e.uint(f.Count); e.uint(f.Left) }
func (f *Purged) decode(d *dec) { f.Count = d.uint(); f.Left = d.uint() }

// Unsubscribe ends a subscription for good; what it has unsettled goes back to its place. Answered by
// Done, also if there is no such subscription.
type Unsubscribe struct {
	Queue        string
	Subscription string
}

// Type is TypeUnsubscribe.
func (*Unsubscribe) Type() Type { return TypeUnsubscribe }

func (f *Unsubscribe) encode(e *enc) { e.text(f.Queue); e.text(f.Subscription) }

func (f *Unsubscribe) decode(d *dec) {
	f.Queue = d.text(QueueMax, "queue name")
	f.Subscription = d.text(IDMax, "subscription id")
}

// Retire forgets a producer and its sequences. Only the identity that first used the id may. Answered
// by Done, also if there is no such producer.
type Retire struct {
	Queue    string
	Producer string
}

// Type is TypeRetire.
func (*Retire) Type() Type { return TypeRetire }

func (f *Retire) encode(e *enc) { e.text(f.Queue); e.text(f.Producer) }

func (f *Retire) decode(d *dec) {
	f.Queue = d.text(QueueMax, "queue name")
	f.Producer = d.text(IDMax, "producer id")
}

// Done answers a request that has nothing more to tell: it is committed, applied and flushed.
type Done struct{}

// Type is TypeDone.
func (*Done) Type() Type { return TypeDone }

func (*Done) encode(*enc) {}
func (*Done) decode(*dec) {}
