package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of the registry. Resources that are being deleted count until their record is gone.
const (
	QueuesMax     = 10_000
	ConnectorsMax = 1_000
)

// State is the registry: a deterministic consequence of the control log. The zero value is empty. One
// goroutine at a time.
type State struct {
	version    uint64 // index of the last entry applied
	queues     map[string]*Queue
	connectors map[string]*Connector
	nodes      map[string]*Node
	names      map[uint64]named // every resource by uid
	cluster    Cluster
	retired    map[uint64][]Retired // by uid, which may be gone

	// What follows from the rest.
	retiredCount int
	loads        map[uint64]Load // by number of the node
	history      history
}

type named struct {
	kind Kind
	name string
}

// NewState returns an empty registry.
func NewState() *State { return new(State) }

// Version is the index of the last entry applied, 0 before the first.
func (s *State) Version() uint64 { return s.version }

// Queue returns a copy of the queue of that name.
func (s *State) Queue(name string) (Queue, bool) {
	q := s.queues[name]
	if q == nil {
		return Queue{}, false
	}
	return q.clone(), true
}

// Connector returns a copy of the connector of that name.
func (s *State) Connector(name string) (Connector, bool) {
	c := s.connectors[name]
	if c == nil {
		return Connector{}, false
	}
	return c.clone(), true
}

// QueueOf returns a copy of the queue with that uid, whatever its name.
func (s *State) QueueOf(uid uint64) (Queue, bool) {
	if n, ok := s.names[uid]; ok && n.kind == KindQueue {
		return s.Queue(n.name)
	}
	return Queue{}, false
}

// Queues returns copies of all queues in order of name.
func (s *State) Queues() []Queue {
	list := make([]Queue, 0, len(s.queues))
	for _, q := range s.queues {
		list = append(list, q.clone())
	}
	slices.SortFunc(list, func(a, b Queue) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return list
}

// Connectors returns copies of all connectors in order of name.
func (s *State) Connectors() []Connector {
	list := make([]Connector, 0, len(s.connectors))
	for _, c := range s.connectors {
		list = append(list, c.clone())
	}
	slices.SortFunc(list, func(a, b Connector) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return list
}

// Apply applies the entry at index, which holds the one command c. A refusal is in the result; the entry
// counts all the same. Indexes rise. Nothing of c is kept.
func (s *State) Apply(index uint64, c Command) Result {
	c.one()
	if index <= s.version {
		panic(fmt.Sprintf("bug: control: entry %d applied after %d", index, s.version))
	}
	s.version = index
	res := s.apply(c)
	s.history.end()
	return res
}

func (s *State) apply(c Command) Result {
	switch {
	case c.Mutation != nil:
		return s.mutate(c.Mutation, c.rules())
	case c.Observe != nil:
		return s.observe(c.Observe, c.rules())
	case c.Found != nil:
		return s.found(c.Found)
	case c.Register != nil:
		return s.register(c.Register)
	case c.Place != nil:
		return s.place(c.Place)
	case c.Reached != nil:
		return s.reached(c.Reached)
	case c.Stuck != nil:
		return s.stuck(c.Stuck)
	case c.Gone != nil:
		return s.gone(c.Gone)
	case c.Lost != nil:
		return s.lost(c.Lost)
	default:
		return s.remove(c.Remove, c.rules())
	}
}

// moved gives a resource the version of this entry.
func (s *State) moved(o object) {
	o.meta.ResourceVersion = s.version
	s.touch(Modified, o)
}

// touch keeps for those who watch what this entry did to a resource.
func (s *State) touch(e Event, o object) {
	c := Change{Version: s.version, Event: e, Kind: o.kind(), Name: o.meta.Name, UID: o.meta.UID}
	r := o.result(false, nil)
	c.Queue, c.Connector, c.Node = r.Queue, r.Connector, r.Node
	s.history.add(c)
}

// object is a resource of any kind, as far as its life goes. status is nil of a node.
type object struct {
	meta      *Metadata
	status    *Status
	queue     *Queue
	connector *Connector
	node      *Node
}

func (o object) kind() Kind {
	switch {
	case o.queue != nil:
		return KindQueue
	case o.connector != nil:
		return KindConnector
	}
	return KindNode
}

// find returns the resource of that name; its meta is nil if there is none.
func (s *State) find(k Kind, name string) object {
	if k == KindQueue {
		if q := s.queues[name]; q != nil {
			return object{meta: &q.Metadata, status: &q.Status, queue: q}
		}
		return object{}
	}
	if c := s.connectors[name]; c != nil && k == KindConnector {
		return object{meta: &c.Metadata, status: &c.Status, connector: c}
	}
	if n := s.nodes[name]; n != nil && k == KindNode {
		return object{meta: &n.Metadata, node: n}
	}
	return object{}
}

// objectOf returns the resource with that uid, of any kind; its meta is nil if there is none.
func (s *State) objectOf(uid uint64) object {
	n, ok := s.names[uid]
	if !ok {
		return object{}
	}
	return s.find(n.kind, n.name)
}

func (s *State) findUID(k Kind, uid uint64) object {
	if n, ok := s.names[uid]; ok && n.kind == k {
		return s.find(k, n.name)
	}
	return object{}
}

// result says what became of a command on o.
func (o object) result(changed bool, err *Error) Result {
	r := Result{Changed: changed, Err: err}
	if o.queue != nil {
		q := o.queue.clone()
		r.Queue = &q
	}
	if o.connector != nil {
		c := o.connector.clone()
		r.Connector = &c
	}
	if o.node != nil {
		n := o.node.clone()
		r.Node = &n
	}
	return r
}

func sameQueueSpec(a, b *QueueSpec) bool {
	return string(appendQueueSpec(nil, a)) == string(appendQueueSpec(nil, b))
}

func sameConnectorSpec(a, b *ConnectorSpec) bool {
	return string(appendConnectorSpec(nil, a)) == string(appendConnectorSpec(nil, b))
}

func sameStatus(a, b *Status) bool {
	return string(appendStatus(nil, a)) == string(appendStatus(nil, b))
}

// sameFindings compares what an Observe would write.
func sameFindings(a, b *Status) bool {
	return string(appendFindings(nil, a)) == string(appendFindings(nil, b))
}

func (s Status) clone() Status {
	s.Placement, s.Conditions = cloneList(s.Placement), cloneList(s.Conditions)
	s.Founders = cloneList(s.Founders)
	return s
}

func (q *Queue) clone() Queue {
	c := *q
	c.Spec.Placement.Nodes = cloneList(q.Spec.Placement.Nodes)
	c.Status = q.Status.clone()
	return c
}

func (c *Connector) clone() Connector {
	d := *c
	d.Spec.Policy = maps.Clone(c.Spec.Policy)
	d.Status = c.Status.clone()
	return d
}
