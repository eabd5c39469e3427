// Package client is how a Go program publishes to and consumes from weida.
//
// # A short tour
//
// Dial connects with a key to nodes that are trusted by theirs. A Producer publishes to one queue:
// Publish waits for the Result of one message, Send calls back with it, and the Result's Outcome is ok with
// Evidence, refused, below_request or indeterminate. A Producer with an ID sends again what a lost
// connection left unanswered, and no message is stored twice. A Consumer yields Deliveries, each of which
// is settled by Accept, Release or Reject; with a Subscription it goes on where it stopped. Peek looks
// without taking, Purge empties a queue, Unsubscribe and Retire forget what is not needed any more. Queues are
// made by an administrator: publishing and consuming never make one. The package's example is a whole program;
// docs/how-to/write-a-program.md has it ready for copying, with how to use this module from another.
//
// # What it promises
//
//   - Every message that Send took ends in exactly one Result. What is indeterminate is never called
//     refused, nor the reverse: a refusal of what was sent again says nothing of the first time.
//   - With an ID everything unanswered is sent again, in order, under the same sequences, naming the
//     lowest that is not resolved. Without, nothing is sent twice.
//   - Evidence is what the broker achieved; it covers what was asked, or the outcome is not ok. A broker
//     that says otherwise, or answers twice, breaks the protocol and is not listened to any further.
//   - A delivery's body is checked against its digest before its last byte is given.
//   - Memory is bounded by the windows; a large body is streamed.
//
// # Who may call what
//
// Client, Producer and Consumer: any goroutine, but a Producer's messages get their order from the order of
// Send, and one goroutine at a time iterates over a Consumer's Deliveries. The done function of Send is
// called on the producer's own goroutine, one at a time, before the message's place in the window is free: it
// must not block, nor call Send, Flush or Close.
//
// # Lifecycle
//
// Dial, then any number of producers and consumers; each is closed by who opened it, then the Client. A
// connection that ended is made again when something is asked for, and by a Producer with an ID or a
// Consumer with a Subscription also by itself, within its Patience.
//
// # On failure
//
// Errors are *wire.Error from the broker, whose Code tells them apart (errors.As; wire.Codes is the table of
// what each means for the data and what to do); *endpoint.UnreachableError and *endpoint.UntrustedError from
// connecting; *LostError when a connection ends in use, or could not be made again; *ProtocolError from a
// broker that breaks the protocol; ErrClosed; ctx's. A Producer or Consumer that has ended stays so; open
// another. The protocol, byte by byte, is in docs/reference/protocol.md.
package client
