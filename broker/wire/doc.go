// Package wire is the bytes on every messaging stream, and the one table of error codes.
//
// # What it is for
//
// A stream carries frames one after another: a varint type, a varint payload length, the payload.
// Varints are QUIC's. Client and broker share this package and nothing else.
//
// # What it promises
//
//   - Decoding is strict: an unknown type, an undefined value, a length beyond the frame's bound or
//     bytes left over is a *FormatError, never a guess. `Stored` without a level and `Replicated`
//     of fewer than two cannot be decoded (D-4, D-6).
//   - Decoding allocates at most the bytes that arrived; no length from the wire is trusted before its bound.
//   - Decode(Encode(f)) = f for every frame that Encode takes.
//   - Evidence has a partial order and no total one: Covers compares per axis (D-12, D-13).
//
// # Who may call what
//
// Frames are plain values. A Reader or Writer belongs to one goroutine at a time.
//
// # On failure
//
// After an error from a Reader the stream is unusable: nothing is known of where the next frame
// begins. The frames, byte by byte, are in docs/reference/protocol.md.
package wire
