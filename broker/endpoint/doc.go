// Package endpoint owns the UDP socket, the keys and who may connect.
//
// # What it is for
//
// Client and broker, and broker and broker, meet over QUIC with TLS 1.3 and a certificate on both sides. A
// certificate is only a vessel for a key: who somebody is, is the SHA-256 fingerprint of the public
// key that was proved in the handshake (T-7), and what it may do is the role that the trust set gives it.
//
// # What it promises
//
//   - No connection exists whose peer did not prove a trusted key; nothing is decoded before.
//   - Every limit that QUIC has is set here, on both sides; no early data, no datagrams.
//   - Private keys are readable by their owner alone, or refused.
//
// # Who may call what
//
// Any goroutine. A stream belongs to one reader and one writer at a time.
//
// # On failure
//
// Errors are typed: *UntrustedError, *UnreachableError, *KeyError. They say what to do.
package endpoint
