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
	Ledger
	Fleet
	Dispatch
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
	// PutApp creates or replaces an app and returns it as stored.
	PutApp(ctx context.Context, app App, change Change) (App, error)
	// App returns ErrNotFound if there is none of that name.
	App(ctx context.Context, name string) (App, error)
	// Apps lists by name.
	Apps(ctx context.Context, page Page) ([]App, error)
	// DeleteApp returns ErrNotEmpty while the app has jobs.
	DeleteApp(ctx context.Context, name string, change Change) error

	// PutJob creates or replaces a job with its triggers in one transaction, by the rules of
	// Revise, and returns it as stored. ErrNotFound: the app does not exist. Faults: the
	// definition is wrong.
	PutJob(ctx context.Context, job Job, change Change) (Job, error)
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
	// Misfires lists the decisions of an app, latest first, optionally of one job and trigger.
	// The cursor is Misfire.Cursor of the last item.
	Misfires(ctx context.Context, query RunQuery) ([]Misfire, error)

	// RequestRun queues a manual run of a job, to be adopted by any node. Its scheduled
	// instant is the present.
	RequestRun(ctx context.Context, app, job string, change Change) (Run, error)
	// RetryRun queues a finished run again, as its next attempt. ErrConflict: it is not finished.
	RetryRun(ctx context.Context, id string, change Change) (Run, error)
	// CancelRun ends a live run as cancelled; the result of a request in flight becomes a
	// late result. ErrConflict: it is finished.
	CancelRun(ctx context.Context, id string, change Change) (Run, error)
}

// Beat is what a heartbeat returns.
type Beat struct {
	// State is the node's state as the operator wants it.
	State NodeState
	// Live are the ids of all nodes that may claim, in order; the node itself among them if so.
	Live []NodeID
}

// Fleet is the nodes.
type Fleet interface {
	// Installation returns the random id of this database, drawn when its schema was made.
	Installation(ctx context.Context) (string, error)
	// Clock returns the present by the database's clock, to the microsecond.
	Clock(ctx context.Context) (time.Time, error)
	// Register adds a node with heartbeat now, paused if its State says so, else active.
	// Where the store serves a single process (SQLite), every other node is thereby dead.
	Register(ctx context.Context, node Node, now time.Time) error
	// Heartbeat renews a node's row; ErrNodeDead if it was declared dead.
	Heartbeat(ctx context.Context, id NodeID, inFlight int, now time.Time) (Beat, error)
	// Resign takes a node out of the fleet at once: others need not wait for its death.
	Resign(ctx context.Context, id NodeID) error
	// Bury declares dead the nodes whose heartbeat is older than after, and returns how many.
	// Nobody is, unless the heartbeat of id, who asks, is younger than half of after: who was
	// away itself cannot tell the dead from the forgotten. It also forgets nodes, a
	// hundred at a time, that died a day ago or earlier and hold no live run.
	Bury(ctx context.Context, id NodeID, after time.Duration, now time.Time) (int, error)
	// Nodes lists the nodes, dead ones too until Bury forgets them.
	Nodes(ctx context.Context) ([]Node, error)
	// SetNodeState pauses, resumes (NodeActive) or drains a node. ErrConflict: it is dead.
	SetNodeState(ctx context.Context, id NodeID, state NodeState, change Change) (Node, error)
}

// DueTrigger is a trigger as the window poll reads it.
type DueTrigger struct {
	ID, JobID, Revision int64
	Spec                schedule.Spec
	MisfireAfter        time.Duration
	PrevFireTime        time.Time // zero: none
	NextFireTime        time.Time
}

// DueQuery selects the triggers that an enabled app, job and trigger, none of them paused,
// has waiting with next fire time at or before Until, by (next fire time, id).
type DueQuery struct {
	Apps  []string // empty: all
	Until time.Time
	// Overdue restricts to triggers later than their MisfireAfter at Now: those are for the
	// misfire handler. Without it, they are left out.
	Overdue bool
	Now     time.Time
	// AfterTime and AfterID are the key of the last trigger of the page before.
	AfterTime time.Time
	AfterID   int64
	Limit     int
}

// Advance is one compare-and-swap of a trigger: from (Revision, Prev, Next) to (Next, Then).
type Advance struct {
	TriggerID, Revision int64
	Prev                time.Time // zero: none
	Next                time.Time // the instant that is claimed or settled
	Then                time.Time // the next fire time afterwards; zero completes the trigger
}

// ClaimBatch claims fires for a node. At most one instant of a trigger may be in a batch.
type ClaimBatch struct {
	Node  NodeID
	Token Token
	// Lead is how far ahead of its instant a fire may be claimed, by the database's clock.
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
	// CatchUp is the scheduled instant of the catch-up run; zero: none.
	CatchUp time.Time
}

// SettleBatch settles misfires; the catch-up runs belong to Node under Token.
type SettleBatch struct {
	Node        NodeID
	Token       Token
	Settlements []Settlement
	Now         time.Time
}

// AdoptQuery asks for runs that nobody works on.
type AdoptQuery struct {
	Apps  []string // empty: all
	Node  NodeID
	Token Token
	Limit int
	Now   time.Time
}

// HeldRun is a run that a node holds and is to execute.
type HeldRun struct {
	RunKey
	JobID    int64
	Revision int64 // the job's when the run was claimed, requested or retried
	Token    Token
	Attempt  int
}

// Record is the outcome of one attempt, to be stored against the token of its run.
type Record struct {
	RunKey
	Node    NodeID
	Token   Token
	Attempt int
	Outcome Outcome
}

// JobVersion is a job as the engine runs it.
type JobVersion struct {
	ID int64
	Job
	// Err is why the stored definition cannot be read, as when a newer version wrote it. Of
	// the Job only App, Name and Revision are then valid.
	Err error
}

// Hint is a notification: a reason to look at the database, never the truth itself.
type Hint struct {
	// Run is the id of a run that was cancelled; empty: definitions changed, or runs wait.
	Run string
}

// Dispatch is the engine's part: hot, batched, each write a compare-and-swap.
type Dispatch interface {
	// Due reads one page of the window.
	Due(ctx context.Context, query DueQuery) ([]DueTrigger, error)
	// JobsByID returns the jobs that still exist, in any order.
	JobsByID(ctx context.Context, ids []int64) ([]JobVersion, error)
	// Claim advances triggers and inserts their runs in one statement, and returns the runs
	// that were won. A lost fire is no error. Nothing is won unless the node is active and
	// the app enabled. After an error the outcome is unknown: ask Held.
	Claim(ctx context.Context, batch ClaimBatch) ([]HeldRun, error)
	// Held returns the live runs that node holds under token, or under any if token is 0.
	Held(ctx context.Context, node NodeID, token Token) ([]HeldRun, error)
	// Settle advances triggers, inserts misfires and catch-up runs in one statement, and
	// returns the catch-up runs that were won. As with Claim, a lost one is no error.
	Settle(ctx context.Context, batch SettleBatch) ([]HeldRun, error)
	// Adopt gives a node the runs that are queued, or held by a dead node, oldest first, and
	// counts their attempt up. The attempt of a dead node is recorded as lost. Runs of a
	// disabled app wait until it is enabled.
	Adopt(ctx context.Context, query AdoptQuery) ([]HeldRun, error)
	// Release hands back runs whose attempt was not begun: they are queued, and the attempt
	// is not consumed.
	Release(ctx context.Context, runs []HeldRun) error
	// Record ends attempts, fenced by token: a record whose token is not the run's becomes the
	// late result of its attempt. Recording the same outcome again changes nothing.
	Record(ctx context.Context, records []Record) error
	// Quarantine puts a trigger that cannot be evaluated into state error, if it still has
	// that revision.
	Quarantine(ctx context.Context, triggerID, revision int64, reason string) error
	// Listen calls hint for every change that nodes should know of, until ctx ends. Hints may
	// be lost or doubled. It returns an error when it cannot go on; call it again.
	Listen(ctx context.Context, hint func(Hint)) error
}
