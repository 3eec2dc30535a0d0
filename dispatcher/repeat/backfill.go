package repeat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// BackfillSpec is what a backfill runs: the instants of a range at which triggers of a job would have fired, as they are
// declared when it is asked for. Each is a run of KindBackfill, whose scheduled time is the instant.
type BackfillSpec struct {
	// Trigger is the only trigger whose instants are run; empty: those of all triggers of the job.
	Trigger string `json:"trigger,omitempty"`
	// From and To bound the instants, both inclusive. To is not in the future.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Concurrency is how many runs of the backfill are under way at once, at most.
	Concurrency int `json:"concurrency"`
	// Order is in which order the instants are run.
	Order BackfillOrder `json:"order"`
	// Pace is the shortest time between two runs that are queued, on average; 0: as fast as runs end.
	Pace input.Duration `json:"pace,omitempty"`
	// Existing says what happens with instants of which the ledger has a run.
	Existing BackfillExisting `json:"existing"`
	// Payload takes the place of the job's payload; nil: the runs have that of the job.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Reason is shown with the backfill; free text of at most 1024 characters.
	Reason string `json:"reason,omitempty"`
}

// BackfillOrder is the order of the runs of a backfill.
type BackfillOrder string

// The orders.
const (
	BackfillOldestFirst BackfillOrder = "oldest_first"
	BackfillLatestFirst BackfillOrder = "latest_first"
)

// BackfillExisting says what a backfill does with an instant of which the ledger has a run that is scheduled, stands for
// misfires, or is of a backfill.
type BackfillExisting string

// What it does.
const (
	ExistingSkip   BackfillExisting = "skip"   // it leaves the instant out
	ExistingFailed BackfillExisting = "failed" // it leaves the instant out, unless all of these runs ended without success
	ExistingRun    BackfillExisting = "run"    // it runs the instant, unless such a run is under way
)

// BackfillRequest is the body of a request for a backfill.
type BackfillRequest struct {
	BackfillSpec
	// DryRun only counts the instants.
	DryRun bool `json:"dry_run,omitempty"`
}

// SetDefaults gives a decoded request the values of fields that its JSON leaves out.
func (b *BackfillRequest) SetDefaults() {
	b.Concurrency, b.Order, b.Existing = 1, BackfillOldestFirst, ExistingSkip
}

// Bounds of a backfill.
const (
	MaxBackfillConcurrency = 1000
	MaxBackfillPace        = input.Duration(24 * time.Hour)
	// MaxBackfillInstants is how many instants the range may hold.
	MaxBackfillInstants = 500_000
)

// Validate returns everything wrong with b, as Problems, or nil. Now is the latest that its range may end.
func (b BackfillSpec) Validate(now time.Time) error {
	var problems input.Problems
	if b.Trigger != "" {
		input.CheckName(&problems, "/trigger", b.Trigger)
	}
	if b.From.IsZero() {
		problems.Add("/from", input.CodeRequired, "from is missing; write the first instant, such as 2026-01-31T00:00:00Z")
	}
	if b.To.IsZero() {
		problems.Add("/to", input.CodeRequired, "to is missing; write the last instant, such as 2026-02-28T23:59:59Z")
	}
	if b.To.Before(b.From) {
		problems.Add("/to", input.CodeWindowOrder, "to, %s, is before from, %s", input.FormatInstant(b.To), input.FormatInstant(b.From))
	}
	if b.To.After(now) {
		problems.Add("/to", input.CodeTimeRange, "to, %s, is in the future; the triggers fire by themselves from %s on",
			input.FormatInstant(b.To),
			input.FormatInstant(now))
	}
	input.CheckRange(&problems, "/concurrency", b.Concurrency, 1, MaxBackfillConcurrency)
	input.CheckEnum(&problems, "/order", "order", b.Order, []BackfillOrder{BackfillOldestFirst, BackfillLatestFirst})
	input.CheckEnum(&problems, "/existing", "existing", b.Existing, []BackfillExisting{ExistingSkip, ExistingFailed, ExistingRun})
	if b.Pace != 0 {
		b.Pace.CheckRange(&problems, "/pace", time.Millisecond, MaxBackfillPace.Std())
	}
	input.CheckText(&problems, "/reason", b.Reason)
	problems.AddError("", run.CheckPayload(b.Payload))
	return problems.Err()
}

// BackfillPlan is a backfill before it begins: what was asked for, and what was counted by which schedules.
type BackfillPlan struct {
	BackfillSpec
	Schedules BackfillSchedules
	BackfillCount
}

// BackfillState is the state of a backfill.
type BackfillState string

// The states of a backfill.
const (
	BackfillRunning    BackfillState = "running"
	BackfillPaused     BackfillState = "paused"     // nothing more is queued; what is under way goes on
	BackfillCancelling BackfillState = "cancelling" // the runs that are in flight end
	BackfillCancelled  BackfillState = "cancelled"  // final, as the next
	BackfillComplete   BackfillState = "complete"   // all instants were run or left out
)

// Ended tells whether a state is final.
func (s BackfillState) Ended() bool { return s == BackfillCancelled || s == BackfillComplete }

// Backfill is a backfill and how far it is.
type Backfill struct {
	ID  string `json:"id"`
	App string `json:"app"`
	Job string `json:"job"`
	BackfillSpec
	State BackfillState `json:"state"`
	// Error says why a backfill was cancelled that no operator cancelled, or why one is complete whose Queued plus Skipped is not
	// Total.
	Error string `json:"error,omitempty"`
	dispatcher.StepRetries
	BackfillProgress
	CreatedBy string     `json:"created_by"`
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// BackfillProgress counts the instants of a backfill. Total is Queued plus Skipped plus those that it has not reached. Queued is
// Running plus Succeeded plus Failed plus Cancelled.
type BackfillProgress struct {
	Total int `json:"total"`
	// Queued are the instants of which a run was queued, and Skipped those left out because of Existing.
	Queued  int `json:"queued"`
	Skipped int `json:"skipped"`
	// Running are the runs that have not ended. The others are counted as they ended first: a retry by hand changes nothing.
	Running   int `json:"running"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
	// ReachedAt is the latest instant in the order of the backfill that was looked at, nil before the first.
	ReachedAt *time.Time `json:"reached_at,omitempty"`
}

// BackfillCount is the response to a request with DryRun.
type BackfillCount struct {
	// Total counts the instants of the range. First and Last are nil if there is none.
	Total int        `json:"total"`
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
	// Skipped are those of them that would be left out now because of Existing.
	Skipped int `json:"skipped"`
}

// Remaining are the instants that would be run.
func (c BackfillCount) Remaining() int { return c.Total - c.Skipped }

// backfillBits are the bits of a backfill's id below its time.
const backfillBits = 20

// NewBackfillID returns the id of a backfill that is created now. Ids are in the order of their times; random tells those
// of one millisecond apart.
func NewBackfillID(now time.Time, random int64) int64 {
	return now.UnixMilli()<<backfillBits | random&(1<<backfillBits-1)
}

// BackfillID returns an id as people see it.
func BackfillID(id int64) string { return strconv.FormatInt(id, 32) }

// ParseBackfillID reads what BackfillID wrote.
func ParseBackfillID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 32, 64)
	if err != nil || id <= 0 || BackfillID(id) != text {
		return 0, errors.New("not the id of a backfill")
	}
	return id, nil
}

// Change returns b as it is after it was paused, resumed or cancelled. The error is ErrConflict: it has ended, or is being cancelled.
func (b Backfill) Change(action BackfillAction) (Backfill, error) {
	to := map[BackfillAction]BackfillState{PauseBackfill: BackfillPaused, ResumeBackfill: BackfillRunning,
		CancelBackfill: BackfillCancelling}[action]
	switch {
	case b.State.Ended():
		return b, fmt.Errorf("backfill %s has ended: %w", b.ID, dispatcher.ErrConflict)
	case b.State == BackfillCancelling && to != b.State:
		return b, fmt.Errorf("backfill %s is being cancelled: %w", b.ID, dispatcher.ErrConflict)
	case b.State == to && b.Tries == 0:
		return b, nil
	}
	b.State, b.StepRetries = to, dispatcher.StepRetries{}
	return b, nil
}
