package wal

// SwitchOff stops applying a rule of the log until restore is called, so that a test that looks from outside can show
// that it would notice: nothing but tests calls it, and not while a log is open. It panics on a rule that it does not
// know.
func SwitchOff(rule string) (restore func()) {
	at, ok := map[string]*bool{
		"truncateRecord": &off.truncateRecord,
		"flushedVoid":    &off.flushedVoid,
		"advanceEarly":   &off.advanceEarly,
		"recoverFlush":   &off.recoverFlush,
		"createDirFlush": &off.createDirFlush,
		"largeFlush":     &off.largeFlush,
		"sealFlush":      &off.sealFlush,
	}[rule]
	if !ok {
		panic("bug: wal: no rule is called " + rule)
	}
	*at = true
	return func() { *at = false }
}
