package raftstore

// SwitchOff stops applying a rule of replicas until restore is called, so that a test can show that it would notice:
// nothing but tests calls it, and not while a host runs. It panics on a rule that it does not know.
func SwitchOff(rule string) (restore func()) {
	at, ok := map[string]*bool{
		"answersWait":      &off.answersWait,
		"truncatedAnswers": &off.truncatedAnswers,
		"hardWait":         &off.hardWait,
		"gate":             &off.gate,
		"incarnation":      &off.incarnation,
		"firstEntry":       &off.firstEntry,
		"forgetLeader":     &off.forgetLeader,
		"quietEqual":       &off.quietEqual,
		"tombstones":       &off.tombstones,
		"bodyProof":        &off.bodyProof,
		"installBodies":    &off.installBodies,
		"installFlush":     &off.installFlush,
		"handOver":         &off.handOver,
		"decided":          &off.decided,
		"known":            &off.known,
		"yield":            &off.yield,
		"caughtUp":         &off.caughtUp,
		"givesRoom":        &off.givesRoom,
		"ailing":           &off.ailing,
		"wander":           &off.wander,
		"crowded":          &off.crowded,
		"stays":            &off.stays,
		"overdue":          &off.overdue,
		"spend":            &off.spend,
		"reserve":          &off.reserve,
		"mend":             &off.mend,
		"mendAside":        &off.mendAside,
		"goodbye":          &off.goodbye,
		"knownSnapshot":    &off.knownSnapshot,
		"commitOnly":       &off.commitOnly,
		"settle":           &off.settle,
		"forgot":           &off.forgot,
	}[rule]
	if !ok {
		panic("bug: raftstore: no rule is called " + rule)
	}
	*at = true
	return func() { *at = false }
}
