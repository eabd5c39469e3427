package raftstore

// off names rules of a replica that are not applied, so that a test can show that each of them carries weight: with a
// rule off a directed test must fail. Only tests write to it.
var off struct {
	answersWait      bool // an answer waits for the flush of its append
	truncatedAnswers bool // and, if its entries were truncated, for that of what replaced them
	hardWait         bool // and for the hard state
	gate             bool // an append is stepped only when every body that it names is here
	incarnation      bool // a match counts only if it was said in the present incarnation of its node
	firstEntry       bool // a leader serves only after its term's first entry is applied
	forgetLeader     bool // when the leader of a quiet group is gone, the followers forget it
	quietEqual       bool // a group becomes quiet only where log and term are those of the leader
	tombstones       bool // a leader says of a body that is settled and gone that it is settled
	bodyProof        bool // a body counts only if it has the length and the digest of its commit record
	installBodies    bool // a snapshot counts only with every live body that it names
	installFlush     bool // and only when these are flushed
	knownSnapshot    bool // a leader that sends an older one than is here is told so
	handOver         bool // a leader that a change removes hands over before the change is done
	decided          bool // a change of configuration is committed if another one stands behind it
	known            bool // who asks for a vote is told which configuration is applied
	yield            bool // a leader whose disk has stalled hands over
	caughtUp         bool // a member that holds the log of a moment ago was caught up then
	givesRoom        bool // where there is no room a snapshot gives it back that settled bodies take
	ailing           bool // and so does one whose disk has no room or is slow
	wander           bool // the leadership goes to no node whose disk does worse
	crowded          bool // a leader takes no messages that too few voters have room for
	stays            bool // a full leader stays where the next one could take messages no more than it can
	overdue          bool // who waits for what too few have room for is told
	spend            bool // what is written between two looks at the disk counts
	reserve          bool // some room is kept from messages
	goodbye          bool // a leader that falls silent says so
	commitOnly       bool // appends that carry a commit index and nothing else are not sent
	settle           bool // the end of a joint step is written down as committed before Status says so
	mend             bool // what is damaged is mended
	mendAside        bool // a leader that can't mend itself hands over
	forgot           bool // a replica that has less than it confirmed halts
}
