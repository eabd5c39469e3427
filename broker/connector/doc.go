// Package connector moves messages between a queue and something that is not weida.
//
// What it is for: a Connector of the registry names a foreign source or sink, its address, its policy and the
// queue it attaches to (T-10), and says which evidence it gives and what may be lost (T-11, D-19). This package
// runs one. The one protocol is "file": a source publishes the lines of a local file, a sink appends messages to
// one. A connector is a client like any other: it speaks through broker/client, with an address and an identity
// that it is given, and needs nothing of the control group while it runs (T-49, B-230.2).
//
// What it promises, as a source: every finished line of the file is in the queue once, with at least the evidence of
// the spec, under the producer id connector-UID and its line number as sequence. The position is what the broker has
// confirmed: when it starts, the queue says how far it knows the producer, the lines that may have been under way are
// sent again under the same sequences, and the queue answers for those that it has. A state file beside saves the
// search through the file, shows that the file is still the one that was read, and holds where a source that starts
// at the end began; without it nothing is lost or doubled. Lines come in order, but for one that the queue refuses
// for the moment: those behind it that were under way come before it. A line that was stored with less than was
// asked is not sent again: Status counts it.
//
// As a sink: a message is accepted only when its record is flushed and the state file says so; at-least-once. What a
// crash left behind that mark is cut at the next start, so the file holds whole records only: the file belongs to the
// sink alone.
//
// Who may call: Run once at a time; Status and Forget from any goroutine, Forget while Run does not run. Options.Wake
// is called by Run's goroutines and must not block.
//
// Lifecycle: New, Run until its context ends, or until a source that does not follow its file has its end; Run may be
// called again, in this life or another, here or on another node that has the directory. Forget takes away what a
// connector left in the queue and in its directory, when the resource is deleted. A lock in the directory keeps a
// second one with the same uid out.
//
// On failure: Run tries again after a pause that grows up to a bound, for ever, and Status says what stands in the way
// and what it means for the data; it gives up only a spec that this build cannot make true (*SpecError). Memory is
// bounded by the messages under way, whatever the length of a line or message.
//
// The words of evidence and loss are explained in spec.go, the rules of the state file in state.go.
package connector
