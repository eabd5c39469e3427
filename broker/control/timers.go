package control

import "container/heap"

// timers is a heap of the tasks that wait for a time; of equal times the smaller id comes first. A task is
// in it at most once, and only with a time.
type timers []*task

func (h timers) Len() int { return len(h) }

func (h timers) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].uid < h[j].uid
}

func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push and Pop are for package heap.
func (h *timers) Push(x any) {
	t := x.(*task)
	t.place = len(*h)
	*h = append(*h, t)
}

func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}

// set makes the task due at a time, in place of any other; 0 is never.
func (h *timers) set(t *task, due int64) {
	had := t.due != 0
	switch {
	case had && due == 0:
		heap.Remove(h, t.place)
		t.due = 0
	case had:
		t.due = due
		heap.Fix(h, t.place)
	case due != 0:
		t.due = due
		heap.Push(h, t)
	}
}

// next takes out a task that is due, nil if there is none.
func (h *timers) next(now int64) *task {
	if len(*h) == 0 || (*h)[0].due > now {
		return nil
	}
	t := (*h)[0]
	h.set(t, 0)
	return t
}
