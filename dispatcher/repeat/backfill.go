package repeat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// BackfillSpec selects the instants that a backfill runs: those of a range at which triggers of a job, as declared at
// the time of the request, would have fired. Each is a run of KindBackfill with the instant as scheduled time.
type BackfillSpec struct {
	// Trigger limits the backfill to one trigger; empty means all triggers of the job.
	Trigger string `json:"trigger,omitempty"`
	// From is the first instant, inclusive.
	From time.Time `json:"from" schema:"required"`
	// To is the last instant, inclusive, and not in the future. The range has at most 500,000 instants.
	To time.Time `json:"to" schema:"required"`
	// Concurrency is how many runs of the backfill are at most under way at once.
	Concurrency int `json:"concurrency" schema:"max=1000,min=1"`
	// Order is the order in which the instants are run.
	Order BackfillOrder `json:"order"`
	// Pace is the shortest average time between two queued runs; 0 means as fast as runs end.
	Pace input.Duration `json:"pace,omitempty"`
	// Existing decides about instants that have a run in the ledger.
	Existing BackfillExisting `json:"existing"`
	// Payload replaces the job's payload, unless it is nil.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Reason is shown with the backfill; free text of at most 1024 characters.
	Reason string `json:"reason,omitempty" schema:"max=1024"`
}

// BackfillOrder is the order of the runs of a backfill.
type BackfillOrder string

// The orders.
const (
	BackfillOldestFirst BackfillOrder = "oldest_first"
	BackfillLatestFirst BackfillOrder = "latest_first"
)

// BackfillExisting decides about instants that have a scheduled, catch-up or backfill run in the ledger.
type BackfillExisting string

// The decisions.
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
	// MaxBackfillInstants bounds the instants of the range.
	MaxBackfillInstants = 500_000
)

// Validate returns everything wrong with b, as Problems, or nil. The range must end by now.
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

// BackfillPlan is a backfill before it begins: the request, the schedules, and the count of their instants.
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
	BackfillPaused     BackfillState = "paused"     // no more runs are queued; runs under way go on
	BackfillCancelling BackfillState = "cancelling" // the runs in flight end
	BackfillCancelled  BackfillState = "cancelled"  // final, as the next
	BackfillComplete   BackfillState = "complete"   // all instants were run or left out
)

// Ended reports whether a state is final.
func (s BackfillState) Ended() bool { return s == BackfillCancelled || s == BackfillComplete }

// Backfill is a backfill and its progress.
type Backfill struct {
	ID  string `json:"id"`
	App string `json:"app"`
	Job string `json:"job"`
	BackfillSpec
	// cancelled and complete are final.
	State BackfillState `json:"state"`
	// Error is why a backfill was cancelled without an operator, or completed without reaching Total.
	Error string `json:"error,omitempty"`
	dispatcher.StepRetries
	BackfillProgress
	// The name of a token, or another actor of the audit log.
	CreatedBy string     `json:"created_by"`
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// BackfillProgress counts the instants of a backfill. Total is Queued plus Skipped plus the instants not reached yet.
// Queued is Running plus Succeeded plus Failed plus Cancelled.
type BackfillProgress struct {
	// How many instants the range has, as counted at the beginning. Once it is complete, queued plus skipped.
	Total int `json:"total"`
	// Queued counts instants with a queued run, and Skipped those left out because of Existing.
	Queued int `json:"queued"`
	// Instants that were left out because of existing.
	Skipped int `json:"skipped"`
	// Running counts runs that have not ended. The others count by their first end: a retry by hand changes nothing.
	Running int `json:"running"`
	// Each run counts by its first end: a retry by hand changes nothing.
	Succeeded int `json:"succeeded"`
	// Runs that failed, timed out or were lost.
	Failed int `json:"failed"`
	// Runs that were cancelled, skipped or superseded.
	Cancelled int `json:"cancelled"`
	// ReachedAt is the last instant that the backfill has reached in its order; nil before the first.
	ReachedAt *time.Time `json:"reached_at,omitempty"`
}

// BackfillCount is the response to a request with DryRun.
type BackfillCount struct {
	// Total counts the instants of the range. First and Last are nil if it has none.
	Total int `json:"total"`
	// Absent if the range has none.
	First *time.Time `json:"first,omitempty"`
	// Absent if the range has none.
	Last *time.Time `json:"last,omitempty"`
	// Skipped counts the instants that would be left out now because of Existing.
	Skipped int `json:"skipped"`
}

// Remaining returns the number of instants that would be run.
func (c BackfillCount) Remaining() int { return c.Total - c.Skipped }

// backfillBits are the bits of a backfill's id below its time.
const backfillBits = 20

// NewBackfillID returns the id of a backfill that is created now. Ids sort by time; random distinguishes those of one
// millisecond.
func NewBackfillID(now time.Time, random int64) int64 {
	return now.UnixMilli()<<backfillBits | random&(1<<backfillBits-1)
}

// BackfillID returns an id as people see it.
func BackfillID(id int64) string { return strconv.FormatInt(id, 32) }

// ParseBackfillID is the inverse of BackfillID.
func ParseBackfillID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 32, 64)
	if err != nil || id <= 0 || BackfillID(id) != text {
		return 0, errors.New("not the id of a backfill")
	}
	return id, nil
}

// Change returns b after it was paused, resumed or cancelled. ErrConflict: it has ended, or is being cancelled.
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

// BackfillInstant is one instant of one trigger.
type BackfillInstant struct {
	At        time.Time
	TriggerID int64
}

// BackfillSchedules are the triggers of a backfill's job and the calendars that they use, as declared at the time of
// the request. Later changes do not change the instants of the backfill.
type BackfillSchedules struct {
	Triggers []BackfillTrigger `json:"triggers"`
	// Calendars are the calendars that the triggers name, and their bases.
	Calendars []dispatcher.Calendar `json:"calendars,omitempty"`
}

// BackfillTrigger is a trigger as declared when a backfill was requested.
type BackfillTrigger struct {
	ID       int64     `json:"id"`
	Name     string    `json:"name"`
	Identity string    `json:"identity"`
	AnchorAt time.Time `json:"anchor_at"`
	dispatcher.Schedule
}

// backfilled is a trigger of a backfill.
type backfilled struct {
	id int64
	*schedule.Schedule
}

const (
	// backfillSteps bounds the time to count the instants of a range to a few seconds, and pageSteps the time to find
	// the next of them to some tenths of a second.
	backfillSteps = 20 * MaxBackfillInstants
	pageSteps     = 64 * schedule.StepsPerSearch
	// countedAtOnce is how many instants are in memory while they are counted.
	countedAtOnce = 10_000
)

// Plan counts the instants of b by the current schedules of a job. calendars are all calendars of its app. The error
// is Problems if the job has no such trigger, or the range has more than MaxBackfillInstants.
func (b BackfillSpec) Plan(ctx context.Context, job dispatcher.Job, calendars []dispatcher.Calendar) (plan BackfillPlan, err error) {
	plan.BackfillSpec = b
	if plan.Schedules, err = b.schedules(job, calendars); err != nil {
		return plan, err
	}
	plan.BackfillCount, err = b.count(ctx, plan.Schedules)
	return plan, err
}

// schedules returns the schedules of the triggers of a job that b selects. The error is Problems.
func (b BackfillSpec) schedules(job dispatcher.Job, calendars []dispatcher.Calendar) (BackfillSchedules, error) {
	var problems input.Problems
	var all BackfillSchedules
	for _, name := range input.SortedKeys(job.Triggers) {
		if b.Trigger != "" && b.Trigger != name {
			continue
		}
		t := job.Triggers[name]
		if t.IsDelay() {
			if b.Trigger != "" {
				problems.Add("/trigger", input.CodeEnum, "trigger %s is a fixed delay: its fires depend on when runs end, so a range holds none; "+
					"run the job by hand", input.Echo(name))
			}
			continue
		}
		all.Triggers = append(all.Triggers, BackfillTrigger{job.TriggerKey(name), name, job.Identity(name), t.AnchorAt, t.Schedule})
	}
	if len(problems) == 0 && len(all.Triggers) == 0 {
		if b.Trigger != "" {
			problems.Add("/trigger", input.CodeEnum, "job %s has no trigger %s%s", job.Name, input.Echo(b.Trigger),
				input.DidYouMean(b.Trigger, input.SortedKeys(job.Triggers)))
		} else {
			problems.Add("/trigger", input.CodeRequired, "job %s has no trigger with a schedule, so a range holds no instants", job.Name)
		}
	}
	all.Calendars = calendarsUsed(all.Triggers, calendars)
	return all, problems.Err()
}

// calendarsUsed returns the calendars that triggers name, and their bases, each with only its exclusions.
func calendarsUsed(triggers []BackfillTrigger, all []dispatcher.Calendar) (used []dispatcher.Calendar) {
	wanted := map[string]bool{}
	for _, t := range triggers {
		wanted[t.Calendar] = true
	}
	for known := 0; known < len(wanted); {
		known = len(wanted)
		for _, c := range all {
			if wanted[c.Name] {
				for _, base := range c.Bases {
					wanted[base] = true
				}
			}
		}
	}
	for _, c := range all {
		if wanted[c.Name] {
			used = append(used, dispatcher.Calendar{App: c.App, Name: c.Name,
				CalendarSpec:   dispatcher.CalendarSpec{Timezone: c.Timezone, Rules: c.Rules, Bases: c.Bases},
				CalendarStatus: dispatcher.CalendarStatus{Err: c.Err}})
		}
	}
	return used
}

// parse returns the schedules, ready to be evaluated. The error is Problems.
func (s BackfillSchedules) parse() ([]backfilled, error) {
	var problems input.Problems
	all := make([]backfilled, 0, len(s.Triggers))
	calendars := dispatcher.CompileCalendars(s.Calendars)
	for _, t := range s.Triggers {
		parsed, err := t.Parse(t.Identity, t.AnchorAt, calendars)
		problems.AddError(input.Pointer("triggers", t.Name), err)
		all = append(all, backfilled{t.ID, parsed})
	}
	return all, problems.Err()
}

// count counts the instants of the range.
func (b BackfillSpec) count(ctx context.Context, schedules BackfillSchedules) (BackfillCount, error) {
	var count BackfillCount
	triggers, err := schedules.parse()
	if err != nil {
		return count, err
	}
	budget := schedule.NewBudget(ctx, backfillSteps)
	for _, t := range triggers {
		for after := b.From.Add(-time.Millisecond); ; {
			page, err := t.BetweenWithin(budget, after, b.To, countedAtOnce)
			if err != nil {
				return count, tooCostly(err)
			}
			if count.Total += len(page); count.Total > MaxBackfillInstants {
				return count, input.Problems{{Path: "/from", Code: input.CodeTooMany, Message: "the range holds more than 500000 instants; shorten it"}}
			}
			if len(page) == 0 {
				break
			}
			after = page[len(page)-1]
			if count.First == nil || page[0].Before(*count.First) {
				count.First = &page[0]
			}
			if count.Last == nil || after.After(*count.Last) {
				count.Last = &after
			}
			if len(page) < countedAtOnce {
				break
			}
		}
	}
	return count, nil
}

func tooCostly(err error) error {
	var problems input.Problems
	problems.AddError("/from", err)
	return problems.Err()
}

// Next returns at most limit instants of the range in its order, after the given one; nil means from its beginning.
// If it returns fewer, there are no more.
func (b BackfillSpec) Next(
	ctx context.Context, schedules BackfillSchedules, after *BackfillInstant, limit int,
) ([]BackfillInstant, error) {
	triggers, err := schedules.parse()
	if err != nil {
		return nil, err
	}
	var all []BackfillInstant
	budget := schedule.NewBudget(ctx, pageSteps)
	for _, t := range triggers {
		var times []time.Time
		if b.Order == BackfillLatestFirst {
			times = b.before(t, after, limit+1)
		} else if times, err = b.behind(budget, t, after, limit+1); err != nil {
			return nil, tooCostly(err)
		}
		for _, at := range times {
			if one := (BackfillInstant{at, t.id}); after == nil || b.order(*after, one) < 0 {
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, b.order)
	return all[:min(limit, len(all))], nil
}

// order compares instants by the order of the range.
func (b BackfillSpec) order(x, y BackfillInstant) int {
	if b.Order == BackfillLatestFirst {
		x, y = y, x
	}
	return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.TriggerID, y.TriggerID))
}

// behind returns instants of a trigger at or after another one, the earliest first.
func (b BackfillSpec) behind(budget *schedule.Budget, t backfilled, after *BackfillInstant, limit int) ([]time.Time, error) {
	from := b.From
	if after != nil {
		from = after.At
	}
	return t.BetweenWithin(budget, from.Add(-time.Millisecond), b.To, limit)
}

// before returns instants of a trigger at or before another one, the latest first.
func (b BackfillSpec) before(t backfilled, after *BackfillInstant, limit int) (times []time.Time) {
	to := b.To
	if after != nil {
		to = after.At
	}
	for at := to.Add(time.Millisecond); len(times) < limit; {
		found, ok := t.Previous(at)
		if !ok || found.Before(b.From) {
			break
		}
		times, at = append(times, found), found
	}
	return times
}

// BackfillQuery selects backfills of an app, the latest first. An empty Job selects those of all jobs.
type BackfillQuery struct {
	App, Job string
	Page     input.Page // the cursor is a backfill's id
}

// BackfillAction is an operator's action on a backfill.
type BackfillAction string

// The actions.
const (
	PauseBackfill  BackfillAction = "pause"
	ResumeBackfill BackfillAction = "resume"
	CancelBackfill BackfillAction = "cancel"
)

// Backfills run the instants of ranges.
type Backfills interface {
	// CreateBackfill begins a backfill of a job. ErrConflict: another one of the job has not ended.
	CreateBackfill(ctx context.Context, app, job string, plan BackfillPlan, change input.Change) (Backfill, error)
	// Backfill returns a backfill, or ErrNotFound.
	Backfill(ctx context.Context, app, id string) (Backfill, error)
	// BackfillSkips counts the instants that a backfill by plan would leave out now, because of runs in the ledger.
	BackfillSkips(ctx context.Context, plan BackfillPlan) (int, error)
	Backfills(ctx context.Context, query BackfillQuery) ([]Backfill, error)
	// ChangeBackfill pauses, resumes or cancels a backfill. Cancelling ends its waiting runs; runs in flight go on to
	// their end. A repeated call changes nothing. ErrConflict: the backfill has ended.
	ChangeBackfill(ctx context.Context, app, id string, action BackfillAction, change input.Change) (Backfill, error)
	// Backfilled counts the runs of backfills of a job between two instants, both inclusive, by trigger.
	Backfilled(ctx context.Context, job int64, from, to time.Time) (map[int64]int, error)
}

// FedBackfill is the result of one call of FeedBackfill.
type FedBackfill struct {
	Queued, Ended int
	// More is true if the next call can go on at once. NextAt is when the pace lets it go on; zero if it waits for runs
	// to end.
	More   bool
	NextAt time.Time
}

// BackfillFeed keeps the runs of backfills going.
type BackfillFeed interface {
	// OpenBackfills returns unfinished backfills, the fewest failures first; none while a rollback awaits a choice.
	OpenBackfills(ctx context.Context) ([]dispatcher.OpenSteps, error)
	// FeedBackfill counts the runs of a backfill that have ended, and queues as many of the next instants as it may.
	// It is one transaction that moves the backfill on, so any node may call it at any time and any number of times:
	// each instant is queued once. If it fails because of the stored backfill, it does nothing until NextAt, which is
	// later after each failure.
	FeedBackfill(ctx context.Context, id int64, now time.Time) (FedBackfill, error)
}
