package wire

// Deliver offers one message to a consumer. A large body follows on the broker's unidirectional
// stream of number Stream, which starts with a BodyHead.
type Deliver struct {
	Offset  uint64
	Attempt uint64 // from 1; in the answer to a peek, the deliveries made so far
	Term    uint64 // of the message's entry; a settle names it again
	Digest  [16]byte
	// Producer and Seq are who published it and as which of its messages; empty and 0 without an id.
	Producer string
	Seq      uint64
	Headers  []byte
	Large    bool
	Stream   uint64
	Length   uint64
	Body     []byte
}

// Type is TypeDeliver.
func (*Deliver) Type() Type { return TypeDeliver }

func (f *Deliver) encode(e *enc) {
	e.uint(f.Offset)
	e.uint(f.Attempt)
	e.uint(f.Term)
	e.raw(f.Digest[:])
	e.text(f.Producer)
	e.uint(f.Seq)
	e.bytes(f.Headers)
	e.body(f.Large, f.Stream, f.Length, f.Body)
}

func (f *Deliver) decode(d *dec) {
	f.Offset = d.uint()
	f.Attempt = d.uint()
	f.Term = d.uint()
	f.Digest = d.digest()
	f.Producer = d.text(IDMax, "producer id")
	f.Seq = d.uint()
	f.Headers = d.bytes(HeadersMax, "headers")
	f.Large, f.Stream, f.Length, f.Body = d.body()
}

// Credit raises the absolute delivery limit; the highest wins, a lower one changes nothing (W-23).
type Credit struct{ Limit uint64 }

// Type is TypeCredit.
func (*Credit) Type() Type { return TypeCredit }

func (f *Credit) encode(e *enc) { e.uint(f.Limit) }
func (f *Credit) decode(d *dec) { f.Limit = d.uint() }

// Verb is a consumer's final word on a delivery.
type Verb uint8

// The verbs.
const (
	Accept Verb = iota + 1
	Release
	Reject
)

func (v Verb) String() string {
	switch v {
	case Accept:
		return "accept"
	case Release:
		return "release"
	case Reject:
		return "reject"
	}
	return "undefined"
}

// Settle is the consumer's word on one delivery, named so that it can never hit another message.
type Settle struct {
	Offset  uint64
	Attempt uint64
	Term    uint64
	Verb    Verb
}

// Type is TypeSettle.
func (*Settle) Type() Type { return TypeSettle }

func (f *Settle) encode(e *enc) {
	e.uint(f.Offset)
	e.uint(f.Attempt)
	e.uint(f.Term)
	e.byte(byte(f.Verb))
}

func (f *Settle) decode(d *dec) {
	f.Offset = d.uint()
	f.Attempt = d.uint()
	f.Term = d.uint()
	f.Verb = Verb(d.byte())
	if d.err == nil && (f.Verb < Accept || f.Verb > Reject) {
		d.fail("an undefined verb")
	}
}

// Settled answers one Settle when it is committed and applied at the queue's durability. Code 0 is
// done; anything else refused it and changed nothing.
type Settled struct {
	Offset  uint64
	Attempt uint64
	Code    Code
}

// Type is TypeSettled.
func (*Settled) Type() Type { return TypeSettled }

func (f *Settled) encode(e *enc) { e.uint(f.Offset); e.uint(f.Attempt); e.uint(uint64(f.Code)) }
func (f *Settled) decode(d *dec) { f.Offset = d.uint(); f.Attempt = d.uint(); f.Code = d.codeOrOK() }
