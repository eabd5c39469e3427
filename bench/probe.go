package main

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"weida/fsync"
)

// probe is what the raw disk does in this run: 4 KiB writes into a preallocated file, each followed by fdatasync.
type probe struct {
	Writes int     `json:"writes"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	Rate   float64 `json:"per_second"`
}

const probeBlock = 4096

// probeDisk makes, uses and removes one file in dir.
func probeDisk(dir, name string, writes int) (probe, error) {
	return probeWrites(dir, name, probeBlock, writes)
}

// probeWrites is probeDisk with writes of size bytes.
func probeWrites(dir, name string, size, writes int) (p probe, err error) {
	path := filepath.Join(dir, name)
	f, err := fsync.OS().Create(path)
	if err != nil {
		return probe{}, err
	}
	defer func() { err = errors.Join(err, f.Close(), fsync.OS().Remove(path)) }()
	if err := f.Allocate(0, int64(writes*size)); err != nil {
		return probe{}, err
	}
	if err := f.Sync(); err != nil {
		return probe{}, err
	}
	block := make([]byte, size)
	took := make([]time.Duration, 0, writes)
	start := time.Now()
	for i := range writes {
		block[0] = byte(i + 1)
		began := time.Now()
		if _, err := f.WriteAt(block, int64(i*size)); err != nil {
			return probe{}, err
		}
		if err := f.Sync(); err != nil {
			return probe{}, err
		}
		took = append(took, time.Since(began))
	}
	rate := float64(writes) / time.Since(start).Seconds()
	slices.Sort(took)
	return probe{
		Writes: writes, P50: micros(quantile(took, 0.5)), P99: micros(quantile(took, 0.99)), Rate: rate,
	}, nil
}
