// Package client is how a Go program publishes to and consumes from weida.
//
// # What it promises
//
//   - Every message that Send took ends in exactly one Result: ok with evidence, refused (not stored),
//     below_request, or indeterminate. A lost connection makes what is unanswered indeterminate, never
//     refused.
//   - Evidence is what the broker achieved; it covers what was asked, or the outcome is not ok. A broker
//     that says otherwise, or answers twice, breaks the protocol and is not listened to any further.
//   - A delivery's body is checked against its digest before its last byte is given.
//   - Memory is bounded by the windows; a large body is streamed.
//
// # Who may call what
//
// Client, Producer and Consumer: any goroutine, but a Producer's messages get their order from the order of
// Send, and one goroutine at a time iterates over a Consumer's Deliveries. The done function of Send is
// called on the stream's goroutine, before the message's place in the window is free: it must not block,
// nor call Send.
//
// # Lifecycle
//
// Dial, then any number of producers and consumers; each is closed by who opened it, then the Client.
//
// # On failure
//
// Errors are *wire.Error from the broker, *endpoint.UnreachableError and *endpoint.UntrustedError from
// connecting, *LostError when the connection ends in use, *ProtocolError from a broker that breaks the
// protocol. A Producer or Consumer whose stream failed stays failed; open another.
package client
