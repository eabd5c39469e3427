package wire

// EvidenceFrame confirms Count messages from First on: their wants are reached. Their offsets rise
// together with their sequences, from Offset on. Accepted evidence has neither offset nor term.
type EvidenceFrame struct {
	First, Count uint64
	Evidence     Evidence // achieved, not requested (D-17)
	Offset, Term uint64
}

// Type is TypeEvidence.
func (*EvidenceFrame) Type() Type { return TypeEvidence }

func (f *EvidenceFrame) encode(e *enc) {
	e.uint(f.First)
	e.uint(f.Count)
	e.evidence(f.Evidence)
	if f.Evidence.Replicas > 0 {
		e.uint(f.Offset)
		e.uint(f.Term)
	}
}

func (f *EvidenceFrame) decode(d *dec) {
	f.First = d.uint()
	f.Count = d.uint()
	f.Evidence = d.evidence(false)
	if f.Evidence.Replicas > 0 {
		f.Offset = d.uint()
		f.Term = d.uint()
	}
	if d.err == nil && (f.Count == 0 || f.First+f.Count < f.First) {
		d.fail("an empty or endless range")
	}
}

// Refused says that a message was definitely not stored.
type Refused struct {
	Seq    uint64
	Code   Code
	Detail string
}

// Type is TypeRefused.
func (*Refused) Type() Type { return TypeRefused }

func (f *Refused) encode(e *enc) { e.uint(f.Seq); e.uint(uint64(f.Code)); e.text(f.Detail) }
func (f *Refused) decode(d *dec) {
	f.Seq = d.uint()
	f.Code = d.code()
	f.Detail = d.text(DetailMax, "detail")
}

// Below says that a message is in the queue with less than its want. It is not success.
type Below struct {
	Seq          uint64
	Evidence     Evidence
	Offset, Term uint64
	Code         Code
	Detail       string
}

// Type is TypeBelow.
func (*Below) Type() Type { return TypeBelow }

func (f *Below) encode(e *enc) {
	e.uint(f.Seq)
	e.evidence(f.Evidence)
	e.uint(f.Offset)
	e.uint(f.Term)
	e.uint(uint64(f.Code))
	e.text(f.Detail)
}

func (f *Below) decode(d *dec) {
	f.Seq = d.uint()
	f.Evidence = d.evidence(false)
	if d.err == nil && f.Evidence.Replicas == 0 {
		d.fail("below request, but not stored")
	}
	f.Offset = d.uint()
	f.Term = d.uint()
	f.Code = d.code()
	f.Detail = d.text(DetailMax, "detail")
}

// Indeterminate says that the broker does not know whether the message is in the queue.
type Indeterminate struct {
	Seq    uint64
	Code   Code
	Detail string
}

// Type is TypeIndeterminate.
func (*Indeterminate) Type() Type { return TypeIndeterminate }

func (f *Indeterminate) encode(e *enc) { e.uint(f.Seq); e.uint(uint64(f.Code)); e.text(f.Detail) }

func (f *Indeterminate) decode(d *dec) {
	f.Seq = d.uint()
	f.Code = d.code()
	f.Detail = d.text(DetailMax, "detail")
}

// ErrorFrame ends a stream: nothing more will be answered on it. With Stopping every message that was
// read has its answer, so what has none was not stored; with any other code it is indeterminate.
type ErrorFrame struct {
	Code   Code
	Detail string
}

// Type is TypeError.
func (*ErrorFrame) Type() Type { return TypeError }

func (f *ErrorFrame) encode(e *enc) { e.uint(uint64(f.Code)); e.text(f.Detail) }
func (f *ErrorFrame) decode(d *dec) { f.Code = d.code(); f.Detail = d.text(DetailMax, "detail") }
