// Package peer is the links between nodes: it carries what hosts of package raftstore say to each other over QUIC.
//
// # What it is for
//
// Two nodes share two connections, one for consensus and one for bodies, however many groups they have in common
// (T-39, T-44). The node with the smaller fingerprint dials both, to the one UDP port that clients use as well.
//
//	raft connection     an exchange: one shard's messages of one round        a bidirectional stream each
//	                    heartbeats of all groups, one frame per tick          one stream, newest first
//	payload connection  bodies and requests for them, in order per shard      one stream per shard
//	                    a large body, a snapshot                              a bidirectional stream each
//
// # What it promises
//
//   - Nothing is decoded before both sides have proved who they are: key, cluster, node number, disk and incarnation.
//     Nothing of an earlier incarnation is handed over once a later one has shown itself.
//   - Frames of one group come in the order in which they were sent. A frame waits for a gap in its own group's
//     numbers only, and not longer than one heartbeat; then what is missing counts as lost.
//   - A stream that nobody reads delays no other: every stream is read to its end within a bound and waits for no
//     group, and what is on its way on a raft connection never fills its window (T-40, T-41).
//   - At most raft_streams_max exchanges are on their way to a node; what comes beyond is merged into later ones, the
//     oldest is dropped beyond a bound, and both are counted (T-43).
//   - Nothing that comes from the wire is believed before its bound, and memory per node is bounded in both directions.
//
// # Who may call what
//
// Links: any goroutine. Raft, Beat and Payload copy and return; they never block. The Receiver is called from
// goroutines of the links, PeerUp and PeerDown of a node one after the other; it must not call Set or Close.
//
// # Lifecycle
//
// New, Set, then endpoint.Listen with Links.Peers, then Start with the listener. Close ends all connections and returns
// when nothing of the links runs any more; the listener is closed afterwards by who opened it.
//
// # On failure
//
// What cannot be sent is dropped and counted: consensus sends again. A link that is lost is dialled again, at once if
// it had been steady, then with growing pauses. *RefusedError says why a node was turned away, *DownError that it is
// not there, *StreamRefusedError what the other side had against a transfer.
//
// The bytes on the streams are in docs/reference/peer-protocol.md.
package peer
