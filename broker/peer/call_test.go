package peer

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"weida/raftstore"
)

// A node asks another one: the answer, the refusal and the end of the link all reach the caller, and what is too long
// for a stream's head is no transfer.
func TestCall(t *testing.T) {
	stuck := make(chan struct{})
	serve := func(ctx context.Context, from raftstore.NodeID, request []byte) ([]byte, error) {
		switch string(request[:1]) {
		case "r":
			return nil, errors.New("not today")
		case "s":
			close(stuck)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return append([]byte{byte(from)}, request...), nil
	}
	r := newRig(t, 2, func(o *Options) { o.Serve = serve })
	r.meet()
	a := r.nodes[0].links
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	long := bytes.Repeat([]byte("e"), 1<<20)
	got, err := a.Call(ctx, 2, long)
	if err != nil || !bytes.Equal(got, append([]byte{1}, long...)) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	var refused *StreamRefusedError
	if _, err := a.Call(ctx, 2, []byte("r")); !errors.As(err, &refused) || refused.Reason != "not today" {
		t.Errorf("refused: %v", err)
	}
	var down *DownError
	if _, err := a.Call(ctx, 9, []byte("e")); !errors.As(err, &down) {
		t.Errorf("nobody: %v", err)
	}
	ended := make(chan error)
	go func() {
		_, err := a.Call(ctx, 2, []byte("s"))
		ended <- err
	}()
	<-stuck
	r.nodes[1].close()
	if err := <-ended; err == nil {
		t.Error("a call of a node that is gone was answered")
	}
}
