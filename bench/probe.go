package main

import (
	"path/filepath"

	"weida/fsync"
	"weida/fsync/flushprobe"
)

// probe is what the raw disk does in this run: 4 KiB writes into a preallocated file, each followed by fdatasync.
type probe struct {
	Writes int     `json:"writes"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	Rate   float64 `json:"per_second"`
}

const probeBlock = flushprobe.SizeDefault

// probeDisk makes, uses and removes one file in dir.
func probeDisk(dir, name string, writes int) (probe, error) {
	return probeWrites(dir, name, probeBlock, writes)
}

// probeWrites is probeDisk with writes of size bytes.
func probeWrites(dir, name string, size, writes int) (probe, error) {
	r, err := flushprobe.Run(fsync.OS(), filepath.Join(dir, name), flushprobe.Options{Size: size, Writes: writes})
	if err != nil {
		return probe{}, err
	}
	return probe{
		Writes: writes, P50: micros(r.Quantile(0.5)), P99: micros(r.Quantile(0.99)),
		Rate: float64(writes) / r.Total.Seconds(),
	}, nil
}
