// Package failpoint names the points at which a node may die, so that tests can let it die
// exactly there.
//
// Only a program built with the tag "chaos" has failpoints; in any other the functions are
// empty, and the compiler leaves nothing of their calls. Which points act, and how, is
// said by the environment variable CHAOS, as in
//
//	CHAOS="K7:kill,nth=3;K12:stop"
//
// Each item names a point and an action: kill ends the process as kill -9 does, stop halts
// it until SIGCONT. nth is the visit at which it acts, 1 by default; within spreads the action
// over so long after the visit, 2ms by default, where the point is a stretch of time and not a
// line of code (see During).
package failpoint

// Point is a place in the walk of a fire, or beside it.
type Point string

// The points, in the order of a fire's walk. What a death leaves behind at each, and who
// puts it right, is told in docs/why/reliability.md.
const (
	BeforePoll         Point = "K1"  // the window is about to be read
	BeforeClaim        Point = "K2"  // it was read, and nothing is claimed
	DuringClaim        Point = "K3"  // the claim was sent, and is not known to be committed
	AfterClaim         Point = "K4"  // the claim is committed, and its response not looked at
	BeforeQueue        Point = "K5"  // what was won is not in the pool yet
	InPool             Point = "K6"  // it waits in the pool
	BeforeSend         Point = "K7"  // the attempt may begin; nothing is sent
	AfterSend          Point = "K8"  // the request is written, no response read
	AfterResponse      Point = "K9"  // the response is read, and not recorded
	AfterRecord        Point = "K10" // the record is committed, and its response not looked at
	BeforeScheduleNext Point = "K11" // the record is stored, and the next fire of a fixed delay not
	InHeartbeat        Point = "K12" // the clock was read, the heartbeat not sent
	LockTaken          Point = "K13" // the handler has a lock, and has done nothing under it
	UnderLock          Point = "K14" // it has done half of its work under a lock
	BeforeUnlock       Point = "K15" // it has done all of it, and has the lock
	DuringMigration    Point = "K16" // the schema is being brought up to date
	InDefinition       Point = "K17" // a job is written, its triggers are not
	InDrain            Point = "K18" // the node drains, and what it has not sent is not handed back
)
