package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Dispatch has the operations of the engine for each fire: hot, batched, each write a compare-and-swap.
type Dispatch interface {
	Adoption
	// Due reads one page of the window: for each trigger the values that change with its fires.
	Due(ctx context.Context, query DueQuery) ([]DueTrigger, error)
	// TriggersByID returns the definitions of the triggers that still exist, in any order. A node asks for revisions
	// that it does not know.
	TriggersByID(ctx context.Context, ids []int64) ([]TriggerVersion, error)
	// LabelSets returns the sets of labels that jobs require and a live node has, without the empty set, in any
	// order. Triggers with other requirements are off.
	LabelSets(ctx context.Context) ([]input.Labels, error)
	// JobsByID returns the jobs that still exist, in any order, with the values of their stored secrets. A secret
	// that the keys cannot decrypt has no value.
	JobsByID(ctx context.Context, ids []int64) ([]JobVersion, error)
	// AppCalendars returns all calendars of an app and their common revision: the fire time of a
	// trigger whose CalendarRevision is not higher comes from these calendars or older ones.
	AppCalendars(ctx context.Context, app string) (revision int64, all []Calendar, err error)
	// Claim advances triggers and stores the fires that were won, in one statement, and returns them as runs: one
	// claim holds all of them, except those of an Advance that is Live. Losing a fire is not an error. A node wins
	// fires only if it is active and the app enabled. After an error the outcome is unknown: call Held.
	Claim(ctx context.Context, batch ClaimBatch) ([]run.HeldRun, error)
	// Held returns the runs that node holds under token, in its claim and among the live runs, except those that it
	// has begun. If token is 0, it returns the runs under any token, except those of claims that Claim or Held has
	// already returned to this process.
	Held(ctx context.Context, node run.NodeID, token run.Token) ([]run.HeldRun, error)
	// UnfoldClaims turns the remaining runs in claims of node that are older than olderThan into live runs of the
	// same node, token and attempt, and returns how many claims it has removed. A node calls it for its own claims,
	// so that a slow attempt does not keep a claim whose other runs ended long ago.
	UnfoldClaims(ctx context.Context, node run.NodeID, olderThan time.Duration, now time.Time) (int, error)
	// OverdueApps returns those of apps (empty: all) that are enabled and have triggers later than their
	// MisfireAfter, of jobs that require no other labels. As in DueQuery, from lets the database skip earlier
	// entries; zero: no lower bound.
	OverdueApps(ctx context.Context, apps []string, labels input.Labels, from, now time.Time) ([]string, error)
	// Settle advances triggers, inserts misfires and their runs in one statement, and returns the runs that were won.
	// As with Claim, losing a fire is not an error.
	Settle(ctx context.Context, batch SettleBatch) ([]run.HeldRun, error)
	// Release queues runs again before their attempt begins. The number of the attempt is used again.
	Release(ctx context.Context, runs []run.HeldRun) error
	// Begin commits that the requests of runs are about to be sent, and returns the runs that their node still holds:
	// only these may be sent. A second call changes nothing. It is for at_most_once jobs; for others the claim is
	// enough.
	Begin(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error)
	// Acquire grants slots to runs that are about to begin, and returns the runs that may begin. It is
	// for jobs that bound their concurrency. By the policy of the job, the other runs wait, are
	// skipped, or cause earlier runs to be cancelled. A run keeps its slot until it ends, whichever
	// node works on it, so a run that asks again may begin unless another attempt of it is still
	// in flight.
	Acquire(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error)
	// AcquireEndpoints is Acquire for the slots of endpoints of groups, by the endpoint_concurrency of the jobs. It
	// returns no grant for runs that wait, were skipped, or left their node. A run that holds the slot of another
	// endpoint in the same attempt leaves it. A run keeps its slot until the attempt is over; if the node dies or
	// hands the run back, the next attempt still has it.
	AcquireEndpoints(ctx context.Context, requests []target.EndpointRequest) ([]target.EndpointGrant, error)
	// ReleaseSlots reports that attempts with slots are over. The slots of runs that ended, and all slots of
	// endpoints, go to waiting runs, which any node may then adopt.
	ReleaseSlots(ctx context.Context, runs []run.HeldRun) error
	// GrantWaiting grants free slots of all jobs to waiting runs, in place of nodes that died before their
	// ReleaseSlots. A run that waits for an endpoint that was removed or drains is routed again.
	GrantWaiting(ctx context.Context) error
	// LeftSlots returns slots that a live node has for attempts that, by the database, are over: the run has ended,
	// or is attempted again. It looks at limit slots after a given one, of all jobs and nodes, in order. If the node
	// is not making the attempt either, it calls ReleaseSlots. Otherwise the slot would stay taken until the node is
	// dead.
	LeftSlots(ctx context.Context, node run.NodeID, after SlotKey, limit int) (LeftSlots, error)
	// RunInputs returns the inputs of runs by their keys. A shard has the input of its parent. Runs without input are
	// absent.
	RunInputs(ctx context.Context, keys []run.Key) (map[run.Key]run.Input, error)
	// FailLostRuns ends as lost the begun runs of dead nodes, and returns how many.
	FailLostRuns(ctx context.Context, now time.Time) (int, error)
	// Begun returns the runs that a node has begun, of at_most_once jobs. LoseRuns ends as lost those that it no
	// longer works on, as after a rollback, and returns how many: it is unknown whether their requests were sent.
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
	// ScheduleNext gives fixed delays their next fires and counts the ended runs. An outdated DelayedFire changes
	// nothing and is not an error.
	ScheduleNext(ctx context.Context, delayed []DelayedFire) error
	// Quarantine puts a trigger that cannot be evaluated into state error, if it still has
	// that revision.
	Quarantine(ctx context.Context, triggerID, revision int64, reason string) error
	// Listen calls notify for every change that nodes should know of, until ctx ends. Notifications
	// may be lost or repeated. After an error, call it again.
	Listen(ctx context.Context, notify func(Notification)) error
}

// DueTrigger has the values of a trigger that change with its fires, as the window poll reads them. TriggerVersion is
// the rest.
type DueTrigger struct {
	ID, AppID, Revision int64
	// CalendarRevision is the revision of the app's calendars when NextFireTime was computed; 0 without a calendar.
	CalendarRevision int64
	NodeLabels       input.Labels // of the job
	// Timeout is how long one attempt of the job may take.
	Timeout      time.Duration
	MisfireAfter time.Duration
	PrevFireTime time.Time // zero if none
	NextFireTime time.Time
	DueAt        time.Time // NextFireTime plus its jitter
}

// TriggerVersion is the definition of a trigger in a revision of its job. Fires do not change it, so a node keeps it
// as long as it has room.
type TriggerVersion struct {
	ID, JobID, Revision int64
	Name                string
	// Spec lacks Identity and Calendar, which derive from the names. The anchor of a fixed delay is that of its first
	// fire; see EndedDelay.
	Spec     schedule.Spec
	Calendar string // name of a calendar of the app; empty: none
	// MisfirePolicy and CatchUpWindow are never empty.
	MisfirePolicy MisfirePolicy
	CatchUpWindow time.Duration
}

// DueQuery selects triggers that are waiting and due at or before Until, by (due at, id), if app, job and trigger are
// enabled and none of them is paused.
type DueQuery struct {
	Apps []string // empty: all
	// JobIDs selects the triggers of these jobs; empty: all.
	JobIDs []int64
	// LabelSets selects triggers of jobs that require exactly one of these sets, each as in Labels.String; empty:
	// all.
	LabelSets []string
	// IDFrom and IDTo select a share of all triggers, because ids are hashes: those with IDFrom <= id < IDTo. IDTo 0:
	// no upper bound.
	IDFrom, IDTo int64
	// From and Until bound the due times of the triggers, both inclusive. From lets the database skip earlier index
	// entries; zero: no lower bound.
	From, Until time.Time
	// Overdue selects only triggers that are later than their MisfireAfter at Now, for the handler; otherwise they
	// are left out.
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
	Prev                                         time.Time // zero if none
	Next                                         time.Time // the scheduled time to claim or settle
	// Then is the fire time after Next. Zero completes the trigger, except a fixed delay, which
	// waits for the end of its run; see ScheduleNext. ThenDue is when Then is due; zero if Then is zero.
	Then, ThenDue time.Time
	// Live stores the run as a row of its own among the live runs: for an at_most_once job, a job with slots, or a
	// fixed delay. Other runs are stored only in their claim until they end.
	Live bool
}

// ClaimBatch claims fires for a node, at most one of each trigger.
type ClaimBatch struct {
	Node  run.NodeID
	Token run.Token
	// Lead is how early a fire may be claimed, by the database's clock.
	Lead     time.Duration
	Advances []Advance
	Now      time.Time
}

// SlotKey names a taken slot: its job, its run, and its endpoint, which is empty for a slot of the job.
type SlotKey struct {
	JobID int64
	run.Key
	Endpoint string
}

// LeftSlots are slots that a node has for attempts that may be over.
type LeftSlots struct {
	// Runs have the token under which they got the slot. They have no attempt number, because a slot does not store it.
	Runs []run.HeldRun
	// Last is the last slot that was looked at, if More is true.
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
	// CatchUp is the scheduled time of the catch-up run; zero if none. With DecisionFireAll it equals Next and To;
	// the run then is of KindSchedule, and there is no misfire.
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
	// JobID, Revision and ClaimedAt are those of the HeldRun. A run in a claim has no row with them.
	JobID, Revision int64
	ClaimedAt       time.Time
	Node            run.NodeID
	Token           run.Token
	Attempt         int
	Outcome         run.Outcome
	// Followed is true if the FollowMask of the job, as its node knows it, allows followers of this end of the run.
	// If so, the job in the database decides what follows.
	Followed bool
	// Next is when the run is attempted again; nil if the outcome is final.
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

// JobVersion is a job as the engine runs it: without Triggers, which the engine reads by id when they are due, and
// without Warnings.
type JobVersion struct {
	ID int64
	Job
	// TriggerNames are the names of its triggers.
	TriggerNames []string
	// TriggerOrigins has the Origin of triggers that have one, by name.
	TriggerOrigins map[string]string
	// Bounds, with defaults, and AWSExternalID are those of the job's app.
	Bounds        *target.Bounds
	AWSExternalID string
	// Follows selects the events of the job that have followers or alerts.
	Follows run.FollowMask
	// ResumedAt is when the latest pause of its app ended; nil if none has.
	ResumedAt *time.Time `json:"-"`
	// Installation is the id in the event ids of an imported app; empty for the id of this installation.
	Installation string
	// Salt is the salt of the app, for its event ids.
	Salt run.Salt `json:"-"`
	// Err explains why the stored definition cannot be read, for example because a newer version wrote it. Then only
	// App, Name and Revision of the Job are valid.
	Err error
}

// OwedFrom returns the time of the latest change that may have let fires of the job go on: a change of the job, such as
// the end of a pause, or the end of a pause of its app. People know that earlier fires are late.
func (v *JobVersion) OwedFrom() time.Time {
	if v.ResumedAt == nil {
		return v.UpdatedAt
	}
	return input.Later(v.UpdatedAt, *v.ResumedAt)
}

// Notification is a reason to look at the database, never a fact: it may be lost, repeated or late. It names the
// change, so that a node reads only that. At most one of Run, Adopt, Callback, Ends, Backfill, JobID, App and Nodes
// is set; if none is, anything may have changed.
type Notification struct {
	// Run is the id of a run with a cancelled attempt. Token and Attempt, 0 if unknown, are those of the attempt:
	// only this one is stopped, and above all not the attempt after it.
	Run     string
	Token   run.Token
	Attempt int
	// Adopt is true if runs wait to be adopted, as after a manual run, and no trigger changed.
	Adopt bool
	// Backfill is true if a backfill was created or resumed.
	Backfill bool
	// Bulk is true if a bulk action was created.
	Bulk bool
	// Callback is true if a target reported that an attempt failed, so its run is due before its deadline.
	Callback bool
	// Ends is true if there are pending ends; see Follows.
	Ends bool
	// JobID is a job with a changed definition or changed next fires.
	JobID int64
	// App is an app with a changed switch, weight or calendar.
	App string
	// Group is a group of App with a changed definition or changed endpoints; the rest of the app did not change.
	Group string
	// Nodes is true if a node joined, left or was marked dead, or if its state was set.
	Nodes bool
}

// Broadcasts are runs that are spread over the endpoints of a group, with a shard for each. An unfinished shard is a
// row of its own among the live runs, which any node adopts. Its parent waits as run.WaitingShards, and keeps its slot.
type Broadcasts interface {
	// Broadcast spreads a run that a node holds: it queues a shard for each endpoint, or, if the run was spread
	// before, the shards to retry. It reports whether the node still held the run. A second call, after a lost
	// response, changes nothing.
	Broadcast(ctx context.Context, run run.HeldRun, endpoints []string, now time.Time) (held bool, err error)
	// BroadcastEndpoints returns the ids of the endpoints of a run's shards, by index. The key is that of the parent
	// or of one of its shards. ErrNotFound: the run was not spread.
	BroadcastEndpoints(ctx context.Context, key run.Key) ([]string, error)
	// EndBroadcasts ends those of parents, or of all runs if parents is empty, with no unfinished shard, and returns
	// how many. They succeed if all their shards did. With all runs, it also cancels shards of a parent that ended in
	// another way.
	EndBroadcasts(ctx context.Context, parents []run.Key, now time.Time) (int, error)
}
