package control

import "testing"

func TestSmoke(t *testing.T) {
	s := NewState()
	r := s.Apply(3, Command{Mutation: &Mutation{Verb: Apply, Kind: KindQueue, Name: "a", Queue: &QueueSpec{}, At: 1}})
	if r.Err != nil || !r.Changed || r.Queue.Metadata.UID != 3 {
		t.Fatalf("%+v", r)
	}
	back, err := Restore(s.Snapshot())
	if err != nil || string(back.Snapshot()) != string(s.Snapshot()) {
		t.Fatal(err)
	}
}
