package dispatcher

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// UsageReports count how nodes use the quotas of apps.
type UsageReports interface {
	// KeepBytes adds bytes of responses that the node has stored since its last call, by app, and returns how many bytes
	// each of these apps keeps. Nodes call it every handler interval; the sum is an estimate.
	KeepBytes(ctx context.Context, added map[string]int64, now time.Time) (kept map[string]int64, err error)
	// WaitingRuns adds the waiting places that a node has given since its last call, by app, and returns how many runs
	// of each of these apps wait: a count of some seconds ago plus the places given since, or a new count if that sum
	// may be too high.
	WaitingRuns(ctx context.Context, given map[string]GivenPlaces, now time.Time) (waiting map[string]int64, err error)
}

// GivenPlaces are the waiting places that a node has given to runs of an app, and the maximum of the app.
type GivenPlaces struct {
	Given int64
	Most  int
}

// RolledUp is the result of one call of RollUp.
type RolledUp struct {
	Changed int  // states that were written
	More    bool // the next call goes on with other jobs; false after all had their turn
}

// States are the states of jobs, as people see them.
type States interface {
	// RollUp computes the states of at most limit jobs, and writes those that changed. The handler calls it under
	// LockStates. The row of that lock stores where the next call, by any node, goes on.
	RollUp(ctx context.Context, limit int) (RolledUp, error)
}

// Rescheduled is the result of one call of RescheduleForZones.
type Rescheduled struct {
	Moved int   // triggers that got another fire time
	Last  int64 // the id of the last trigger
	More  bool  // there may be triggers after it
}

// ZoneSetting selects the time zone data of all nodes of the installation.
type ZoneSetting struct {
	// Release names the data of the installation; if empty, each node computes with its own.
	Release string `json:"release"`
	// Sum distinguishes data of one release: SHA-256 of the archive, in hex; empty without an archive.
	Sum string `json:"sum,omitempty"`
	// SetAt and SetBy are when it was set, and by which actor; zero if it was not set since the last reset.
	SetAt *time.Time `json:"set_at,omitempty"`
	// The actor that set it.
	SetBy string `json:"set_by,omitempty"`
}

// ZoneStatus is the setting, and the releases of the nodes.
type ZoneStatus struct {
	ZoneSetting
	// Nodes are all nodes that are not dead.
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
	// Archive is the output of carillon zones pack, in base64.
	Archive string `json:"archive" schema:"required"`
}

// Zones keep fire times in step with the time zone database of the installation, or else of the program.
type Zones interface {
	// ZoneSetting returns the setting of the installation.
	ZoneSetting(ctx context.Context) (ZoneSetting, error)
	// ZoneArchive returns the data of the setting with a sum, as schedule.ReadZones reads them. ErrNotFound: the
	// setting has changed.
	ZoneArchive(ctx context.Context, sum string) ([]byte, error)
	// SetZones makes all nodes compute with an archive of a release, within a handler interval; with nil, each uses its
	// own.
	SetZones(ctx context.Context, release string, archive []byte, change input.Change) (ZoneSetting, error)
	// NoteZones stores the release that a node has switched to. It moves no fires: they move once all nodes compute
	// with one release.
	NoteZones(ctx context.Context, id run.NodeID, release string) error
	// ZonesChanged reports whether fire times may come from another time zone database than this program's, although
	// all live nodes use this one.
	ZonesChanged(ctx context.Context) (bool, error)
	// RescheduleForZones computes the fire times of at most limit triggers after an id, in the order of
	// ids, that depend on zones. Each change gets an entry in the audit log. After the last trigger
	// it stores that all fire times come from this program's zones.
	RescheduleForZones(ctx context.Context, after int64, limit int, now time.Time) (Rescheduled, error)
}

// Switches make triggers follow settings that hold very many of them at once: whether their app is enabled, whether
// it is paused, and whether a live node has the labels that their job requires. Once an app is disabled, its fires
// are not claimed, even if its triggers have not followed yet; until then, they only add to the cost of a poll.
type Switches interface {
	// ExpirePauses ends expired pauses of apps, jobs and triggers, at most limit of each, and returns how many. The
	// triggers that the pauses of apps held follow by FollowSwitches.
	ExpirePauses(ctx context.Context, limit int, now time.Time) (int, error)
	// RemoveCutOffImports removes imports that did not finish, because their node died or their caller left, and
	// returns how many. The handler calls it under LockSwitches.
	RemoveCutOffImports(ctx context.Context, now time.Time) (int, error)
	// FollowSwitches updates the triggers of each app and set of labels that was switched, at most limit of each, and
	// returns how many it updated and whether there are more. The handler calls it under LockSwitches.
	FollowSwitches(ctx context.Context, limit int) (followed int, more bool, err error)
}

// Forecast counts upcoming fires, awaited callbacks, and the contents of the database.
type Forecast interface {
	// Upcoming returns how many triggers of the enabled apps among apps (empty: all) are due at or before until,
	// overdue ones included, at most limit. Paused ones do not count.
	Upcoming(ctx context.Context, apps []string, until time.Time, limit int) (int, error)
	// AwaitedCallbacks returns how many runs of apps (empty: all) wait for a callback, at most limit.
	AwaitedCallbacks(ctx context.Context, apps []string, limit int) (int, error)
	// Census counts, to limit at most. A trigger is overdue if it was due before a time.
	Census(ctx context.Context, overdue time.Time, limit int) (Census, error)
}

// NextAttempt is when a run is attempted again.
type NextAttempt struct {
	At time.Time
	// Until is when the run fails permanently: no attempt begins later.
	Until time.Time
	// CountsAsFailure is true if the attempt counts against Retry.MaxAttempts.
	CountsAsFailure bool
	// NotAttempted is true if the attempt was deferred before it began, so its number is used again.
	NotAttempted bool
	// StopAtNextFire ends the run if its trigger fires before At, or has fired since.
	StopAtNextFire bool
	// Wait is the host that the run waits for instead of At; nil if it waits for none. At Until it stops waiting.
	Wait *HostWait
	// Callback is set if there is no next attempt: the target accepted this one, and has until At to report how it
	// ended. Of the other fields only At counts. nil if the attempt is over.
	Callback *run.Callback
}

// RetryTimes are the next times at which retries need work; zero if there are none.
type RetryTimes struct {
	Least time.Time // when the first is or was due, whether a node may adopt it or not
	Next  time.Time // when the next is due
	Waits bool      // whether there is a HostWait
}

// Retries are runs in state retrying. No node holds them; any node may adopt them when they are due. See AdoptQuery.
type Retries interface {
	HostWaits
	// NextRetry returns when the first retries are due: at or after from, and later than after.
	NextRetry(ctx context.Context, from, after time.Time) (RetryTimes, error)
	// GiveUp ends the retrying runs that are past their time, with the outcome of their latest attempt, and returns
	// how many. A run that was only deferred and never attempted is not given up: it stays due for a last attempt.
	GiveUp(ctx context.Context, now time.Time) (int, error)
	// Disable puts the trigger of a run into state error with a reason, and adds an entry to the audit log, if the
	// run ended with the outcome of that record, the trigger is waiting, and the job has not changed since the run
	// was claimed, adopted or retried. A resume or any change of the job lifts it.
	Disable(ctx context.Context, ended Record, reason string, now time.Time) (done bool, err error)
}

// Adoption is how a node takes over runs that no live node works on. It looks first, reserves a place for each run
// that it has room for, and then adopts only these: the other runs stay in the database, where all nodes see them.
type Adoption interface {
	// Adoptable returns at most Limit runs that a node may adopt, by turns of apps: the first of each app, then the
	// second of each, and so on. The runs of an app are in order of DueAt, as are those of one turn. They are queued
	// or held by a dead node or, with Retries, retrying and due, of jobs and triggers that are neither paused nor
	// disabled. Runs of a disabled app wait until it is enabled. Runs that were begun are left to FailLostRuns.
	Adoptable(ctx context.Context, query AdoptQuery) ([]Adoptable, error)
	// Adopt gives a node those runs that it may still adopt, and increments their attempt. The attempt of a dead node
	// is recorded as lost.
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
	// Retries selects retrying runs that are due instead, and with WaitsFor those that wait for a host, due or not.
	Retries  bool
	WaitsFor int64
	// From excludes runs that were due before; zero: no bound.
	From time.Time
	// After has, for some apps, the last run that is skipped together with those before it.
	After map[int64]Adoptable
}

// Adoptable is a run that a node may adopt.
type Adoptable struct {
	run.Key
	JobID, Revision int64 // of the job, as it is now
	// DueAt is when a retrying run is attempted again, and the scheduled time of other runs.
	DueAt time.Time
	AppID int64
	// More is true if the app may have more runs after this one. It is not set for runs that wait for a host.
	More bool
}

// HostWait stands for the runs of a job that wait because the job's host does not respond as it should. A waiting run
// is a row that no node holds and no retry touches. All of them share one HostWait, so they cost one probe from time
// to time, however many they are.
type HostWait struct {
	ID           int64 // see HostWaitID
	AppID, JobID int64
	Host         string
	// Pause is the time between two probes; each failed probe doubles it. 0: the host responded, and all runs may go.
	Pause time.Duration
	// ProbeAt is when the next run may go as a probe.
	ProbeAt time.Time
}

// HostQuery selects waits with a due probe.
type HostQuery struct {
	Apps []string  // empty: all
	Now  time.Time // zero: the database's
	// IDs selects these waits as soon as they are due.
	IDs []int64
	// Overdue also selects other waits that have been due since then; zero: none.
	Overdue time.Time
}

// HostWaitID returns the key of the wait of a job, by its key, for a host; see AppID.
func HostWaitID(job int64, host string) int64 {
	return run.HashID("host", strconv.FormatInt(job, 10), strings.ReplaceAll(host, "/", "%2F"))
}

// HostWaits are the runs that wait for hosts.
type HostWaits interface {
	// DueHosts returns waits with a due probe, the longest due first: at most a few of one host, so that no host
	// hides the others.
	DueHosts(ctx context.Context, query HostQuery) ([]HostWait, error)
	// TakeProbe sets the pause of a wait and when its next probe is due. It reports whether the wait still was as
	// given: then the caller, and no other node, may release one of its runs.
	TakeProbe(ctx context.Context, wait HostWait, pause time.Duration, next time.Time) (bool, error)
	// HostResponded releases all runs of a wait: its Pause becomes 0, and it is due.
	HostResponded(ctx context.Context, id int64, now time.Time) error
	// DropHostWait removes a wait if no run waits for it, and reports whether it did.
	DropHostWait(ctx context.Context, id int64) (bool, error)
}
