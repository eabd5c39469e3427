package wire

// OpenProducer is the first frame of a stream that publishes to one queue.
type OpenProducer struct {
	Queue    string
	Producer string // empty: sequences are local to the stream, nothing is remembered of them
	Want     Want   // default of the stream's messages; refused here if the queue cannot offer it (D-14)
}

// Type is TypeOpenProducer.
func (*OpenProducer) Type() Type { return TypeOpenProducer }

func (f *OpenProducer) encode(e *enc) {
	e.text(f.Queue)
	e.text(f.Producer)
	e.evidence(f.Want)
}

func (f *OpenProducer) decode(d *dec) {
	f.Queue = d.text(QueueMax, "queue name")
	f.Producer = d.text(IDMax, "producer id")
	f.Want = d.evidence(false)
}

// OpenConsumer is the first frame of a stream that consumes from one queue.
type OpenConsumer struct {
	Queue        string
	Subscription string
	Credit       uint64 // absolute delivery limit, counted from the subscription's beginning
}

// Type is TypeOpenConsumer.
func (*OpenConsumer) Type() Type { return TypeOpenConsumer }

func (f *OpenConsumer) encode(e *enc) {
	e.text(f.Queue)
	e.text(f.Subscription)
	e.uint(f.Credit)
}

func (f *OpenConsumer) decode(d *dec) {
	f.Queue = d.text(QueueMax, "queue name")
	f.Subscription = d.text(IDMax, "subscription id")
	f.Credit = d.uint()
}

// Opened answers both of them.
type Opened struct {
	Offer        Evidence // strongest evidence the queue can give on both axes
	MessageMax   uint64   // bytes
	InFlight     uint64   // messages a producer may have unanswered
	InFlightSize uint64   // their bytes
	Delivered    uint64   // deliveries made to the subscription so far; credit is granted from here
	Limit        uint64   // the credit limit in force
	Low          uint64   // of a producer with an id: its lowest sequence that the queue remembers
	Next         uint64   // of a producer with an id: above every sequence that the queue has seen; at least 1
}

// Type is TypeOpened.
func (*Opened) Type() Type { return TypeOpened }

func (f *Opened) encode(e *enc) {
	e.evidence(f.Offer)
	e.uint(f.MessageMax)
	e.uint(f.InFlight)
	e.uint(f.InFlightSize)
	e.uint(f.Delivered)
	e.uint(f.Limit)
	e.uint(f.Low)
	e.uint(f.Next)
}

func (f *Opened) decode(d *dec) {
	f.Offer = d.evidence(false)
	f.MessageMax = d.uint()
	f.InFlight = d.uint()
	f.InFlightSize = d.uint()
	f.Delivered = d.uint()
	f.Limit = d.uint()
	f.Low = d.uint()
	f.Next = d.uint()
}
