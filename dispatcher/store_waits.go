package dispatcher

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

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
