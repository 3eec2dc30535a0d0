package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Dispatch is what the engine does for each fire: hot, batched, each write a compare-and-swap.
type Dispatch interface {
	Adoption
	// Due reads one page of the window: of each trigger what moves with its fires.
	Due(ctx context.Context, query DueQuery) ([]DueTrigger, error)
	// TriggersByID returns the definitions of the triggers that still exist, in any order. A node asks for
	// those whose revision it does not know.
	TriggersByID(ctx context.Context, ids []int64) ([]TriggerVersion, error)
	// LabelSets returns the sets of labels that jobs require and a live node has, apart from the empty one, in any
	// order. Triggers that require others are off.
	LabelSets(ctx context.Context) ([]input.Labels, error)
	// JobsByID returns the jobs that still exist, in any order, with the values of their stored
	// secrets. A secret that the keys do not open has no value.
	JobsByID(ctx context.Context, ids []int64) ([]JobVersion, error)
	// AppCalendars returns all calendars of an app and their common revision: the fire time of a
	// trigger whose CalendarRevision is not higher comes from these calendars or older ones.
	AppCalendars(ctx context.Context, app string) (revision int64, all []Calendar, err error)
	// Claim advances triggers and stores the fires that were won, in one statement, and returns them as
	// runs: one claim holds all of them, except those of an Advance that is Live. A lost fire is no error.
	// Nothing is won unless the node is active and the app enabled. After an error the outcome is
	// unknown: call Held.
	Claim(ctx context.Context, batch ClaimBatch) ([]run.HeldRun, error)
	// Held returns the runs that node holds under token, in its claim and among the live runs, except those
	// that it has begun. If token is 0, it returns those under any token, except those of claims that Claim or Held
	// has returned to this process.
	Held(ctx context.Context, node run.NodeID, token run.Token) ([]run.HeldRun, error)
	// UnfoldClaims turns what is left of the claims of node that are older than olderThan into live runs of
	// the same node, token and attempt, and returns how many claims it has removed. A node calls it for its
	// own claims, so that a slow attempt does not keep the claim of those that ended long ago.
	UnfoldClaims(ctx context.Context, node run.NodeID, olderThan time.Duration, now time.Time) (int, error)
	// OverdueApps returns the enabled apps among apps, empty: all, with triggers that are later than
	// their MisfireAfter, of jobs that require no other labels.
	// From saves the database what was due earlier, as that of DueQuery; zero: there is no lower bound.
	OverdueApps(ctx context.Context, apps []string, labels input.Labels, from, now time.Time) ([]string, error)
	// Settle advances triggers, inserts misfires and their runs in one statement, and
	// returns the runs that were won. As with Claim, a lost fire is no error.
	Settle(ctx context.Context, batch SettleBatch) ([]run.HeldRun, error)
	// Release hands back runs whose attempt was not begun: they are queued, and the number of the
	// attempt is used again.
	Release(ctx context.Context, runs []run.HeldRun) error
	// Begin commits that the requests of runs are about to be sent, and returns the runs that their
	// node still holds: only these may be sent. Calling it again changes nothing. It is for
	// at_most_once jobs; for others the claim is enough.
	Begin(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error)
	// Acquire grants slots to runs that are about to begin, and returns the runs that may begin. It is
	// for jobs that bound their concurrency. By the policy of the job, the other runs wait, are
	// skipped, or cause earlier runs to be cancelled. A run keeps its slot until it ends, whichever
	// node works on it, so a run that asks again may begin unless another attempt of it is still
	// in flight.
	Acquire(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error)
	// AcquireEndpoints is Acquire for the slots of endpoints of groups, by the endpoint_concurrency of the jobs. It
	// returns no grant for runs that wait, were skipped, or are not their node's any more. A run that holds the slot
	// of another endpoint in the same attempt leaves it. A run keeps its slot until the attempt is over; another
	// attempt of the run that follows because the node died or handed the run back has it, too.
	AcquireEndpoints(ctx context.Context, requests []target.EndpointRequest) ([]target.EndpointGrant, error)
	// ReleaseSlots tells that attempts with slots are over. The slots of runs that ended, and all slots of endpoints,
	// go to waiting runs, which any node may then adopt.
	ReleaseSlots(ctx context.Context, runs []run.HeldRun) error
	// GrantWaiting grants free slots of all jobs to waiting runs, in place of nodes that died before
	// their ReleaseSlots. A run that waits for an endpoint that is gone or drains is routed again.
	GrantWaiting(ctx context.Context) error
	// LeftSlots returns slots that a live node has for attempts which, by what the database knows, it does not make: the
	// run has ended, or is attempted again. It looks at limit slots after one of them, of all jobs and nodes, in their
	// order. The node that has such a slot and does not make the attempt either says so by ReleaseSlots. Without that, the
	// slot would stay taken until the node is dead.
	LeftSlots(ctx context.Context, node run.NodeID, after SlotKey, limit int) (LeftSlots, error)
	// RunInputs returns the inputs of runs by their keys. A shard has that of its parent. Runs without one are absent.
	RunInputs(ctx context.Context, keys []run.Key) (map[run.Key]run.Input, error)
	// FailLostRuns ends as lost the begun runs of dead nodes, and returns how many.
	FailLostRuns(ctx context.Context, now time.Time) (int, error)
	// Begun returns the runs that a node has begun, of at_most_once jobs. LoseRuns ends as lost those of them that it does not
	// make any more, as after a rollback, and returns how many: whether their requests were sent is unknown.
	Begun(ctx context.Context, node run.NodeID) ([]run.HeldRun, error)
	LoseRuns(ctx context.Context, runs []run.HeldRun, now time.Time) (int, error)
	// Record ends attempts, fenced by token: a record with another token than the run's becomes the
	// late result of its attempt. Recording an outcome again changes nothing. The same statement
	// sets a run that will be attempted again to retrying.
	Record(ctx context.Context, records []Record) error
	// EndedDelays returns at most limit triggers with a fixed delay, of enabled jobs, that have no
	// next fire although their latest run has ended or was skipped: those in ids, or any if ids is
	// empty.
	EndedDelays(ctx context.Context, ids []int64, limit int) ([]EndedDelay, error)
	// ScheduleNext gives fixed delays their next fires and counts the ended runs. An outdated
	// DelayedFire changes nothing and is no error.
	ScheduleNext(ctx context.Context, delayed []DelayedFire) error
	// Quarantine puts a trigger that cannot be evaluated into state error, if it still has
	// that revision.
	Quarantine(ctx context.Context, triggerID, revision int64, reason string) error
	// Listen calls notify for every change that nodes should know of, until ctx ends. Notifications
	// may be lost or repeated. After an error, call it again.
	Listen(ctx context.Context, notify func(Notification)) error
}

// DueTrigger is what moves of a trigger, as the window poll reads it. TriggerVersion is the rest.
type DueTrigger struct {
	ID, AppID, Revision int64
	// CalendarRevision is that of the app's calendars when NextFireTime was computed; 0 without a
	// calendar.
	CalendarRevision int64
	NodeLabels       input.Labels // of the job
	// Timeout is how long one attempt of the job may take.
	Timeout      time.Duration
	MisfireAfter time.Duration
	PrevFireTime time.Time // zero: none
	NextFireTime time.Time
	DueAt        time.Time // NextFireTime plus its jitter
}

// TriggerVersion is what a revision of a job declares of a trigger. No fire changes it, so a node keeps
// it for as long as it has room.
type TriggerVersion struct {
	ID, JobID, Revision int64
	Name                string
	// Spec lacks Identity and Calendar, which follow from the names. The anchor of a fixed delay is that
	// of its first fire; see EndedDelay.
	Spec     schedule.Spec
	Calendar string // name of a calendar of the app; empty: none
	// MisfirePolicy and CatchUpWindow are never empty.
	MisfirePolicy MisfirePolicy
	CatchUpWindow time.Duration
}

// DueQuery selects the triggers that an enabled app, job and trigger, none of them paused,
// has waiting and due at or before Until, by (due at, id).
type DueQuery struct {
	Apps []string // empty: all
	// JobIDs selects the triggers of these jobs; empty: of all.
	JobIDs []int64
	// LabelSets selects the triggers of jobs that require exactly one of these sets, each as Labels.String
	// writes it, "" for none; empty: whatever they require.
	LabelSets []string
	// IDFrom and IDTo select a share of all triggers, because ids are hashes: those with
	// IDFrom <= id < IDTo. IDTo 0: there is no upper bound.
	IDFrom, IDTo int64
	// From and Until bound when the triggers are due, both inclusive. From saves the database the index
	// entries of what was due earlier; zero: there is no lower bound.
	From, Until time.Time
	// Overdue selects only triggers that are later than their MisfireAfter at Now, for the handler;
	// without it they are left out.
	Overdue bool
	Now     time.Time
	// AfterTime and AfterID are DueAt and ID of the last trigger of the previous page.
	AfterTime time.Time
	AfterID   int64
	Limit     int
}

// Advance is one compare-and-swap of a trigger: from (Revision, CalendarRevision, Prev, Next)
// to (Next, Then).
type Advance struct {
	TriggerID, JobID, Revision, CalendarRevision int64
	Prev                                         time.Time // zero: none
	Next                                         time.Time // the scheduled time that is claimed or settled
	// Then is the fire time after Next. Zero completes the trigger, except a fixed delay, which
	// waits for the end of its run; see ScheduleNext. ThenDue is when Then is due; zero if Then is zero.
	Then, ThenDue time.Time
	// Live asks for the run as a row of its own among the live runs: that of an at_most_once job, a job
	// with slots, or a fixed delay. Other runs are stored only in their claim until they end.
	Live bool
}

// ClaimBatch claims fires for a node, at most one of each trigger.
type ClaimBatch struct {
	Node  run.NodeID
	Token run.Token
	// Lead is how long before it is due a fire may be claimed, by the database's clock.
	Lead     time.Duration
	Advances []Advance
	Now      time.Time
}

// SlotKey names a slot that is taken: by which run of which job, and of which endpoint; empty: the slot is the job's.
type SlotKey struct {
	JobID int64
	run.Key
	Endpoint string
}

// LeftSlots are slots that a node has for attempts that it may not make any more.
type LeftSlots struct {
	// Runs have the token under which they got the slot, and no number of an attempt, which a slot does not know.
	Runs []run.HeldRun
	// Last is the last slot that was looked at, if there are More.
	Last SlotKey
	More bool
}

// Settlement decides about the missed fires of one trigger: From is Advance.Next.
type Settlement struct {
	Advance
	To       time.Time // last missed fire
	Count    int
	Decision Decision
	Reason   string
	// CatchUp is the scheduled time of the catch-up run; zero: none. With DecisionFireAll it is Next,
	// which is also To; the run then is of KindSchedule, and there is no misfire.
	CatchUp time.Time
}

// SettleBatch settles misfires; the catch-up runs belong to Node under Token.
type SettleBatch struct {
	Node        run.NodeID
	Token       run.Token
	Settlements []Settlement
	Now         time.Time
}

// Record is the outcome of one attempt, to be stored against the token of its run.
type Record struct {
	run.Key
	// JobID, Revision and ClaimedAt are those of the HeldRun. A run of a claim has no row that knows them.
	JobID, Revision int64
	ClaimedAt       time.Time
	Node            run.NodeID
	Token           run.Token
	Attempt         int
	Outcome         run.Outcome
	// Followed tells that something may follow if this is the end of the run, by the FollowMask of the job as its node knows
	// it. What follows is decided by the job as the database has it; without Followed it is not asked.
	Followed bool
	// Next is when the run is attempted again; nil: the outcome is its end.
	Next *NextAttempt
}

// EndedDelay is a trigger with a fixed delay that needs its next fire, because its latest run ended or
// its latest fire was missed and skipped.
type EndedDelay struct {
	DueTrigger               // NextFireTime and DueAt are zero
	TriggerVersion           // Spec.Anchor is EndedAt
	EndedAt        time.Time // when the run ended, or the fire was skipped
	Fired          int       // fires before it
}

// DelayedFire gives a fixed delay its next fire: a compare-and-swap from (Revision, CalendarRevision,
// Prev, no next fire time) to (Prev, Next).
type DelayedFire struct {
	TriggerID, Revision, CalendarRevision int64
	Prev                                  time.Time
	Anchor                                time.Time // end of the run
	Next, Due                             time.Time // zero completes the trigger
}

// JobVersion is a job as the engine runs it: without Triggers, which the engine reads by id when they
// are due, and without Warnings, which are for people.
type JobVersion struct {
	ID int64
	Job
	// TriggerNames are the names of its triggers.
	TriggerNames []string
	// TriggerOrigins are the Origin of those triggers that have one, by name.
	TriggerOrigins map[string]string
	// Bounds are those of the job's app, with defaults, and AWSExternalID is that of the app.
	Bounds        *target.Bounds
	AWSExternalID string
	// Follows is what of the job is of interest after it happened.
	Follows run.FollowMask
	// Installation is the id in the event ids of an app that was imported; empty: that of this installation.
	Installation string
	// Salt is that of the app, for its event ids.
	Salt run.Salt `json:"-"`
	// Err is why the stored definition cannot be read, for example because a newer version
	// wrote it. Of the Job only App, Name and Revision are then valid.
	Err error
}

// Notification is a reason to look at the database, never the truth itself: it may be lost, repeated or
// late. It says what changed, so that a node reads that and no more. At most one of Run, Adopt, Callback, Ends, Backfill, JobID,
// App and Nodes is set; if none is, anything may have changed.
type Notification struct {
	// Run is the id of a run of which an attempt was cancelled. Token and Attempt, 0 if it is not known, are
	// those of the attempt: nothing else is to be cut off, above all not the attempt after it.
	Run     string
	Token   run.Token
	Attempt int
	// Adopt tells that runs wait to be adopted, as after a manual run, and that no trigger changed.
	Adopt bool
	// Backfill tells that a backfill was created or resumed.
	Backfill bool
	// Bulk tells that a bulk action was created.
	Bulk bool
	// Callback tells that a target said that an attempt failed, so that its run is due in place of its deadline.
	Callback bool
	// Ends tells that there are pending ends; see Follows.
	Ends bool
	// JobID is a job of which the definition or the next fires changed.
	JobID int64
	// App is an app of which the switch, the weight or a calendar changed.
	App string
	// Group is a group of App of which the definition or the endpoints changed; nothing else of the app did.
	Group string
	// Nodes tells that a node joined, left or was marked dead, or that its state was set.
	Nodes bool
}

// Broadcasts are the runs that are spread over the endpoints of a group, each as a shard. A shard that is not over is a row
// of its own among the live runs, which any node adopts. Its parent waits as run.WaitingShards, and keeps its slot.
type Broadcasts interface {
	// Broadcast spreads a run that a node holds: it queues a shard for each endpoint, or, if the run was spread before, the
	// shards that a retry brought back. It reports whether the node still held the run. A second call, after a lost
	// response, changes nothing.
	Broadcast(ctx context.Context, run run.HeldRun, endpoints []string, now time.Time) (held bool, err error)
	// BroadcastEndpoints returns the ids of the endpoints for which the shards of a run were made, by index. The key is that of
	// the parent or of one of its shards. ErrNotFound: the run was not spread.
	BroadcastEndpoints(ctx context.Context, key run.Key) ([]string, error)
	// EndBroadcasts ends those of some runs, or of all if there are none, of which all shards have ended, and returns how
	// many. They succeed if all their shards did. Of all, it also cancels shards whose parent has ended in another way.
	EndBroadcasts(ctx context.Context, parents []run.Key, now time.Time) (int, error)
}
