// Package failpoint names the points at which tests can kill or stop a node.
//
// Only a program built with the tag "chaos" has failpoints. In any other program the functions are
// empty, and the compiler removes their calls. The environment variable CHAOS selects the points
// and their actions, as in
//
//	CHAOS="K7:kill,nth=3;K12:stop"
//
// Each item names a point and an action: kill ends the process as kill -9 does, stop halts it until
// SIGCONT, and hang halts for ever what visits the point, and nothing else. nth is the visit at which
// the point acts, 1 by default. within is for points that are a stretch of time (see During): the action
// happens at a random time within it, 2ms by default.
package failpoint

// Point is a point in the walk of a fire, or in the work around it.
type Point string

// The points, in the order of the walk of a fire. docs/why/reliability.md describes for each point
// the state after a crash and how a node repairs it.
const (
	BeforePoll         Point = "K1"  // before the window is read
	BeforeClaim        Point = "K2"  // the window is read, nothing is claimed
	DuringClaim        Point = "K3"  // the claim is sent, it may or may not be committed
	AfterClaim         Point = "K4"  // the claim is committed, its result is not read
	BeforeQueue        Point = "K5"  // the claimed runs are not in the pool yet
	InPool             Point = "K6"  // a run waits in the pool
	BeforeSend         Point = "K7"  // the attempt may begin, nothing is sent
	AfterSend          Point = "K8"  // the request is written, no response is read
	AfterResponse      Point = "K9"  // the response is read, the outcome is not recorded
	AfterRecord        Point = "K10" // the record is committed, its result is not read
	BeforeScheduleNext Point = "K11" // the record is stored, the next fire of a fixed delay is not
	InHeartbeat        Point = "K12" // the clock is read, the heartbeat is not sent
	LockTaken          Point = "K13" // the handler has a lock and has done nothing under it
	UnderLock          Point = "K14" // the handler has done half of its work under a lock
	BeforeUnlock       Point = "K15" // the handler has done its work and still has the lock
	DuringMigration    Point = "K16" // a migration of the schema runs
	InDefinition       Point = "K17" // a job is written, its triggers are not
	InDrain            Point = "K18" // the node drains and has not yet released its runs that have not begun
	BeforeCallbackEnd  Point = "K19" // a run is adopted whose accepted attempt is over, and its end is not recorded
	InFollow           Point = "K20" // ends are taken from the pending ones, and what follows them is not queued
	AfterFollow        Point = "K21" // what follows some ends is queued, and no node has adopted it
	InAlert            Point = "K22" // states of alerts are written, and their notifications are not queued
	InBackfill         Point = "K23" // runs of a backfill are queued, and that is not committed
	AfterBackfill      Point = "K24" // they are committed, and no node knows of them yet
	InBulkAction       Point = "K25" // a bulk action has changed a job or run, and that is not committed
	InCallback         Point = "K26" // what a target said of its attempt is written, and that is not committed
	AfterCallback      Point = "K27" // that is committed, the target has no response, and the slot of the run is not granted again
	InRetryRequest     Point = "K28" // a run that was over is among the live runs again, and that is not committed
	AfterRetryRequest  Point = "K29" // that is committed, nobody has adopted the run, and the next dead letter is not replayed
	AfterAlertWatch    Point = "K30" // notifications of what time decides about are queued, and no node has adopted them
	InObjective        Point = "K31" // fires of a job are counted for its objective, and that is not committed
	AfterObjective     Point = "K32" // that is committed, and the next job of the round is not counted
)
