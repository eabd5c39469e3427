package wire_test

import (
	"reflect"

	"pgregory.net/rapid"

	"weida/broker/wire"
)

// sample is a named frame; the names and bytes stand in testdata/golden.txt.
type sample struct {
	name  string
	frame wire.Frame
}

var digest = [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// samples has every frame type at least once, and every form of evidence and body.
var samples = []sample{
	{"open producer", &wire.OpenProducer{Queue: "demo", Want: wire.Stored(wire.Flushed)}},
	{"open producer with id", &wire.OpenProducer{Queue: "a/b", Producer: "p1", Want: wire.Accepted()}},
	{"open consumer", &wire.OpenConsumer{Queue: "demo", Subscription: "s", Credit: 256}},
	{"opened", &wire.Opened{
		Offer: wire.Stored(wire.Flushed), MessageMax: 1 << 30, InFlight: 1024,
		InFlightSize: 16 << 20, Delivered: 3, Limit: 259,
	}},
	{"publish", &wire.Publish{Seq: 1, Low: 1, Body: []byte("hello")}},
	{"publish with want and headers", &wire.Publish{
		Seq: 70, Low: 60, Want: wire.Replicated(3, wire.Flushed),
		Headers: []byte{1, 2}, Body: []byte{},
	}},
	{"publish large", &wire.Publish{Seq: 2, Low: 1, Large: true, Stream: 6, Length: 1 << 30}},
	{"body head", &wire.BodyHead{Length: 1 << 30}},
	{"evidence accepted", &wire.EvidenceFrame{First: 1, Count: 1, Evidence: wire.Accepted()}},
	{"evidence stored written", &wire.EvidenceFrame{
		First: 1, Count: 300, Evidence: wire.Stored(wire.Written),
		Offset: 17, Term: 6,
	}},
	{"evidence stored flushed", &wire.EvidenceFrame{
		First: 5, Count: 1, Evidence: wire.Stored(wire.Flushed),
		Offset: 20, Term: 6,
	}},
	{"evidence replicated", &wire.EvidenceFrame{
		First: 5, Count: 2, Evidence: wire.Replicated(2, wire.Flushed),
		Offset: 20, Term: 6,
	}},
	{"refused", &wire.Refused{Seq: 9, Code: wire.DiskFull, Detail: "no room"}},
	{"below", &wire.Below{Seq: 9, Evidence: wire.Stored(wire.Flushed), Offset: 4, Term: 2, Code: wire.NotOffered}},
	{"indeterminate", &wire.Indeterminate{Seq: 9, Code: wire.StoreFailed, Detail: "flush"}},
	{"deliver", &wire.Deliver{Offset: 17, Attempt: 1, Term: 6, Digest: digest, Body: []byte("hello")}},
	{"deliver large", &wire.Deliver{
		Offset: 18, Attempt: 2, Term: 6, Digest: digest, Large: true, Stream: 7,
		Length: 70_000,
	}},
	{"credit", &wire.Credit{Limit: 512}},
	{"settle", &wire.Settle{Offset: 17, Attempt: 1, Term: 6, Verb: wire.Accept}},
	{"settled", &wire.Settled{Offset: 17, Attempt: 1}},
	{"settled stale", &wire.Settled{Offset: 17, Attempt: 1, Code: wire.StaleSettle}},
	{"opened for a producer with id", &wire.Opened{
		Offer: wire.Stored(wire.Flushed), MessageMax: 1 << 30, InFlight: 1024,
		InFlightSize: 16 << 20, Low: 70, Next: 71,
	}},
	{"deliver of a producer with id", &wire.Deliver{
		Offset: 17, Attempt: 1, Term: 6, Digest: digest, Producer: "p1", Seq: 70, Body: []byte("hello"),
	}},
	{"open peek", &wire.OpenPeek{Queue: "demo", From: 17, Count: 10}},
	{"peek end", &wire.PeekEnd{Next: 27, More: true}},
	{"purge", &wire.Purge{Queue: "demo"}},
	{"purged", &wire.Purged{Count: 300, Left: 2}},
	{"unsubscribe", &wire.Unsubscribe{Queue: "demo", Subscription: "s"}},
	{"retire", &wire.Retire{Queue: "demo", Producer: "p1"}},
	{"done", &wire.Done{}},
	{"redirect", &wire.Redirect{Queue: "demo", Term: 7, Node: [32]byte{1, 2, 31: 32}, Host: "n2.example", Port: 7443}},
	{"forwarded", &wire.Forwarded{Client: [32]byte{9, 8, 31: 1}}},
	{"single", &wire.Single{}},
	{"publish within", &wire.Publish{
		Seq: 3, Low: 1, Want: wire.Replicated(3, wire.Flushed), Within: 1500, Body: []byte("hello"),
	}},
	{"error", &wire.ErrorFrame{Code: wire.UnknownQueue, Detail: `The name was "nope"`}},
}

// number draws QUIC varints of every length.
func number(t *rapid.T, label string) uint64 {
	return rapid.OneOf(
		rapid.Uint64Range(0, 63), rapid.Uint64Range(64, 16383),
		rapid.Uint64Range(16384, 1<<30-1), rapid.Uint64Range(1<<30, 1<<62-1),
	).Draw(t, label)
}

func blob(t *rapid.T, limit int, label string) []byte {
	n := rapid.OneOf(rapid.IntRange(0, 40), rapid.Just(limit), rapid.IntRange(0, limit)).Draw(t, label+" length")
	fill := rapid.Byte().Draw(t, label)
	b := make([]byte, n)
	for i := range b {
		b[i] = fill + byte(i)
	}
	return b
}

func anyEvidence(t *rapid.T) wire.Evidence {
	p := rapid.SampledFrom([]wire.Persistence{wire.Written, wire.Flushed}).Draw(t, "persistence")
	switch rapid.IntRange(0, 2).Draw(t, "level") {
	case 0:
		return wire.Accepted()
	case 1:
		return wire.Stored(p)
	}
	return wire.Replicated(rapid.Uint32Range(2, wire.ReplicasMax).Draw(t, "replicas"), p)
}

func storedEvidence(t *rapid.T) wire.Evidence {
	return rapid.Custom(anyEvidence).Filter(func(e wire.Evidence) bool { return e.Replicas > 0 }).Draw(t, "stored")
}

func anyCode(t *rapid.T) wire.Code {
	return wire.Code(rapid.Uint64Range(1, 1<<40).Draw(t, "code"))
}

// anyFrame draws a frame whose every field is within its bounds.
func anyFrame(t *rapid.T) wire.Frame {
	kind := rapid.IntRange(1, int(wire.TypePublishWithin)).Draw(t, "type")
	detail := string(blob(t, 300, "detail"))
	switch wire.Type(kind) {
	case wire.TypeOpenProducer:
		return &wire.OpenProducer{
			Queue:    string(blob(t, wire.QueueMax, "queue")),
			Producer: string(blob(t, wire.IDMax, "producer")), Want: anyEvidence(t),
		}
	case wire.TypeOpenConsumer:
		return &wire.OpenConsumer{
			Queue:        string(blob(t, wire.QueueMax, "queue")),
			Subscription: string(blob(t, wire.IDMax, "subscription")), Credit: number(t, "credit"),
		}
	case wire.TypeOpened:
		return &wire.Opened{
			Offer: anyEvidence(t), MessageMax: number(t, "max"), InFlight: number(t, "n"),
			InFlightSize: number(t, "size"), Delivered: number(t, "delivered"), Limit: number(t, "limit"),
			Low: number(t, "low"), Next: number(t, "next"),
		}
	case wire.TypePublish, wire.TypePublishWithin:
		f := &wire.Publish{Seq: number(t, "seq"), Low: number(t, "low"), Headers: blob(t, wire.HeadersMax, "headers")}
		if rapid.Bool().Draw(t, "want of its own") {
			f.Want = anyEvidence(t)
		}
		if wire.Type(kind) == wire.TypePublishWithin {
			f.Within = rapid.Uint64Range(1, wire.WithinMax).Draw(t, "within")
		}
		f.Large, f.Stream, f.Length, f.Body = anyBody(t)
		return f
	case wire.TypeEvidence:
		f := &wire.EvidenceFrame{First: number(t, "first"), Count: max(1, number(t, "count")), Evidence: anyEvidence(t)}
		if f.Evidence.Replicas > 0 {
			f.Offset, f.Term = number(t, "offset"), number(t, "term")
		}
		return f
	case wire.TypeRefused:
		return &wire.Refused{Seq: number(t, "seq"), Code: anyCode(t), Detail: detail}
	case wire.TypeBelow:
		return &wire.Below{
			Seq: number(t, "seq"), Evidence: storedEvidence(t), Offset: number(t, "offset"),
			Term: number(t, "term"), Code: anyCode(t), Detail: detail,
		}
	case wire.TypeIndeterminate:
		return &wire.Indeterminate{Seq: number(t, "seq"), Code: anyCode(t), Detail: detail}
	}
	return anyConsumerFrame(t, wire.Type(kind), detail)
}

func anyConsumerFrame(t *rapid.T, kind wire.Type, detail string) wire.Frame {
	switch kind {
	case wire.TypeDeliver:
		f := &wire.Deliver{
			Offset: number(t, "offset"), Attempt: number(t, "attempt"), Term: number(t, "term"),
			Digest: digest, Headers: blob(t, wire.HeadersMax, "headers"),
			Producer: string(blob(t, wire.IDMax, "producer")), Seq: number(t, "seq"),
		}
		f.Large, f.Stream, f.Length, f.Body = anyBody(t)
		return f
	case wire.TypeCredit:
		return &wire.Credit{Limit: number(t, "limit")}
	case wire.TypeSettle:
		return &wire.Settle{
			Offset: number(t, "offset"), Attempt: number(t, "attempt"), Term: number(t, "term"),
			Verb: rapid.SampledFrom([]wire.Verb{wire.Accept, wire.Release, wire.Reject}).Draw(t, "verb"),
		}
	case wire.TypeSettled:
		return &wire.Settled{Offset: number(t, "offset"), Attempt: number(t, "attempt"), Code: wire.Code(number(t, "code"))}
	case wire.TypeError:
		return &wire.ErrorFrame{Code: anyCode(t), Detail: detail}
	case wire.TypeBodyHead:
		return &wire.BodyHead{Length: number(t, "length")}
	}
	return anyManageFrame(t, kind)
}

func anyManageFrame(t *rapid.T, kind wire.Type) wire.Frame {
	name := string(blob(t, wire.QueueMax, "queue"))
	id := string(blob(t, wire.IDMax, "id"))
	switch kind {
	case wire.TypeOpenPeek:
		return &wire.OpenPeek{Queue: name, From: number(t, "from"), Count: number(t, "count")}
	case wire.TypePeekEnd:
		return &wire.PeekEnd{Next: number(t, "next"), More: rapid.Bool().Draw(t, "more")}
	case wire.TypePurge:
		return &wire.Purge{Queue: name}
	case wire.TypePurged:
		return &wire.Purged{Count: number(t, "count"), Left: number(t, "left")}
	case wire.TypeUnsubscribe:
		return &wire.Unsubscribe{Queue: name, Subscription: id}
	case wire.TypeRetire:
		return &wire.Retire{Queue: name, Producer: id}
	case wire.TypeDone:
		return &wire.Done{}
	case wire.TypeRedirect:
		return &wire.Redirect{
			Queue: name, Term: number(t, "term"), Node: fingerprint(t), Host: "h" + string(blob(t, wire.HostMax-1, "host")),
			Port: rapid.Uint64Range(1, 65535).Draw(t, "port"),
		}
	case wire.TypeForwarded:
		return &wire.Forwarded{Client: fingerprint(t)}
	case wire.TypeSingle:
		return &wire.Single{}
	}
	panic("no generator for " + kind.String())
}

func fingerprint(t *rapid.T) [32]byte {
	return [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "fingerprint"))
}

func anyBody(t *rapid.T) (large bool, stream, length uint64, body []byte) {
	if rapid.Bool().Draw(t, "large") {
		return true, number(t, "stream"), rapid.Uint64Range(wire.InlineMax+1, 1<<62-1).Draw(t, "length"), nil
	}
	return false, 0, 0, blob(t, wire.InlineMax, "body")
}

// same compares frames; absent and empty bytes are the same on the wire.
func same(a, b wire.Frame) bool { return reflect.DeepEqual(filled(a), filled(b)) }

func filled(f wire.Frame) any {
	v := reflect.ValueOf(f).Elem()
	w := reflect.New(v.Type()).Elem()
	w.Set(v)
	for i := range w.NumField() {
		if field := w.Field(i); field.Type() == reflect.TypeFor[[]byte]() && field.IsNil() {
			field.SetBytes([]byte{})
		}
	}
	return w.Interface()
}
