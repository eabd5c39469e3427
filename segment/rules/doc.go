// Package rules switches single rules of the format off, so that a test can show that each of them
// carries weight: with a rule off, the test of that rule must fail.
//
// Nothing but tests writes to Off; a test proves that all of it is false by default. It is read on
// every record, without a lock: set it before the goroutines of a test start, and restore it after.
package rules
