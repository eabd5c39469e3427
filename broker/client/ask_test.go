package client_test

import (
	"testing"

	"weida/broker/wire"
)

// TestAnsweredBeforeItsEnd: a broker that has read a request and wants no more of the stream answers it
// all the same, and what it answered counts. (With an error of ending the stream instead, a few of these
// requests failed as lost.)
func TestAnsweredBeforeItsEnd(t *testing.T) {
	s := newScript(t)
	const requests = 500
	go func() {
		for range requests {
			stream, err := s.conn.AcceptStream(s.ctx)
			if err != nil {
				return
			}
			if _, err := wire.NewReader(stream).Next(); err != nil {
				return
			}
			stream.CancelRead(0)
			if _, err := stream.Write(wire.Append(nil, &wire.Done{})); err != nil {
				return
			}
			_ = stream.Close() // the client may have given it up before
			stream.ReleaseStreamCredit()
		}
	}()
	for i := range requests {
		if err := s.c.Unsubscribe(s.ctx, "demo", "s"); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
}
