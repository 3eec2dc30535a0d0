package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Store keeps definitions, ledger and fleet. Package store has one over PostgreSQL and one
// over SQLite; storetest holds what both must do.
//
// Every method takes a deadline from its context. Where a field or argument Now exists, zero
// means the database's own clock; tests pass one. Instants are whole milliseconds in UTC.
// Methods may be called concurrently.
type Store interface {
	Definitions
	Credentials
	Ledger
	Retention
	Revisions
	Locks
	States
	Zones
	Rollbacks
	Fleet
	Dispatch
	Retries
	// Close releases the database.
	Close() error
}

// Change says who changes something, and on what condition.
type Change struct {
	// Actor is the name of the API token, or "system"; it goes into the audit.
	Actor string
	// IfRevision refuses with ErrPrecondition unless it is the current revision; 0: no condition.
	IfRevision int64
	// IfAbsent refuses with ErrPrecondition if the thing exists.
	IfAbsent bool
	Now      time.Time
}

// Page asks for one page of a list.
type Page struct {
	// Limit is how many items at most, 1 to 1000.
	Limit int
	// Cursor is the key of the last item of the page before; empty for the first page.
	Cursor string
}

// Definitions are what users declare. Each write adds its row to the audit in the same
// transaction and, once committed, tells all nodes (see Dispatch.Listen).
type Definitions interface {
	// PutApp creates or replaces an app. It returns it as stored, and whether it was created.
	PutApp(ctx context.Context, app App, change Change) (stored App, created bool, err error)
	// App returns ErrNotFound if there is none of that name.
	App(ctx context.Context, name string) (App, error)
	// Apps lists by name.
	Apps(ctx context.Context, page Page) ([]App, error)
	// DeleteApp returns ErrNotEmpty while the app has jobs or calendars.
	DeleteApp(ctx context.Context, name string, change Change) error

	// PutJob creates or replaces a job with its triggers in one transaction, by the rules of
	// Apply. It returns the job as stored, without the values of its secrets, and whether it was
	// created. ErrNotFound: the app does not exist. Problems: the definition is wrong, or its
	// secrets cannot be stored.
	PutJob(ctx context.Context, job Job, change Change) (stored Job, created bool, err error)
	// Job returns ErrNotFound if there is none of that name.
	Job(ctx context.Context, app, name string) (Job, error)
	// Jobs lists by name. A job whose definition cannot be read is listed in state ERROR with
	// a warning; Job returns an error for it.
	Jobs(ctx context.Context, app string, page Page) ([]Job, error)
	// DeleteJob removes the definition and stops its fires. The ledger stays.
	DeleteJob(ctx context.Context, app, name string, change Change) error
	// PauseJob sets or lifts an operator's pause of a job, or of one trigger if trigger is not
	// empty, and counts the revision up, which makes every fire already in a node's memory void.
	PauseJob(ctx context.Context, app, job, trigger string, paused bool, change Change) (Job, error)

	// PutCalendar creates or replaces a calendar. It returns the calendar as stored, and whether
	// it was created. In the same transaction, the triggers that depend on it, also through
	// bases, get new fire times by the rules of RescheduleForCalendar. ErrNotFound: the app does
	// not exist. Problems: the definition is wrong, or a base is.
	PutCalendar(ctx context.Context, calendar Calendar, change Change) (stored Calendar, created bool, err error)
	// Calendar returns ErrNotFound if there is none of that name.
	Calendar(ctx context.Context, app, name string) (Calendar, error)
	// Calendars lists by name.
	Calendars(ctx context.Context, app string, page Page) ([]Calendar, error)
	// DeleteCalendar returns an error that is ErrInUse, and says by what, while a trigger or a
	// calendar refers to it.
	DeleteCalendar(ctx context.Context, app, name string, change Change) error
}

// Credentials are the API tokens and the stored secrets of targets.
type Credentials interface {
	// RewrapSecrets encrypts the data keys of all stored secrets by the current key, if they
	// are not so yet, and returns how many; see ErrKeyMissing.
	RewrapSecrets(ctx context.Context, change Change) (int, error)

	// CreateToken stores a token; ErrPrecondition if its name is taken.
	CreateToken(ctx context.Context, token APIToken) error
	// TokenByHash returns ErrNotFound for an unknown token.
	TokenByHash(ctx context.Context, hash [32]byte) (APIToken, error)
	// Tokens lists by name.
	Tokens(ctx context.Context) ([]APIToken, error)
	// DeleteToken revokes a token.
	DeleteToken(ctx context.Context, name string) error
}

// RunQuery selects runs, latest scheduled first. Empty fields select all.
type RunQuery struct {
	App, Job, Trigger string
	State             RunState
	// From and To bound the scheduled instant, both inclusive; zero: unbounded.
	From, To time.Time
	Page     Page // the cursor is a run's id
}

// Ledger is what happened, and requests about single runs.
type Ledger interface {
	// Runs returns ErrNotFound if the app, or the job or trigger of a query that names one,
	// never existed. Deleted ones keep their runs.
	Runs(ctx context.Context, query RunQuery) ([]Run, error)
	// Run returns one run with its attempts.
	Run(ctx context.Context, id string) (Run, error)
	// Slots lists the slots of a job that are taken, in the order of their runs.
	Slots(ctx context.Context, app, job string) ([]Slot, error)
	// Misfires lists the decisions of an app, latest first, optionally of one job and trigger.
	// The cursor is Misfire.Cursor of the last item.
	Misfires(ctx context.Context, query RunQuery) ([]Misfire, error)

	// RequestRun queues a manual run of a job, to be adopted by any node. Its scheduled
	// instant is the present.
	RequestRun(ctx context.Context, app, job string, change Change) (Run, error)
	// RetryRun queues a finished or retrying run, as its next attempt, with all the attempts that
	// its job allows. ErrConflict: it is queued or under way.
	RetryRun(ctx context.Context, id string, change Change) (Run, error)
	// CancelRun ends a live run as cancelled; the result of a request in flight becomes a
	// late result. ErrConflict: it is finished.
	CancelRun(ctx context.Context, id string, change Change) (Run, error)
}

// Purged is what one call of Purge removed.
type Purged struct {
	// Partitions are tables of one day that were dropped, on PostgreSQL.
	Partitions int
	// Runs, with their attempts, and Misfires were deleted one by one.
	Runs, Misfires int
	// Audits are entries of the audit.
	AuditEntries int
	// Jobs were deleted some time after their completion, as they were declared to be.
	Jobs int
	// More tells that there is more to remove, at once.
	More bool
	// Busy tells that another node is at it, so that nothing was done.
	Busy bool
}

// History is how far back the ledger goes.
type Retention interface {
	// Purge removes what is older than the retention of its app, by whole UTC days: runs by
	// their scheduled instant and end, misfires by their last instant and decision. What is
	// live stays, and the run from whose end a fixed delay is yet to count on. On PostgreSQL
	// a day goes as a partition once it is older than the longest retention of all apps;
	// Purge also makes the partitions of the days to come. A call is bounded, it is made under
	// LockHistory, and it waits for nobody: what is locked is left for a later call.
	//
	// It also deletes jobs whose DeleteAfterCompletion has passed, and, beyond the longest retention, what
	// is on record of definitions that are no more; beyond AuditLogKept as well, the audit.
	Purge(ctx context.Context, node NodeID, now time.Time) (Purged, error)
}

// Heartbeat is what a heartbeat returns.
type HeartbeatReply struct {
	// State is the node's state as the operator wants it.
	State NodeState
	// At is when it came, by the database's clock.
	At time.Time
	// Asked is the same without regard to a rollback, by which nodes are paused that nobody paused.
	OperatorState NodeState
	// Live are all nodes that may claim, by id; the node itself among them if so.
	Live []Node
	// RolledBack tells that the database lost commits and that it is not settled what becomes of that.
	RolledBack bool
}

// RolledUp is what one call of RollUp looked at.
type RolledUp struct {
	Changed int   // states that were written
	Last    int64 // the id of the last job
	More    bool  // there are jobs after it
}

// States are those of jobs, as people see them.
type States interface {
	// RollUp works out the states of the jobs after an id, limit at most in the order of ids, and
	// writes those that are others now. It is for the handler, under LockStates.
	RollUp(ctx context.Context, after int64, limit int) (RolledUp, error)
}

// Rescheduled is what one call of RescheduleForZones looked at.
type Rescheduled struct {
	Moved int   // triggers that fire at another time now
	Last  int64 // the id of the last trigger
	More  bool  // there may be triggers after it
}

// Zones are the rules of time zones, which are part of the program.
type Zones interface {
	// ZonesChanged tells whether fire times may have been worked out with another time zone
	// database than this program's, and no node is left that uses one.
	ZonesChanged(ctx context.Context) (bool, error)
	// RescheduleForZones works out the fire times of the triggers after an id, limit at most in the order of
	// ids, that depend on zones, and leaves an audit of each that is another now. When there are no
	// more, it notes that all are by this program's zones.
	RescheduleForZones(ctx context.Context, after int64, limit int, now time.Time) (Rescheduled, error)
}

// Fleet is the nodes.
type Fleet interface {
	// Installation returns the random id of this database, drawn when its schema was made.
	Installation(ctx context.Context) (string, error)
	// Clock returns the present by the database's clock, to the microsecond.
	Clock(ctx context.Context) (time.Time, error)
	// Register adds a node with heartbeat now, paused if its State says so or the database was
	// rolled back, else active. An error also says that it is too early to tell whether it was.
	// Where the store serves a single process (SQLite), every other node is thereby dead.
	Register(ctx context.Context, node Node, now time.Time) error
	// Heartbeat renews a node's row; ErrNodeDead if it was declared dead.
	Heartbeat(ctx context.Context, id NodeID, report NodeReport, now time.Time) (HeartbeatReply, error)
	// Deregister takes a node out of the fleet at once: others need not wait for its death.
	Deregister(ctx context.Context, id NodeID) error
	// MarkDead declares dead the nodes whose heartbeat is older than after, and returns how many.
	// Nobody is, unless heartbeat is the latest of id, who asks, and younger than half of after:
	// who was away itself cannot tell the dead from the forgotten, and by a heartbeat that id does
	// not know of yet, the database's clock may have leapt. It also forgets nodes, a
	// hundred at a time, that died a day ago or earlier and hold no live run.
	MarkDead(ctx context.Context, id NodeID, heartbeat time.Time, after time.Duration, now time.Time) (int, error)
	// Nodes lists the nodes, dead ones too until MarkDead forgets them.
	Nodes(ctx context.Context) ([]Node, error)
	// SetNodeState pauses, resumes (NodeActive) or drains a node. ErrConflict: it is dead, or it
	// is to be resumed before a rollback is settled.
	SetNodeState(ctx context.Context, id NodeID, state NodeState, change Change) (Node, error)
}

// DueTrigger is a trigger as the window poll reads it.
type DueTrigger struct {
	ID, JobID, AppID, Revision int64
	// CalendarRevision is that of the app's calendars when NextFireTime was worked out; 0
	// without a calendar.
	CalendarRevision int64
	// Spec lacks Identity and Calendar, which the names of its job and Calendar lead to.
	Spec         schedule.Spec
	Calendar     string
	NodeLabels   Labels // of the job
	MisfireAfter time.Duration
	// MisfirePolicy and CatchUpWindow are never empty.
	MisfirePolicy MisfirePolicy
	CatchUpWindow time.Duration
	PrevFireTime  time.Time // zero: none
	NextFireTime  time.Time
	DueAt         time.Time // NextFireTime, later by the jitter
}

// DueQuery selects the triggers that an enabled app, job and trigger, none of them paused,
// has waiting and due at or before Until, by (due at, id).
type DueQuery struct {
	Apps  []string // empty: all
	Until time.Time
	// Overdue restricts to triggers later than their MisfireAfter at Now: those are for the
	// misfire handler. Without it, they are left out.
	Overdue bool
	Now     time.Time
	// AfterTime and AfterID are DueAt and ID of the last trigger of the page before.
	AfterTime time.Time
	AfterID   int64
	Limit     int
}

// Advance is one compare-and-swap of a trigger: from (Revision, CalendarRevision, Prev, Next)
// to (Next, Then).
type Advance struct {
	TriggerID, Revision, CalendarRevision int64
	Prev                                  time.Time // zero: none
	Next                                  time.Time // the instant that is claimed or settled
	// Then is the next fire time afterwards. Zero completes the trigger, but for a fixed delay,
	// which waits for the end of its run; see ScheduleNext. ThenDue is when Then is due, zero if then.
	Then, ThenDue time.Time
}

// EndedDelay is a trigger with a fixed delay whose latest run has ended, or whose latest fire
// was missed and skipped, and that is to be given its next fire.
type EndedDelay struct {
	DueTrigger           // NextFireTime and DueAt are zero; Spec.Anchor is EndedAt
	EndedAt    time.Time // when the run ended, or it was decided to skip it
	Fired      int       // fires before it
}

// DelayedFire gives a fixed delay its next fire: a compare-and-swap from (Revision,
// CalendarRevision, Prev, no next fire time) to (Prev, Next).
type DelayedFire struct {
	TriggerID, Revision, CalendarRevision int64
	Prev                                  time.Time
	Anchor                                time.Time // end of the run
	Next, Due                             time.Time // zero completes the trigger
}

// ClaimBatch claims fires for a node. At most one instant of a trigger may be in a batch.
type ClaimBatch struct {
	Node  NodeID
	Token Token
	// Lead is how far ahead of its being due a fire may be claimed, by the database's clock.
	Lead     time.Duration
	Advances []Advance
	Now      time.Time
}

// Settlement decides about the missed fires of one trigger: From is Advance.Next.
type Settlement struct {
	Advance
	To       time.Time // last missed instant
	Count    int
	Decision Decision
	Reason   string
	// CatchUp is the scheduled instant of the run; zero: none. With DecisionFireAll it is Next,
	// which is also To; the run then is of KindSchedule, and there is no misfire.
	CatchUp time.Time
}

// SettleBatch settles misfires; the catch-up runs belong to Node under Token.
type SettleBatch struct {
	Node        NodeID
	Token       Token
	Settlements []Settlement
	Now         time.Time
}

// AdoptQuery asks for runs that nobody works on, of jobs that require no other labels.
type AdoptQuery struct {
	Apps   []string // empty: all
	Labels Labels   // of the node
	Node   NodeID
	Token  Token
	Limit  int
	Now    time.Time
	// Retries asks instead for retrying runs that are due, of jobs and triggers that are neither
	// paused nor disabled.
	Retries bool
}

// HeldRun is a run that a node holds and is to execute.
type HeldRun struct {
	RunKey
	JobID    int64
	Revision int64 // the job's when the run was claimed, requested, adopted or retried
	Token    Token
	Attempt  int
	// Failures are the attempts that count against the job's Retry, and RetryUntil is when the
	// run is given up; zero before the first of them.
	Failures   int
	RetryUntil time.Time
}

// Record is the outcome of one attempt, to be stored against the token of its run.
type Record struct {
	RunKey
	Node    NodeID
	Token   Token
	Attempt int
	Outcome Outcome
	// Next is when the run is attempted again; nil: the outcome is its end.
	Next *NextAttempt
}

// JobVersion is a job as the engine runs it: without Triggers, which the window poll reads as they
// are due, and without Warnings, which are for people.
type JobVersion struct {
	ID int64
	Job
	// TriggerNames are those of its triggers.
	TriggerNames []string
	// AppWeight is that of the job's app.
	AppWeight int
	// Err is why the stored definition cannot be read, as when a newer version wrote it. Of
	// the Job only App, Name and Revision are then valid.
	Err error
}

// Notification is a notification: a reason to look at the database, never the truth itself.
type Notification struct {
	// Run is the id of a run that was cancelled; empty: definitions changed, or runs wait.
	Run string
	// Adopt tells that runs wait to be adopted, and that nothing else has changed.
	Adopt bool
}

// Dispatch is the engine's part: hot, batched, each write a compare-and-swap.
type Dispatch interface {
	// Due reads one page of the window.
	Due(ctx context.Context, query DueQuery) ([]DueTrigger, error)
	// JobsByID returns the jobs that still exist, in any order, with the values of their stored
	// secrets. A secret that the keys do not open has no value.
	JobsByID(ctx context.Context, ids []int64) ([]JobVersion, error)
	// AppCalendars returns all calendars of an app, and the revision of the lot: whatever
	// trigger has a lower CalendarRevision or the same, was worked out by these or older ones.
	AppCalendars(ctx context.Context, app string) (revision int64, all []Calendar, err error)
	// Claim advances triggers and inserts their runs in one statement, and returns the runs
	// that were won. A lost fire is no error. Nothing is won unless the node is active and
	// the app enabled. After an error the outcome is unknown: ask Held.
	Claim(ctx context.Context, batch ClaimBatch) ([]HeldRun, error)
	// Held returns the live runs that node holds under token, or under any if token is 0, but
	// for those that it has begun.
	Held(ctx context.Context, node NodeID, token Token) ([]HeldRun, error)
	// OverdueApps returns those of apps, empty: all, that are enabled and have triggers which are
	// later than their MisfireAfter, of jobs that require no other labels.
	OverdueApps(ctx context.Context, apps []string, labels Labels, now time.Time) ([]string, error)
	// Settle advances triggers, inserts misfires and their runs in one statement, and
	// returns the runs that were won. As with Claim, a lost one is no error.
	Settle(ctx context.Context, batch SettleBatch) ([]HeldRun, error)
	// Adopt gives a node the runs that are queued, or held by a dead node, oldest first, and
	// counts their attempt up. The attempt of a dead node is recorded as lost. Runs of a
	// disabled app wait until it is enabled. Those that were begun are left to FailLostRuns.
	Adopt(ctx context.Context, query AdoptQuery) ([]HeldRun, error)
	// Release hands back runs whose attempt was not begun: they are queued, and the attempt
	// is not consumed.
	Release(ctx context.Context, runs []HeldRun) error
	// Begin commits that the requests of runs are about to be sent, and returns those runs that
	// their node still holds: only these may be sent. Doing it again changes nothing. It is for
	// jobs that want a request at most once; for the others the claim is enough.
	Begin(ctx context.Context, runs []HeldRun) ([]HeldRun, error)
	// Acquire gives runs that are about to begin the slots that their jobs have for them, and
	// returns those that may begin: it is for jobs that bound how many there may be at once. By the
	// policy of the job the others wait, are skipped, or have earlier ones cancelled first. A run
	// keeps its slot until it has ended, whichever node works on it, so one that asks again may
	// begin; unless an attempt of it is still in flight elsewhere.
	Acquire(ctx context.Context, runs []HeldRun) ([]HeldRun, error)
	// ReleaseSlots says that attempts under slots are over. The slots of runs that have ended pass to
	// those that wait, which are then to be adopted.
	ReleaseSlots(ctx context.Context, runs []HeldRun) error
	// GrantWaiting does for all jobs what a node that died before its ReleaseSlots did not come to.
	GrantWaiting(ctx context.Context) error
	// FailLostRuns ends as lost the begun runs of dead nodes, and returns how many.
	FailLostRuns(ctx context.Context, now time.Time) (int, error)
	// Record ends attempts, fenced by token: a record whose token is not the run's becomes the
	// late result of its attempt. Recording the same outcome again changes nothing. A run that is
	// to be attempted again is retrying from the same statement on.
	Record(ctx context.Context, records []Record) error
	// EndedDelays returns triggers with a fixed delay, of enabled jobs, that have no next fire
	// while their latest run has ended or was skipped as missed: those among ids, or without ids
	// any, at most limit.
	EndedDelays(ctx context.Context, ids []int64, limit int) ([]EndedDelay, error)
	// ScheduleNext gives fixed delays their next fires and counts the ended runs. One that is out of
	// date changes nothing, and is no error.
	ScheduleNext(ctx context.Context, delayed []DelayedFire) error
	// Quarantine puts a trigger that cannot be evaluated into state error, if it still has
	// that revision.
	Quarantine(ctx context.Context, triggerID, revision int64, reason string) error
	// Listen calls hint for every change that nodes should know of, until ctx ends. Hints may
	// be lost or doubled. It returns an error when it cannot go on; call it again.
	Listen(ctx context.Context, notification func(Notification)) error
}
