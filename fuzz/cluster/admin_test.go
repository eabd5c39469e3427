package cluster

import (
	"fmt"
	"net/http"
	"time"

	"weida/broker/admin"
	"weida/broker/control"
	"weida/broker/wire"
	"weida/fuzz/internal/fleet"
	"weida/fuzz/internal/process"
)

// ask sends a request to a node's HTTP side.
func (r *rig) ask(x *node, method, path string, body any) (process.Reply, error) {
	return x.Ask(r.ctx, method, path, body)
}

func queuePath(name string) string { return fleet.QueuePath(name) }

// change asks one node after another that runs until a change is made.
func (r *rig) change(method, path string, body any) {
	r.t.Helper()
	turn := 0
	r.within(hang, method+" "+path+" is done", func() error {
		list := r.alive()
		turn++
		a, err := r.ask(list[turn%len(list)], method, path, body)
		switch {
		case err != nil:
			return err
		case a.Status < http.StatusBadRequest:
			return nil
		case a.Code == wire.NotCommitted || a.Code == wire.MutationIndeterminate || a.Code == wire.BeingDeleted ||
			a.Code == wire.Stopping || a.Code == wire.NotReady || a.Code == wire.NoQuorum:
			return fmt.Errorf("%v: %s", a.Code, a.Message)
		}
		r.t.Fatalf("%s %s: %v: %s", method, path, a.Code, a.Message)
		return nil
	})
}

// apply makes a queue what a spec says, and waits until it is.
func (r *rig) apply(name string, spec control.QueueSpec) {
	r.t.Helper()
	r.applyAll(spec, name)
}

// applyAll does so for several, and waits for all.
func (r *rig) applyAll(spec control.QueueSpec, names ...string) {
	r.t.Helper()
	if spec.Durability == "" {
		spec.Durability = control.Flushed
	}
	for _, name := range names {
		r.change(http.MethodPut, queuePath(name), map[string]any{"spec": spec})
	}
	r.observed(names...)
}

// observed waits until queues are as their specs say.
func (r *rig) observed(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.within(hang, "queue "+name+" is as its spec says", func() error {
			q, err := r.queue(name)
			if err != nil {
				return err
			}
			if q.Status.ObservedGeneration != q.Metadata.Generation || q.Status.Phase != control.Ready {
				return fmt.Errorf("generation %d of %d, %+v", q.Status.ObservedGeneration, q.Metadata.Generation, q.Status)
			}
			return nil
		})
	}
}

// queue is what the first node that runs knows of a queue.
func (r *rig) queue(name string) (admin.Queue, error) { return r.alive()[0].Queue(r.ctx, name) }

// status is what all nodes that run say of all groups.
func (r *rig) status() (admin.ClusterStatus, error) { return r.alive()[0].Status(r.ctx) }

// group is one of them: control, or queue/NAME.
func (r *rig) group(name string) (admin.GroupState, error) {
	s, err := r.status()
	if err != nil {
		return admin.GroupState{}, err
	}
	for _, g := range s.Groups {
		if g.Group == name {
			return g, nil
		}
	}
	return admin.GroupState{}, fmt.Errorf("nobody knows of group %s", name)
}

// leader waits until a queue's group is led by a node that runs.
func (r *rig) leader(name string) (x *node) {
	r.t.Helper()
	r.within(hang, "queue "+name+" has a leader", func() error {
		g, err := r.group(admin.QueueGroup(name))
		if err != nil {
			return err
		}
		if g.Leader == "" || !r.named(g.Leader).Alive() {
			return fmt.Errorf("leader %q: %s", g.Leader, g.Why)
		}
		x = r.named(g.Leader)
		return nil
	})
	return x
}

// healthy waits until every group is.
func (r *rig) healthy(most time.Duration) {
	r.t.Helper()
	r.within(most, "every group is healthy", r.sound)
}

// sound says which group is not healthy.
func (r *rig) sound() error {
	s, err := r.status()
	if err == nil && !s.Healthy {
		err = fmt.Errorf("%s is %s: %s; counts %v", s.Groups[0].Group, s.Groups[0].Health, s.Groups[0].Why, s.Counts)
	}
	return err
}
