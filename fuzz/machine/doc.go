// Package machine tests the store on real, small file systems that it makes, mounts and breaks: what `go test ./...`
// cannot do without root. It has tests only.
//
// Its tests are called TestMachine…; they are skipped with a reason where they are not asked for, and run in the step
// `.ci/run machine`, which sets WEIDA_MACHINE: then a missing tool or right is a failure. Each test has an image and a
// mount of its own in its temporary directory and takes both away again. One process at a time; nothing outside the
// test's directory is touched but one loop device.
//
// The faults that it makes are those of docs/explanation/fault-model.md.
package machine
