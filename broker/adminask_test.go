package broker

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// What one node asks another comes back as the other knows it, refusals with their codes.
func TestNodesAskEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.make("a", control.QueueSpec{})
	asker, asked := &Node{}, r.node
	asker.askNode = func(ctx context.Context, to raftstore.NodeID, request []byte) ([]byte, error) {
		if to != 2 {
			return nil, errors.New("nobody is there")
		}
		return asked.answerNode(ctx, request)
	}
	for {
		got, err := asker.ask(t.Context(), 2, nodeAsk{Op: "groups"})
		if err != nil {
			t.Fatal(err)
		}
		want := asked.Local()
		got.Facts.At = want.At
		if reflect.DeepEqual(*got.Facts, want) && len(want.Groups) >= 2 {
			break
		}
		if r.ctx.Err() != nil { // until then a flush may have come between
			t.Fatalf("told %+v, it knows %+v", *got.Facts, want)
		}
	}
	var no *wire.Error
	_, err := asker.ask(t.Context(), 2, nodeAsk{Op: "transfer", Group: uint64(controlGroup), To: 3})
	if !errors.As(err, &no) || no.Code != wire.NoGroup {
		t.Errorf("a transfer of what has no group: %v", err)
	}
	if _, err := asker.ask(t.Context(), 2, nodeAsk{Op: "slip"}); err == nil {
		t.Error("something that no node answers was answered")
	}
	if _, err := asker.ask(t.Context(), 3, nodeAsk{Op: "groups"}); err == nil {
		t.Error("nobody answered, and there is an answer")
	}
	if _, err := (&Node{}).ask(t.Context(), 2, nodeAsk{Op: "groups"}); err == nil {
		t.Error("a node that knows no other got an answer")
	}
	var _ admin.Node = asked
}
