package dispatcher

import (
	"context"
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
	SetBy string     `json:"set_by,omitempty"`
}

// ZoneStatus is the setting, and what nodes compute with.
type ZoneStatus struct {
	ZoneSetting
	// Nodes are those that are not dead.
	Nodes []NodeZones `json:"nodes"`
}

// NodeZones is the release that a node computes with.
type NodeZones struct {
	ID    run.NodeID `json:"id"`
	Name  string     `json:"name"`
	Zones string     `json:"zones"`
}

// ZoneData are time zone data for all nodes.
type ZoneData struct {
	// Archive is what carillon zones pack writes, in base64.
	Archive string `json:"archive"`
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
