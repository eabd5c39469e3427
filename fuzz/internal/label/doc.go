// Package label makes bodies that say whose they are, for the suites that publish to real nodes and judge what comes
// back.
//
// It is pure: any goroutine may call it. The same Label makes the same bytes, so nobody has to keep them.
package label
