package control

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestErrorsBackOff repeats what is in error after 1, 2, 4 … times the least wait, up to the most, shows
// the reason, and goes on as soon as it is woken.
func TestErrorsBackOff(t *testing.T) {
	full := &Trouble{Reason: "DiskFull", Message: "no space is left; nothing was made; free some"}
	n := &node{err: map[uint64]error{2: fmt.Errorf("opening: %w", full)}}
	n.start(t, Options{BackoffMin: 10, BackoffMax: 60})
	n.apply("a", QueueSpec{})
	var waits []int64
	for range 6 {
		waits = append(waits, n.settle())
		n.now += waits[len(waits)-1]
	}
	if want := []int64{10, 20, 40, 60, 60, 60}; !slices.Equal(waits, want) || n.ensures != 6 {
		t.Errorf("waits %v, %d calls", waits, n.ensures)
	}
	q, _ := n.s.Queue("a")
	want := Condition{CondGroup, "DiskFull", "opening: " + full.Message}
	if q.Status.Phase != Pending || q.Status.ObservedGeneration != 0 || q.Status.Conditions[0] != want {
		t.Errorf("%+v", q.Status) // T-23: pending, with the reason
	}
	if n.proposed != 1 {
		t.Errorf("one reason took %d entries", n.proposed)
	}
	n.settle()
	delete(n.err, 2)
	n.r.Wake(2)
	if wait := n.settle(); wait != Idle {
		t.Errorf("woken, and still waits %d", wait)
	}
	if q, _ := n.s.Queue("a"); q.Status.Phase != Ready {
		t.Errorf("%+v", q.Status)
	}

	// Trouble of one that was ready: degraded, and the same generation is done.
	n.err[2] = errors.New("poisoned")
	n.r.Wake(2)
	if wait := n.settle(); wait != 10 {
		t.Errorf("the back-off did not begin anew: %d", wait)
	}
	q, _ = n.s.Queue("a")
	if q.Status.Phase != Degraded || q.Status.ObservedGeneration != 1 || q.Status.Conditions[0].Reason != "Error" {
		t.Errorf("%+v", q.Status)
	}
	n.apply("a", QueueSpec{Limits: QueueLimits{Messages: 1}})
	n.settle()
	if q, _ = n.s.Queue("a"); q.Status.ObservedGeneration != 1 || q.Metadata.Generation != 2 {
		t.Errorf("observed before it was done: %+v", q) // T-24
	}
	delete(n.err, 2)
	n.now += 60
	n.settle()
	if q, _ = n.s.Queue("a"); q.Status.ObservedGeneration != 2 || q.Status.Phase != Ready {
		t.Errorf("%+v", q)
	}
}

// TestNewSpecBeginsAnew: what is wanted in another way is tried at once, and soon again.
func TestNewSpecBeginsAnew(t *testing.T) {
	n := &node{err: map[uint64]error{2: errors.New("broken")}}
	n.start(t, Options{BackoffMin: 10})
	n.apply("a", QueueSpec{})
	for range 6 {
		n.now += n.settle()
	}
	n.settle()
	before := n.ensures
	n.apply("a", QueueSpec{Limits: QueueLimits{Messages: 1}})
	if wait := n.settle(); wait != 10 || n.ensures != before+1 {
		t.Errorf("wait %d, %d calls", wait, n.ensures-before)
	}
}

// TestTroubleHoldsUpNobody has every second queue in error, and all others get ready in the same moment.
func TestTroubleHoldsUpNobody(t *testing.T) {
	n := &node{err: map[uint64]error{}}
	n.start(t, Options{})
	for i := range 50 {
		n.apply(fmt.Sprint("q", i), QueueSpec{})
		if i%2 == 0 {
			n.err[n.s.Version()] = errors.New("broken")
		}
	}
	n.settle()
	for _, q := range n.s.Queues() {
		if broken := n.err[q.Metadata.UID] != nil; (q.Status.Phase == Ready) == broken {
			t.Errorf("%s is %s", q.Metadata.Name, q.Status.Phase)
		}
	}
}

// TestIdleCostsNothing: a step that has nothing to do looks at nothing, however many queues there are, and
// one with one change looks at that one.
func TestIdleCostsNothing(t *testing.T) {
	n := &node{}
	n.start(t, Options{})
	for i := range 1000 {
		n.apply(fmt.Sprint("q", i), QueueSpec{})
	}
	if wait := n.settle(); wait != Idle || n.tasks() != 0 || len(n.r.node.timers) != 0 {
		t.Fatalf("wait %d, %d tasks, %d timers", wait, n.tasks(), len(n.r.node.timers))
	}
	before, version := n.ensures, n.s.Version()
	if allocs := testing.AllocsPerRun(100, func() { n.r.Step(n.now, n.s) }); allocs != 0 || n.ensures != before {
		t.Errorf("an idle step makes %v allocations and %d calls", allocs, n.ensures-before)
	}
	n.apply("q7", QueueSpec{}) // the same again (T-17)
	if n.settle() != Idle || n.ensures != before || n.s.Version() != version+1 {
		t.Errorf("%d calls for an apply that changed nothing", n.ensures-before)
	}
	n.apply("q7", QueueSpec{Limits: QueueLimits{Messages: 1}})
	if n.settle() != Idle || n.ensures != before+2 { // to do it, and when it is in the registry
		t.Errorf("%d calls for one change", n.ensures-before)
	}
	// A new life asks for each queue once, and writes nothing (T-17: also after a restart).
	n.ensures, n.order, version = 0, nil, n.s.Version()
	n.start(t, Options{})
	if n.settle() != Idle || n.ensures != 1000 || n.s.Version() != version {
		t.Errorf("a restart makes %d calls and %d entries", n.ensures, n.s.Version()-version)
	}
}

// TestLoadIsInOrder: the same registry leads to the same calls.
func TestLoadIsInOrder(t *testing.T) {
	n := &node{}
	n.start(t, Options{})
	for i := range 50 {
		n.apply(fmt.Sprint("q", i*7%50), QueueSpec{})
	}
	n.settle()
	n.order = nil
	n.start(t, Options{})
	n.settle()
	if len(n.order) != 50 || !slices.IsSorted(n.order) {
		t.Error(n.order)
	}

	// Also of the connectors that a queue brings into motion.
	spec := connectorSpec()
	spec.Queue = "late"
	for i := range 50 {
		n.mutate(Mutation{Verb: Apply, Kind: KindConnector, Name: fmt.Sprint("c", i*7%50), Connector: &spec})
	}
	n.settle()
	n.order = nil
	n.apply("late", QueueSpec{})
	n.settle()
	n.observed = slices.DeleteFunc(n.observed, func(uid uint64) bool { _, ok := n.s.QueueOf(uid); return ok })
	if len(n.observed) != 100 || !slices.IsSorted(n.observed[50:]) {
		t.Error(n.observed)
	}
}

// TestErrorOfSlowWorkIsWrittenOnce: work that is started, errs, and is started again says so once, also
// while draining; the log does not grow with the attempts (field case 39).
func TestErrorOfSlowWorkIsWrittenOnce(t *testing.T) {
	n := &node{turns: true, err: map[uint64]error{2: errors.New("broken")}}
	n.start(t, Options{})
	n.apply("a", QueueSpec{})
	attempts := func() {
		for range 20 {
			n.now += n.settle()
		}
	}
	attempts()
	if n.proposed != 1 || n.ensures < 20 {
		t.Errorf("%d entries for %d attempts", n.proposed, n.ensures)
	}
	delete(n.err, 2)
	for wait := n.settle(); wait != Idle; wait = n.settle() {
		n.now += wait
	}
	n.err[2], n.proposed = errors.New("broken"), 0
	n.mutate(Mutation{Verb: Delete, Kind: KindQueue, Name: "a", Drain: new(Duration(24 * time.Hour))})
	attempts()
	if n.proposed != 1 {
		t.Errorf("%d entries while draining", n.proposed)
	}
	delete(n.err, 2)
	n.left = 1
	attempts()
	q, _ := n.s.Queue("a")
	if n.proposed != 2 || len(q.Status.Conditions) != 1 {
		t.Errorf("%d entries, %+v", n.proposed, q.Status)
	}
}

// TestStepIsBounded: a step takes StepMax resources, in the order of asking, and says that there are more.
func TestStepIsBounded(t *testing.T) {
	n := &node{}
	n.start(t, Options{StepMax: 10})
	for i := range 25 {
		n.apply(fmt.Sprint("q", i), QueueSpec{})
	}
	n.placeAll()
	for _, want := range []int{10, 20, 25} {
		wait := n.r.Step(n.now, n.s)
		if n.ensures != want || (wait == 0) != (want < 25) {
			t.Errorf("%d of %d after a step, wait %d", n.ensures, want, wait)
		}
	}
}

// TestWakingItselfDoesNotSpin: a runtime that wakes from within a call is asked again in the next step.
func TestWakingItselfDoesNotSpin(t *testing.T) {
	n := &node{waking: true}
	n.start(t, Options{})
	n.apply("a", QueueSpec{})
	n.placeAll()
	if wait := n.r.Step(n.now, n.s); wait != 0 || n.ensures != 1 {
		t.Errorf("wait %d, %d calls", wait, n.ensures)
	}
}

// TestManyWakesOneTimer: what is woken again and again keeps one place on the lists.
func TestManyWakesOneTimer(t *testing.T) {
	n := &node{pending: true}
	n.start(t, Options{})
	n.apply("a", QueueSpec{})
	n.placeAll()
	for range 1000 {
		n.r.Wake(2)
		n.r.Wake(2)
		if len(n.r.node.ready) != 1 {
			t.Fatalf("%d ready", len(n.r.node.ready))
		}
		n.settle()
		n.now++
	}
	if len(n.r.node.timers) != 1 || len(n.r.node.ready) != 0 || n.tasks() != 1 {
		t.Errorf("%d timers, %d ready, %d tasks", len(n.r.node.timers), len(n.r.node.ready), n.tasks())
	}
	n.r.Wake(77) // nobody
	if n.settle(); n.tasks() != 1 {
		t.Errorf("%d tasks", n.tasks())
	}
}

// TestAnswerFromWithin: the entry may be applied before Propose returns.
func TestAnswerFromWithin(t *testing.T) {
	n := &node{within: true}
	n.start(t, Options{})
	n.apply("a", QueueSpec{})
	if n.settle() != Idle {
		t.Error("not idle")
	}
	if q, _ := n.s.Queue("a"); q.Status.Phase != Ready {
		t.Errorf("%+v", q)
	}
	n.delete("a")
	if n.settle() != Idle || len(n.s.Queues()) != 0 || n.tasks() != 0 {
		t.Errorf("%+v, %d tasks", n.s.Queues(), n.tasks())
	}
}

// TestDroppedIsProposedAgain, after a back-off, and once at a time.
func TestDroppedIsProposedAgain(t *testing.T) {
	n := &node{drop: 4}
	n.start(t, Options{BackoffMin: 10, BackoffMax: 40})
	n.apply("a", QueueSpec{})
	n.placeAll()
	var waits []int64
	for range 4 {
		waits = append(waits, n.settle())
		n.now += waits[len(waits)-1]
	}
	if want := []int64{10, 20, 40, 40}; !slices.Equal(waits, want) {
		t.Errorf("waits %v", waits)
	}
	if n.settle() != Idle || n.proposed != 5 {
		t.Errorf("proposed %d times", n.proposed)
	}
	// One that got through ends the row.
	n.drop, n.err = 3, map[uint64]error{2: errors.New("broken")}
	n.r.Wake(2)
	for n.drop > 0 {
		n.now += n.settle()
	}
	for q, _ := n.s.Queue("a"); q.Status.Phase != Degraded; q, _ = n.s.Queue("a") {
		n.now += n.settle()
	}
	n.drop, n.err = 1, nil
	n.r.Wake(2)
	if wait := n.settle(); wait != 10 {
		t.Errorf("wait %d", wait)
	}
}

// TestUnderWayIsNotProposedAgain while the answer is out.
func TestUnderWayIsNotProposedAgain(t *testing.T) {
	n := &node{hold: true}
	n.start(t, Options{})
	n.apply("a", QueueSpec{})
	n.placeAll()
	for range 10 {
		n.r.Wake(2)
		n.settle()
		n.now += 100_000
	}
	if n.proposed != 1 || n.tasks() != 1 || n.ensures != 1 {
		t.Errorf("proposed %d times, %d tasks, %d calls", n.proposed, n.tasks(), n.ensures)
	}
	// What somebody else observed does not end the wait.
	other := Command{Observe: &Observe{Kind: KindQueue, UID: 2, Generation: 1, Epoch: 1, Status: Status{Phase: Degraded}}}
	n.r.Applied(other, n.s.Apply(n.s.Version()+1, other))
	if n.settle(); n.proposed != 1 {
		t.Errorf("proposed %d times", n.proposed)
	}
}

// TestNotOpenedWhileItsEndIsWritten: streams have ended, and that the data goes is on its way to the log; a
// wake must not open the queue for draining once more. Found by TestRandomLives.
func TestNotOpenedWhileItsEndIsWritten(t *testing.T) {
	n := &node{}
	n.start(t, Options{})
	n.apply("a", QueueSpec{})
	n.settle()
	n.hold = true
	n.delete("a")
	n.settle()
	n.ensures = 0
	n.r.Wake(2)
	n.settle()
	if n.ensures != 0 {
		t.Errorf("opened %d times", n.ensures)
	}
	n.hold = false
	if n.settle() != Idle || len(n.s.Queues()) != 0 {
		t.Errorf("%+v", n.s.Queues())
	}
}

// TestRefusedObservationIsMadeAnew: between proposal and entry a deletion came.
func TestRefusedObservationIsMadeAnew(t *testing.T) {
	n := &node{hold: true}
	n.start(t, Options{})
	n.apply("a", QueueSpec{})
	n.settle() // Ready is under way
	n.delete("a")
	n.hold = false
	if n.commit(); n.last.Err == nil || n.last.Err.Reason != Removing {
		t.Fatalf("%+v", n.last)
	}
	for range 10 {
		n.now += max(n.settle(), 0)
	}
	if len(n.s.Queues()) != 0 || n.tasks() != 0 {
		t.Errorf("%+v", n.s.Queues())
	}
}

// TestClockGoesBack: nothing waits for a time that is far away now.
func TestClockGoesBack(t *testing.T) {
	n := &node{err: map[uint64]error{2: errors.New("broken")}}
	n.start(t, Options{})
	n.apply("a", QueueSpec{})
	n.settle()
	delete(n.err, 2)
	n.now -= 3_600_000
	if wait := n.settle(); wait != Idle {
		t.Errorf("waits %d ms", wait)
	}
}

// TestPins keeps a queue that is pinned elsewhere pending, and degrades one that already serves.
func TestPins(t *testing.T) {
	n := &node{}
	n.start(t, Options{Node: "key", Name: "n1", Disk: "d"})
	pin := func(names ...string) QueueSpec { return QueueSpec{Placement: PlacementSpec{Nodes: names}} }
	n.apply("a", pin("n9"))
	n.settle()
	q, _ := n.s.Queue("a")
	if q.Status.Phase != Pending || q.Status.Conditions[0].Reason != "NoSuchNode" || n.ensures != 0 {
		t.Errorf("%+v", q.Status)
	}
	for _, name := range []string{"n1", "key"} {
		n.apply("a", pin(name))
		n.settle()
		if q, _ = n.s.Queue("a"); q.Status.Phase != Ready || q.Status.ObservedGeneration != q.Metadata.Generation {
			t.Errorf("pinned to %s: %+v", name, q.Status)
		}
	}
	done := q.Metadata.Generation
	n.ensures = 0
	n.apply("a", pin("n9"))
	n.settle()
	q, _ = n.s.Queue("a")
	if q.Status.Phase != Degraded || q.Status.ObservedGeneration != done || n.ensures == 0 {
		t.Errorf("%+v", q.Status)
	}
	n.apply("b", QueueSpec{Placement: PlacementSpec{PreferredLeader: "n9"}})
	n.settle()
	q, _ = n.s.Queue("b")
	if q.Status.Phase != Ready || q.Status.Conditions[0].Reason != "PreferredLeaderAbsent" {
		t.Errorf("%+v", q.Status)
	}
}

// TestOwnerElsewhere: a queue whose messages are on another disk is never made anew here, and can still be
// deleted (T-19, T-32; field cases 18, 72a).
func TestOwnerElsewhere(t *testing.T) {
	n := &node{}
	n.start(t, Options{Node: "key", Disk: "d1"})
	n.apply("a", QueueSpec{})
	n.settle()
	n.ensures = 0
	n.start(t, Options{Node: "key", Disk: "d2"})
	n.settle()
	q, _ := n.s.Queue("a")
	if n.ensures != 0 || q.Status.Phase != Degraded || q.Status.Conditions[0].Reason != "OwnerAbsent" {
		t.Errorf("%d calls, %+v", n.ensures, q.Status)
	}
	if p := q.Status.Placement; len(p) != 1 || p[0].Node != "key" || p[0].Disk != "d1" || !p[0].Owner {
		t.Errorf("%+v", q.Status.Placement)
	}
	n.delete("a")
	if n.settle(); len(n.s.Queues()) != 0 || n.ensures != 0 {
		t.Errorf("%+v", n.s.Queues())
	}
}

// TestDamagedQueueCanBeDeleted: opening errs for ever, the deadline ends draining all the same (72a).
func TestDamagedQueueCanBeDeleted(t *testing.T) {
	n := &node{}
	n.start(t, Options{})
	n.apply("a", QueueSpec{DrainDeadline: Duration(time.Minute)})
	n.settle()
	n.err = map[uint64]error{2: &Trouble{Reason: "GroupMissing", Message: "gone"}}
	n.delete("a")
	began := n.now
	n.settle()
	q, _ := n.s.Queue("a")
	if len(q.Status.Conditions) != 2 || q.Status.Conditions[1].Reason != "GroupMissing" || n.destroyed != 0 {
		t.Errorf("%+v", q.Status)
	}
	for wait := n.settle(); wait != Idle; wait = n.settle() {
		n.now += wait
	}
	if len(n.s.Queues()) != 0 || n.destroyed != 1 || n.now != began+60_000 {
		t.Errorf("%+v after %d ms", n.s.Queues(), n.now-began)
	}
}

// TestNeverOpenedGoesAtOnce: nobody could put anything in, so nothing is drained, and nothing is made for it;
// what was placed nowhere has nothing to destroy.
func TestNeverOpenedGoesAtOnce(t *testing.T) {
	n := &node{hold: true}
	n.start(t, Options{})
	n.apply("nowhere", QueueSpec{Placement: PlacementSpec{Nodes: []string{"elsewhere"}}})
	n.apply("a", QueueSpec{})
	n.place("a")
	n.delete("nowhere")
	n.delete("a")
	n.settle()
	n.hold = false
	n.commit()
	if q, _ := n.s.Queue("a"); !q.Status.Destroying || q.Status.Conditions[0].Reason != "NeverOpened" {
		t.Errorf("%+v", q.Status)
	}
	if n.settle() != Idle || len(n.s.Queues()) != 0 || n.ensures != 0 || n.destroyed != 1 {
		t.Errorf("%+v, %d opened, %d destroyed", n.s.Queues(), n.ensures, n.destroyed)
	}
}

// TestStuckDestruction says why beside how draining ended, once, and goes on.
func TestStuckDestruction(t *testing.T) {
	n := &node{stuck: &Trouble{Reason: "DiskReadOnly", Message: "read only"}}
	n.start(t, Options{})
	n.apply("a", QueueSpec{})
	n.settle()
	n.delete("a")
	n.proposed = 0
	for range 10 {
		n.now += n.settle()
	}
	q, _ := n.s.Queue("a")
	conds := q.Status.Conditions
	if len(conds) != 2 || conds[0].Reason != "Drained" || conds[1].Reason != "DiskReadOnly" || n.proposed != 2 {
		t.Errorf("%d entries, %+v", n.proposed, conds)
	}
	n.stuck = nil
	n.r.Wake(2)
	if n.settle() != Idle || len(n.s.Queues()) != 0 {
		t.Errorf("%+v", n.s.Queues())
	}
}

// TestConnectors: a connector of an unknown queue is pending with the reason, and follows what becomes of
// the queue (T-10); nothing is said to be done that is not.
func TestConnectors(t *testing.T) {
	n := &node{}
	n.start(t, Options{})
	spec := ConnectorSpec{
		Protocol: "file", Direction: "source", Address: "/x", Queue: "a", Evidence: "none", Loss: "all of it",
	}
	n.mutate(Mutation{Verb: Create, Kind: KindConnector, Name: "a", Connector: &spec})
	expect := func(reason string) {
		t.Helper()
		for n.settle() > 0 {
			n.now += 1000
		}
		c, _ := n.s.Connector("a")
		if c.Status.Phase != Pending || c.Status.ObservedGeneration != 0 || c.Status.Conditions[0].Reason != reason {
			t.Errorf("%+v, want %s", c.Status, reason)
		}
	}
	expect("QueueNotFound")
	n.apply("a", QueueSpec{})
	expect("NotRun")
	c, _ := n.s.Connector("a")
	for _, part := range []string{"connectors.dir", "spec.policy.node"} {
		if m := c.Status.Conditions[0].Message; !strings.Contains(m, part) {
			t.Errorf("%q does not name %s", m, part)
		}
	}
	n.left = 5
	n.delete("a")
	n.settle()
	c, _ = n.s.Connector("a")
	if c.Status.Conditions[0].Reason != "QueueDeleting" {
		t.Errorf("%+v", c.Status)
	}
	n.now += 600_000
	expect("QueueNotFound")
	if len(n.s.Queues()) != 0 {
		t.Errorf("%+v", n.s.Queues())
	}
	n.mutate(Mutation{Verb: Delete, Kind: KindConnector, Name: "a"})
	if n.settle() != Idle || len(n.s.Connectors()) != 0 {
		t.Errorf("%+v", n.s.Connectors())
	}
}

// TestConditionsFit: whatever an error says, it fits a status.
func TestConditionsFit(t *testing.T) {
	for _, text := range []string{
		"", "a\nb", "\xff\xfe", strings.Repeat("ä", 600), strings.Repeat("x", 1024), strings.Repeat("\xff", 5000),
	} {
		c := condition(&Trouble{Reason: text, Message: text})
		st := Status{Phase: Pending, Conditions: []Condition{c}}
		if err := validateStatus(KindQueue, "a", &st); err != nil || strings.Contains(c.Message, "\n") {
			t.Errorf("%.20q: %v", text, err)
		}
		if !utf8.ValidString(c.Message) || !utf8.ValidString(c.Reason) || text == "" && c.Reason != "Error" {
			t.Errorf("%.20q: %+v", text, c)
		}
		if len(text) == 1024 && c.Message != text {
			t.Errorf("cut what fits: %q", c.Message)
		}
	}
}

// TestTimers holds the heap to a plain list.
func TestTimers(t *testing.T) {
	var h timers
	tasks := make([]*task, 40)
	seed := uint64(1)
	random := func(n uint64) uint64 { seed = seed*6364136223846793005 + 1442695040888963407; return seed >> 33 % n }
	for i := range tasks {
		tasks[i] = &task{uid: uint64(i)}
	}
	for range 5000 {
		h.set(tasks[random(40)], int64(random(30))) // 0: never
		if random(10) == 0 {
			now := int64(random(30))
			var want []*task
			for _, x := range tasks {
				if x.due != 0 && x.due <= now {
					want = append(want, x)
				}
			}
			slices.SortStableFunc(want, func(a, b *task) int { return int(a.due - b.due) })
			var got []*task
			for x := h.next(now); x != nil; x = h.next(now) {
				got = append(got, x)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%d due, want %d", len(got), len(want))
			}
		}
	}
	if h.next(math.MaxInt64) == nil {
		t.Error("the heap was always empty")
	}
}
