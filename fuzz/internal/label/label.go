package label

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/zeebo/xxh3"
)

// Label is what a body says of itself in its first line. A body shorter than that line is told apart by producer and
// sequence.
type Label struct {
	Run      uint64 // seed of the run
	Queue    string // never with a space
	UID      uint64 // of the queue that it was sent to
	Producer string // "-" without an id
	Seq      uint64 // 0 without an id
	Message  int    // number of the message in the run
	Length   int    // of the whole body, in bytes
}

const form = "crash %d queue %s uid %d producer %s seq %d message %d length %d digest %016x\n"

// Room is more than any label takes: longer bodies have one.
const Room = 256

// Body makes the message's bytes. The same label makes the same bytes.
func (l Label) Body() []byte {
	rng := rand.New(rand.NewPCG(l.Run, uint64(l.Message)))
	if l.Length < Room {
		return fill(rng, l.Length)
	}
	head := len(l.line(0))
	rest := fill(rng, l.Length-head)
	return append([]byte(l.line(xxh3.Hash(rest))), rest...)
}

func (l Label) line(digest uint64) string {
	return fmt.Sprintf(form, l.Run, l.Queue, l.UID, l.Producer, l.Seq, l.Message, l.Length, digest)
}

func fill(rng *rand.Rand, n int) []byte {
	b := make([]byte, (n+7)/8*8)
	for i := 0; i < n; i += 8 {
		v := rng.Uint64()
		for k := range 8 {
			b[i+k] = byte(v >> (8 * k))
		}
	}
	return b[:n]
}

// Read returns what a body says of itself, nil if it says nothing, or not the truth.
func Read(body []byte) *Label {
	head, _, found := bytes.Cut(body[:min(len(body), Room)], []byte("\n"))
	if !found {
		return nil
	}
	rest := body[len(head)+1:]
	var l Label
	var digest uint64
	_, err := fmt.Sscanf(string(head)+"\n", form, &l.Run, &l.Queue, &l.UID, &l.Producer, &l.Seq, &l.Message,
		&l.Length, &digest)
	if err != nil || l.Length != len(body) || digest != xxh3.Hash(rest) {
		return nil
	}
	return &l
}
