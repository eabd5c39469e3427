package queue

// EffectKind says what a command did.
type EffectKind uint8

// The effects, with the fields they set.
const (
	Published       EffectKind = iota + 1 // Offset, Term
	Attached                              // Session, Delivered, Limit
	Superseded                            // Session lost its subscription to another
	Assigned                              // Session is to deliver: Offset, Attempt, Ref, Large, Length, Producer, Seq
	Settled                               // Session's settle of Offset, Attempt took effect
	Stale                                 // … changed nothing
	Freed                                 // Count bodies from Ref on, in rising Seq, are of no more use
	Crowded                               // Session's subscription was not made: there are SubscriptionsMax
	Duplicate                             // it stands at Offset since Term; its second body is freed
	Refused                               // a publish changed nothing: Reason, Low; its body is freed
	Registered                            // Session's producer has Slot; Next, Low
	Owned                                 // Session's producer id belongs to another identity; nothing changed
	ProducersFull                         // Session's producer was not registered: there are ProducersMax
	RetiredProducer                       // Session's producer is retired; Slot is 0 if it was unknown
	Purged                                // Session's purge: Count are out, Left are under delivery and stay
	Ended                                 // Session's subscription is no more
)

// Reason says why a publish was refused.
type Reason uint8

// The reasons. Nothing was recorded: the same sequence may come again.
const (
	Full            Reason = iota + 1 // the queue's limit of messages or bytes is reached
	Closed                            // the queue takes no messages any more
	UnknownProducer                   // the slot is not, or no more, registered
	SeqRetired                        // the sequence is lower than the lowest unresolved one that the producer named
	SeqTooFar                         // the sequence is SequencesMax or more above it
)

// Effect is one consequence of a command, in the order it happened. The first one of a Publish or PublishFrom tells
// its result: Published, Duplicate or Refused.
type Effect struct {
	Kind      EffectKind
	Reason    Reason
	Session   uint64 // who is told; 0: nobody
	Offset    uint64
	Attempt   uint64 // 1 is the first
	Term      uint64 // of the message's entry
	Ref       Ref
	Count     uint64
	Left      uint64
	Large     *Large // nil: the body is inline
	Length    uint64 // of the body in bytes
	Producer  string // "" without one
	Seq       uint64 // of the producer, 0 without one
	Slot      uint64 // of the producer
	Next      uint64 // the sequence that the producer has not used yet
	Low       uint64 // the lowest sequence that is remembered or may still come
	Delivered uint64 // deliveries to the subscription so far
	Limit     uint64 // deliveries allowed
}

// MessageCost is what a message counts against the limit of bytes beside its body.
const MessageCost = 256

// Counts says where every message is or went: In = Ready + Unsettled + Accepted + Rejected + Purged.
type Counts struct {
	In, Ready, Unsettled       uint64
	Accepted, Rejected, Purged uint64 // out, by reason
	Released                   uint64 // settles by release; the messages are still in, or went out later
	Bytes                      uint64 // of those in: their bodies, and MessageCost for each
}
