package broker

import (
	"errors"
	"log/slog"
	"testing"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// taking is a group that takes every proposal and does nothing with it.
type taking struct{ raftstore.Group }

// Propose implements raftstore.Group.
func (taking) Propose(*raftstore.Batch) error { return nil }

// begun is a registry that leads and has one change under way, at entry 70 of term 2, whose proposer waits.
func begun(t *testing.T) (*registry, *change) {
	t.Helper()
	r := newRegistry(slog.New(slog.DiscardHandler))
	r.Attach(taking{})
	r.Role(raftstore.LeaderRole, 2, raftstore.Leader{Replica: 1, Node: 1})
	c := &change{command: control.Command{Mutation: &control.Mutation{
		Verb: control.Apply, Kind: control.KindQueue, Name: "q", Queue: &control.QueueSpec{Replicas: 1}, At: 1,
	}}.Append(nil), answer: make(chan error, 1)}
	r.mu.Lock()
	r.enqueueLocked(c)
	r.mu.Unlock()
	r.Appended(c.tag, 2, 70)
	r.Role(raftstore.Follower, 3, raftstore.Leader{})
	return r, c
}

// A change whose leader was deposed ends by what stands at its index: its own entry, another one, or a snapshot in
// whose shade nobody knows. Only the first is done (W-72).
func TestChangeOfADeposedLeader(t *testing.T) {
	moved := raftstore.Marks{Term: 3, Committed: 71, Applied: 71}
	r, c := begun(t)
	r.Apply(2, 70, []raftstore.Item{{Command: c.command}})
	r.Moved(moved)
	if err := <-c.answer; err != nil || c.result.Queue == nil {
		t.Errorf("its own entry: %v, %+v", err, c.result)
	}

	r, c = begun(t)
	r.Apply(3, 70, nil)
	r.Moved(moved)
	if err := <-c.answer; !errors.Is(err, errNotLeading) {
		t.Errorf("another leader's entry: %v", err)
	}

	r, c = begun(t)
	if err := r.Restore(registrySnapshot(control.NewState().Snapshot())); err != nil {
		t.Fatal(err)
	}
	r.Moved(moved)
	var unknown *wire.Error
	if err := <-c.answer; !errors.As(err, &unknown) || unknown.Code != wire.MutationIndeterminate {
		t.Errorf("a snapshot: %v", err)
	}
}

// What a deposed leader had under way may stand beyond the end of the log that it leads again later: it does not keep
// other changes from being proposed, whose entries decide it.
func TestChangesBehindTheOldOnes(t *testing.T) {
	r, old := begun(t)
	for i := range raftstore.Index(changesUnderWay) {
		c := &change{command: old.command, answer: make(chan error, 1), tag: 1000 + uint64(i), term: 2, index: 71 + i}
		r.underWay = append(r.underWay, c)
	}
	r.Role(raftstore.LeaderRole, 4, raftstore.Leader{Replica: 1, Node: 1})
	c := &change{command: old.command, answer: make(chan error, 1)}
	r.mu.Lock()
	r.enqueueLocked(c)
	r.mu.Unlock()
	if c.tag == 0 {
		t.Fatal("it is not proposed")
	}
	r.Appended(c.tag, 4, 70)
	r.Apply(4, 70, []raftstore.Item{{Command: c.command}})
	r.Moved(raftstore.Marks{Term: 4, Committed: 70, Applied: 70})
	if err := <-old.answer; !errors.Is(err, errNotLeading) {
		t.Errorf("the old one: %v", err)
	}
	if err := <-c.answer; err != nil {
		t.Errorf("the new one: %v", err)
	}
}
