package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"
)

// usage is what one child saw of itself.
type usage struct {
	RSS      int64 `json:"rss"`
	Heap     int64 `json:"heap"`
	HeapUsed int64 `json:"heap_used"`
	Files    int   `json:"files"`
}

// benchMemory measures one group against many, each holding one message and doing nothing, and one group against
// itself with many messages.
func benchMemory(dir string, sz sizes) (*memory, error) {
	m := &memory{Messages: sz.heapMessages, MessageBytes: appendBytes, Groups: sz.idleGroups}
	var one, many, heap usage
	for _, c := range []struct {
		groups int
		u      *usage
	}{{1, &one}, {sz.idleGroups, &many}} {
		sub := filepath.Join(dir, fmt.Sprintf("idle-%d", c.groups))
		if err := os.Mkdir(sub, 0o700); err != nil {
			return nil, err
		}
		if err := runChild(c.u, sub, "idle", c.groups); err != nil {
			return nil, err
		}
		disk, err := allocated(sub)
		if err != nil {
			return nil, err
		}
		m.DiskMany = disk
		if err := os.RemoveAll(sub); err != nil {
			return nil, err
		}
	}
	sub := filepath.Join(dir, "heap")
	if err := os.Mkdir(sub, 0o700); err != nil {
		return nil, err
	}
	if err := runChild(&heap, sub, "heap", sz.heapMessages, appendBytes); err != nil {
		return nil, err
	}
	disk, err := allocated(sub)
	if err != nil {
		return nil, err
	}
	m.RSSOne, m.RSSMany = one.RSS, many.RSS
	m.RSSPerGroup = float64(many.RSS-one.RSS) / float64(sz.idleGroups)
	m.DiskPerGroup = float64(m.DiskMany) / float64(sz.idleGroups)
	m.HeapPerMessage = float64(heap.HeapUsed) / float64(sz.heapMessages)
	m.DiskPerMessage = float64(disk) / float64(sz.heapMessages)
	return m, os.RemoveAll(sub)
}

// childIdle opens groups, gives each one message, and waits until they have given their descriptors back.
func childIdle(dir string, n []int) (any, error) {
	nd, err := openNode(dir, n[0], true)
	if err != nil {
		return nil, err
	}
	if err := nd.fill(1, appendBytes); err != nil {
		return nil, err
	}
	const idleFiles = 32
	for range 600 {
		if u, err := use(); err != nil || u.Files <= idleFiles {
			return u, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, errors.New("idle groups still hold descriptors after a minute")
}

// childHeap fills one group and tells by how much the heap has grown.
func childHeap(dir string, n []int) (any, error) {
	nd, err := openNode(dir, 1, true)
	if err != nil {
		return nil, err
	}
	before, err := use()
	if err != nil {
		return nil, err
	}
	if err := nd.fill(n[0], n[1]); err != nil {
		return nil, err
	}
	after, err := use()
	after.HeapUsed = after.Heap - before.Heap
	runtime.KeepAlive(nd)
	return after, err
}

// use collects garbage, gives free memory back and reads what is left.
func use() (usage, error) {
	debug.FreeOSMemory()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	u := usage{Heap: int64(ms.HeapAlloc)}
	var err error
	if u.RSS, err = residentSize("self"); err != nil {
		return u, err
	}
	fds, err := os.ReadDir("/proc/self/fd")
	u.Files = len(fds)
	return u, err
}
