package main

import (
	"os"
	"path/filepath"
	"sync"

	"weida/fuzz/internal/history"
)

// look notes what the disks of nodes hold that do not run. taken is when they came to be as they are. What the flipped
// bits of one did to it is not judged here.
func (r *run) look(at history.DumpAt, taken history.Time) {
	scratch := filepath.Join(r.dir, "scratch")
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		r.trouble("look at the disks: %v", err)
		return
	}
	// Each disk is noted as one: the lines of two would lie among each other.
	lists := make([][]history.Event, len(r.seats))
	var work sync.WaitGroup
	for i, s := range r.seats {
		work.Go(func() {
			err := history.DumpDisk(s.Dir, history.DiskOptions{Node: s.Name, At: at, Taken: taken, Scratch: scratch},
				func(e history.Event) { lists[i] = append(lists[i], e) })
			s.mu.Lock()
			spoiled := s.flipped
			s.mu.Unlock()
			if err != nil && !spoiled {
				r.wrong("%s: its disk cannot be read: %v", s.Name, err)
			}
		})
	}
	work.Wait()
	for _, list := range lists {
		for _, e := range list {
			r.history.Note(e)
		}
	}
}

// lookNow looks at all disks when all nodes were struck at once: the first time that it happens, for it takes a while.
func (r *run) lookNow(f fault, taken history.Time) {
	at := history.AtKill
	if f.Kind == powerOff {
		at = history.AtPowerCut
	}
	if len(f.Nodes) < r.o.nodes || f.Kind != kill && f.Kind != powerOff || r.looked[at] {
		return
	}
	r.looked[at] = true
	r.look(at, taken)
}
