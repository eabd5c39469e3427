package peer

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"weida/raftstore"
)

// BenchmarkExchanges sends calls of some frames of 300 bytes to a node on loopback, with so many exchanges on their way
// as there may be. exchanges/op shows how many calls were merged.
func BenchmarkExchanges(b *testing.B) {
	for _, frames := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("frames-%d", frames), func(b *testing.B) {
			a, c := benchPair(b)
			list := make([]raftstore.Frame, frames)
			for i := range list {
				list[i] = raftstore.Frame{Group: raftstore.GroupID(i + 1), Data: make([]byte, 300)}
			}
			b.SetBytes(int64(frames * 300))
			sent := 0
			for b.Loop() {
				a.links.Raft(2, 0, list)
				sent += frames
				c.got.atLeast(sent - 64*frames) // what is on its way stays within all bounds
			}
			c.got.atLeast(sent)
			s := a.stats(c)
			b.ReportMetric(float64(s.Sent.Exchanges)/float64(b.N), "exchanges/op")
			b.ReportMetric(float64(s.Sent.Exchanges)/b.Elapsed().Seconds(), "exchanges/s")
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

// BenchmarkExchangeRoundTrip waits for each exchange before the next.
func BenchmarkExchangeRoundTrip(b *testing.B) {
	a, c := benchPair(b)
	list := []raftstore.Frame{frame(1, string(make([]byte, 300)))}
	sent := 0
	for b.Loop() {
		a.links.Raft(2, 0, list)
		sent++
		c.got.atLeast(sent)
	}
}

// BenchmarkPayload sends bodies of 1 KiB in order.
func BenchmarkPayload(b *testing.B) {
	a, c := benchPair(b)
	list := []raftstore.Frame{{Group: 1, Data: make([]byte, 1<<10)}}
	b.SetBytes(1 << 10)
	sent := 0
	for b.Loop() {
		a.links.Payload(2, 0, list)
		sent++
		c.got.atLeast(sent - 1024)
	}
	c.got.atLeast(sent)
}

// BenchmarkTransfer sends 64 MiB on a stream of its own.
func BenchmarkTransfer(b *testing.B) {
	a, c := benchPair(b)
	c.got.stream = func(_ raftstore.NodeID, _ []byte, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	piece := make([]byte, 64<<10)
	b.SetBytes(64 << 20)
	for b.Loop() {
		s, err := a.links.Stream(b.Context(), 2, nil)
		for i := 0; i < 1<<10 && err == nil; i++ {
			_, err = s.Write(piece)
		}
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBeatBesideTransfers waits for one heartbeat after the other while transfers fill the payload connection.
// max-ms is the longest that one took.
func BenchmarkBeatBesideTransfers(b *testing.B) {
	for _, transfers := range []int{0, 1, 8} {
		b.Run(fmt.Sprintf("transfers-%d", transfers), func(b *testing.B) {
			a, c := benchPair(b)
			c.got.stream = func(_ raftstore.NodeID, _ []byte, r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				return err
			}
			var flood sync.WaitGroup
			defer flood.Wait() // when all are given up
			for range transfers {
				s, err := a.links.Stream(b.Context(), 2, nil)
				if err != nil {
					b.Fatal(err)
				}
				flood.Go(func() {
					piece := make([]byte, 64<<10)
					for {
						if _, err := s.Write(piece); err != nil {
							return
						}
					}
				})
				defer s.Cancel()
			}
			longest, n := time.Duration(0), 0
			for b.Loop() {
				began := time.Now()
				a.links.Beat(2, []byte("tick"))
				n++
				c.got.until(b, "a heartbeat", func() bool { return len(c.got.beats) == n })
				longest = max(longest, time.Since(began))
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "max-ms")
		})
	}
}

func benchPair(b *testing.B) (here, there *node) {
	r := newRig(b, 2, nil)
	for _, n := range r.nodes {
		n.got.quiet = true
	}
	r.meet()
	return r.nodes[0], r.nodes[1]
}

// atLeast waits until so many frames have come.
func (g *receiver) atLeast(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.count < n {
		g.changed.Wait()
	}
}
