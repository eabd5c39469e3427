// Package broker puts a node together: the data directory, the groups on it, the sessions of clients.
//
// # What it is for
//
// A Node is one process, one data directory, one key pair. It serves queues over QUIC to clients
// whose key it trusts. Which queues there are stands in the registry, the state machine of the control log
// (group 1); a reconciler makes, configures and removes their groups. A queue is served by its owner, or by the
// leader of its group; whoever asks another node is sent there, or forwarded.
//
// # What it promises
//
//   - An acknowledgement names the evidence that was achieved when it was sent, never what was asked
//     (D-17), and is not sent before that covers what was asked. What the queue cannot offer is refused (D-11, T-33).
//   - Every message that was read from a producer ends in exactly one of: evidence, refused (not stored),
//     below request, indeterminate; the last also when the connection ends before the answer.
//   - A settle is answered when it is committed, applied, and as durable as the queue is.
//   - Nothing is done to a disk for a change of the registry that is not flushed.
//   - Memory is bounded: per producer by its window, per queue by the group's inbox, per consumer by its
//     unsettled messages; large bodies pass through in pieces.
//
// # Who may call what
//
// Any goroutine. A queue's state is touched by its group's shard alone.
//
// # On failure
//
// A client's error ends its stream with one typed frame. A group that turns read-only refuses its queue's
// messages; other queues go on. When storage fails as a whole, Failed is closed and the process must end.
package broker
