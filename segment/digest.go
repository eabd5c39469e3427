package segment

import (
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// DigestOf returns the digest of a whole body.
func DigestOf(b []byte) Digest { return Digest(xxh3.Hash128(b).Bytes()) }

// Hasher computes the digest of a body that arrives in pieces. The zero value is ready.
type Hasher struct{ h xxh3.Hasher }

// Write adds b to the body. It never fails.
func (h *Hasher) Write(b []byte) (int, error) { return h.h.Write(b) }

// Sum returns the digest of what was written so far; more may be written after it.
func (h *Hasher) Sum() Digest { return Digest(h.h.Sum128().Bytes()) }

// Reset forgets what was written.
func (h *Hasher) Reset() { h.h.Reset() }

// NewSalt draws a salt from rand, which must be unpredictable enough that two files of one group
// never get the same; it is never 0.
func NewSalt(rand io.Reader) (Salt, error) {
	var b [8]byte
	for {
		if _, err := io.ReadFull(rand, b[:]); err != nil {
			return 0, fmt.Errorf("segment: draw a salt: %w", err)
		}
		if s := le.Uint64(b[:]); s != 0 {
			return Salt(s), nil
		}
	}
}
