package dispatcher

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// UsageReports count what nodes use of the quotas of apps.
type UsageReports interface {
	// KeepBytes adds bytes of responses that the node has stored since its last call, by app, and returns how many bytes
	// each of these apps keeps. Nodes call it every handler interval; the sum is an estimate.
	KeepBytes(ctx context.Context, added map[string]int64, now time.Time) (kept map[string]int64, err error)
	// WaitingRuns adds the waiting places that a node has given since its last call, by app, and returns how many runs of each of
	// these apps wait: what was counted some seconds ago and given since, or counted now if that may be too many.
	WaitingRuns(ctx context.Context, given map[string]GivenPlaces, now time.Time) (waiting map[string]int64, err error)
}

// GivenPlaces are the waiting places that a node has given runs of an app, and how many the app may have.
type GivenPlaces struct {
	Given int64
	Most  int
}

// RolledUp is what one call of RollUp looked at.
type RolledUp struct {
	Changed int  // states that were written
	More    bool // the next call goes on with other jobs; without it, all had their turn
}

// States are the states of jobs, as people see them.
type States interface {
	// RollUp computes the states of at most limit jobs, and writes those that changed. The handler calls it
	// under LockStates, in whose row the database keeps where the next call goes on, whichever node makes it.
	RollUp(ctx context.Context, limit int) (RolledUp, error)
}

// Rescheduled is what one call of RescheduleForZones looked at.
type Rescheduled struct {
	Moved int   // triggers that got another fire time
	Last  int64 // the id of the last trigger
	More  bool  // there may be triggers after it
}

// ZoneSetting is which time zone data all nodes of the installation compute with.
type ZoneSetting struct {
	// Release names the data that the installation has for its nodes; empty: each node computes with its own.
	Release string `json:"release"`
	// Sum tells apart data of one release: SHA-256 of the archive, in hex; empty: there is none.
	Sum string `json:"sum,omitempty"`
	// SetAt and SetBy tell when it was set, and the actor; zero: it was not, since it was last reset.
	SetAt *time.Time `json:"set_at,omitempty"`
	// Who set it.
	SetBy string `json:"set_by,omitempty"`
}

// ZoneStatus is the setting, and what nodes compute with.
type ZoneStatus struct {
	ZoneSetting
	// Nodes are those that are not dead.
	Nodes []NodeZones `json:"nodes"`
}

// NodeZones is the release that a node computes with.
type NodeZones struct {
	ID   run.NodeID `json:"id"`
	Name string     `json:"name"`
	// The release that the node computes with.
	Zones string `json:"zones"`
}

// ZoneData are time zone data for all nodes.
type ZoneData struct {
	// Archive is what carillon zones pack writes, in base64.
	Archive string `json:"archive" schema:"required"`
}

// Zones keep fire times in step with the time zone database: that of the installation or else of the program.
type Zones interface {
	// ZoneSetting returns the setting of the installation.
	ZoneSetting(ctx context.Context) (ZoneSetting, error)
	// ZoneArchive returns the data of the setting with a sum, as schedule.ReadZones reads them. ErrNotFound: it is another
	// setting by now.
	ZoneArchive(ctx context.Context, sum string) ([]byte, error)
	// SetZones makes all nodes compute with an archive of a release, within an interval of the handler; nil: each with its own.
	SetZones(ctx context.Context, release string, archive []byte, change input.Change) (ZoneSetting, error)
	// NoteZones notes which release a node computes with since it has switched. It changes none of the fires: they move once
	// all nodes compute with one release.
	NoteZones(ctx context.Context, id run.NodeID, release string) error
	// ZonesChanged reports whether fire times may come from another time zone database than this
	// program's, while no live node uses another one.
	ZonesChanged(ctx context.Context) (bool, error)
	// RescheduleForZones computes the fire times of at most limit triggers after an id, in the order of
	// ids, that depend on zones. Each change gets an entry in the audit log. After the last trigger
	// it stores that all fire times come from this program's zones.
	RescheduleForZones(ctx context.Context, after int64, limit int, now time.Time) (Rescheduled, error)
}

// Switches let triggers follow what holds very many of them at once: whether their app is enabled, whether it is
// paused, and whether a live node has the labels that their job requires. An app that is disabled claims nothing from then on,
// whether its triggers have followed or not; until they have, they only cost a poll something.
type Switches interface {
	// ExpirePauses ends the pauses of apps, jobs and triggers whose time is over, at most limit of each, and returns how
	// many. The triggers that the pauses of apps held follow by FollowSwitches.
	ExpirePauses(ctx context.Context, limit int, now time.Time) (int, error)
	// RemoveCutOffImports removes imports that did not come to their end, because their node died or their caller left, and returns
	// how many. The handler calls it under LockSwitches.
	RemoveCutOffImports(ctx context.Context, now time.Time) (int, error)
	// FollowSwitches lets the triggers of each app and set of labels that was switched follow, at most limit of
	// each, and returns how many followed and whether there are more. The handler calls it under LockSwitches.
	FollowSwitches(ctx context.Context, limit int) (followed int, more bool, err error)
}

// Forecast says how much is to come, fires and callbacks, and how much there is.
type Forecast interface {
	// Upcoming returns how many triggers of the enabled apps among apps, empty: all, are due at or before
	// until, overdue ones too, but limit at most. Paused ones do not count.
	Upcoming(ctx context.Context, apps []string, until time.Time, limit int) (int, error)
	// AwaitedCallbacks returns how many runs of apps, empty: all, wait for a callback, but limit at most.
	AwaitedCallbacks(ctx context.Context, apps []string, limit int) (int, error)
	// Census counts, to limit at most. A trigger is overdue if it was due before a time.
	Census(ctx context.Context, overdue time.Time, limit int) (Census, error)
}

// NextAttempt is when a run is attempted again.
type NextAttempt struct {
	At time.Time
	// Until is when the run fails for good: no attempt begins later.
	Until time.Time
	// CountsAsFailure tells that the attempt counts against Retry.MaxAttempts.
	CountsAsFailure bool
	// NotAttempted tells that the attempt was deferred before it began, so its number is used again.
	NotAttempted bool
	// StopAtNextFire ends the run if its trigger fires before At, or has fired since.
	StopAtNextFire bool
	// Wait is what the run waits for in place of At; nil: nothing. At Until it stops waiting.
	Wait *HostWait
	// Callback tells that there is no next attempt: the target accepted this one, and says until At how it ended. Of
	// the other fields only At counts. nil: the attempt is over.
	Callback *run.Callback
}

// RetryTimes are times at which something is to be done for runs that are attempted again; zero: there is none.
type RetryTimes struct {
	Least time.Time // when the first of them is or was due, whether a node may adopt it or not
	Next  time.Time // when the next is due
	Waits bool      // whether there is a HostWait
}

// Retries are runs in state retrying. No node holds them; any node adopts those that are due. See
// AdoptQuery.
type Retries interface {
	HostWaits
	// NextRetry returns when the first retries are due: of those from from on, and of those later than after.
	NextRetry(ctx context.Context, from, after time.Time) (RetryTimes, error)
	// GiveUp ends the retrying runs that are past their time, as their latest attempts ended, and returns how
	// many. A run that was never attempted but only deferred is not given up: it stays due for a last attempt.
	GiveUp(ctx context.Context, now time.Time) (int, error)
	// Disable puts the trigger of a run into state error with a reason, and adds an entry to the audit log. It does so
	// if the run ended with the outcome of that record, if the trigger is waiting, and if the job has not been changed
	// since the run was claimed, adopted or retried. A resume or any change of the job lifts it.
	Disable(ctx context.Context, ended Record, reason string, now time.Time) (done bool, err error)
}

// Adoption is how a node takes over runs that no live node works on. It looks first, takes a place for each
// run that it has room for, and then adopts these and no others: what has no place stays in the database,
// where all nodes see it.
type Adoption interface {
	// Adoptable returns runs that a node may adopt, at most Limit, by turns of apps: of each app its first, then of each its second,
	// and so on. Those of an app are in order of DueAt, as are those of one turn. They are those that are queued or
	// held by a dead node or, with Retries, retrying runs that are due, of jobs and triggers that are neither
	// paused nor disabled. Runs of a disabled app wait until it is enabled. Runs that were begun are left to
	// FailLostRuns.
	Adoptable(ctx context.Context, query AdoptQuery) ([]Adoptable, error)
	// Adopt gives a node those of runs that it may still adopt, and increments their attempt. The attempt of a
	// dead node is recorded as lost.
	Adopt(ctx context.Context, query AdoptQuery, runs []Adoptable) ([]run.HeldRun, error)
}

// AdoptQuery selects runs that no live node works on, of jobs that require no other labels.
type AdoptQuery struct {
	Apps   []string     // empty: all
	Labels input.Labels // of the node
	Node   run.NodeID
	Token  run.Token
	Limit  int
	Now    time.Time
	// Retries selects instead retrying runs that are due, and with WaitsFor those that wait for a host,
	// whether they are due or not.
	Retries  bool
	WaitsFor int64
	// From is since when runs are due that are wanted; zero: any.
	From time.Time
	// After has, for apps of which some runs are not wanted, the last of these.
	After map[int64]Adoptable
}

// Adoptable is a run that a node may adopt.
type Adoptable struct {
	run.Key
	JobID, Revision int64 // of the job, as it is now
	// DueAt is when a retrying run is attempted again, and else its scheduled time.
	DueAt time.Time
	AppID int64
	// More tells that there may be others of the app behind this one. It does not say so of runs that wait for a host.
	More bool
}

// HostWait is the runs of a job that wait because the job's host does not respond as it should. A run waits for
// its host as a row that no node holds and no retry touches. There is one HostWait for all of them, so they cost
// one probe from time to time, however many they are.
type HostWait struct {
	ID           int64 // see HostWaitID
	AppID, JobID int64
	Host         string
	// Pause is the time between two probes, which each that fails doubles. 0: the host responded, and all
	// may go.
	Pause time.Duration
	// ProbeAt is when the next run may go, as a probe.
	ProbeAt time.Time
}

// HostQuery selects waits whose next probe is due.
type HostQuery struct {
	Apps []string  // only of these apps; empty: of all
	Now  time.Time // zero: the database's
	// IDs are the waits that are wanted as soon as they are due.
	IDs []int64
	// Overdue is since when any other wait must have been due to be wanted; zero: no other is.
	Overdue time.Time
}

// HostWaitID returns the key of the runs of a job, by its key, that wait for a host; see AppID.
func HostWaitID(job int64, host string) int64 {
	return run.HashID("host", strconv.FormatInt(job, 10), strings.ReplaceAll(host, "/", "%2F"))
}

// HostWaits are what waits for hosts.
type HostWaits interface {
	// DueHosts returns waits whose next probe is due, the longest due first: at most a few of one host, so that none
	// hides the others.
	DueHosts(ctx context.Context, query HostQuery) ([]HostWait, error)
	// TakeProbe sets the pause of a wait and when its next probe is due. It reports whether the wait still was
	// as given: then the caller, and no other node, may let one of its runs go.
	TakeProbe(ctx context.Context, wait HostWait, pause time.Duration, next time.Time) (bool, error)
	// HostResponded lets all runs of a wait go: its Pause is 0, and it is due.
	HostResponded(ctx context.Context, id int64, now time.Time) error
	// DropHostWait removes a wait if no run waits for it, and reports whether it did.
	DropHostWait(ctx context.Context, id int64) (bool, error)
}
