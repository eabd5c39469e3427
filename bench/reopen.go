package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// benchReopen fills a store, kills its process, and times how long another process needs to open every group and
// replay it. That one is killed too, so that each sample opens what a kill left.
func benchReopen(dir string, sz sizes) (*reopen, error) {
	sub := filepath.Join(dir, "reopen")
	if err := os.Mkdir(sub, 0o700); err != nil {
		return nil, err
	}
	var ok bool
	if err := runChild(&ok, sub, "fill", sz.reopenGroups, sz.reopenMessages, appendBytes); err != nil {
		return nil, err
	}
	var times []float64
	for range sz.samples {
		var seconds float64
		if err := runChild(&seconds, sub, "reopen", sz.reopenGroups, sz.reopenMessages); err != nil {
			return nil, err
		}
		times = append(times, seconds)
	}
	o := &reopen{
		Groups: sz.reopenGroups, Messages: sz.reopenMessages, MessageBytes: appendBytes, Seconds: summarize(times),
	}
	return o, os.RemoveAll(sub)
}

func childFill(dir string, n []int) (any, error) {
	nd, err := openNode(dir, n[0], true)
	if err != nil {
		return nil, err
	}
	return true, nd.fill(n[1], n[2])
}

// childReopen opens groups that exist and checks that each has replayed every message.
func childReopen(dir string, n []int) (any, error) {
	began := time.Now()
	nd, err := openNode(dir, n[0], false)
	if err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	for i, c := range nd.counters {
		if got := c.applied.Load(); got != int64(n[1]) {
			return nil, fmt.Errorf("group %d came back with %d messages of %d", i+1, got, n[1])
		}
	}
	return took, nil
}
