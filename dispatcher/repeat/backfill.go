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

// BackfillSpec is what a backfill runs: the instants of a range at which triggers of a job would have fired, as they are
// declared when it is asked for. Each is a run of KindBackfill, whose scheduled time is the instant.
type BackfillSpec struct {
	// Trigger is the only trigger whose instants are run; empty: those of all triggers of the job.
	Trigger string `json:"trigger,omitempty"`
	// From is the first instant, inclusive.
	From time.Time `json:"from" schema:"required"`
	// To is the last instant, inclusive, and not in the future. The range holds at most 500,000 instants.
	To time.Time `json:"to" schema:"required"`
	// Concurrency is how many runs of the backfill are under way at once, at most.
	Concurrency int `json:"concurrency" schema:"max=1000,min=1"`
	// Order is in which order the instants are run.
	Order BackfillOrder `json:"order"`
	// Pace is the shortest time between two runs that are queued, on average; 0: as fast as runs end.
	Pace input.Duration `json:"pace,omitempty"`
	// Existing says what happens with instants of which the ledger has a run.
	Existing BackfillExisting `json:"existing"`
	// Payload takes the place of the job's payload; nil: the runs have that of the job.
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
	// cancelled and complete are final.
	State BackfillState `json:"state"`
	// Error says why a backfill was cancelled that no operator cancelled, or why one is complete whose Queued plus Skipped is not
	// Total.
	Error string `json:"error,omitempty"`
	dispatcher.StepRetries
	BackfillProgress
	// The name of a token, or another actor of the audit log.
	CreatedBy string     `json:"created_by"`
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// BackfillProgress counts the instants of a backfill. Total is Queued plus Skipped plus those that it has not reached. Queued is
// Running plus Succeeded plus Failed plus Cancelled.
type BackfillProgress struct {
	// How many instants the range holds, as counted when the backfill began. Once it is complete, queued and
	// skipped together.
	Total int `json:"total"`
	// Queued are the instants of which a run was queued, and Skipped those left out because of Existing.
	Queued int `json:"queued"`
	// Instants that were left out because of existing.
	Skipped int `json:"skipped"`
	// Running are the runs that have not ended. The others are counted as they ended first: a retry by hand changes nothing.
	Running int `json:"running"`
	// Each run counts as it ended first: a retry by hand changes nothing.
	Succeeded int `json:"succeeded"`
	// Runs that failed, timed out or were lost.
	Failed int `json:"failed"`
	// Runs that were cancelled, skipped or superseded.
	Cancelled int `json:"cancelled"`
	// ReachedAt is the latest instant in the order of the backfill that was looked at, nil before the first.
	ReachedAt *time.Time `json:"reached_at,omitempty"`
}

// BackfillCount is the response to a request with DryRun.
type BackfillCount struct {
	// Total counts the instants of the range. First and Last are nil if there is none.
	Total int `json:"total"`
	// Absent if the range holds none.
	First *time.Time `json:"first,omitempty"`
	// Absent if the range holds none.
	Last *time.Time `json:"last,omitempty"`
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

// BackfillInstant is one instant of one trigger.
type BackfillInstant struct {
	At        time.Time
	TriggerID int64
}

// BackfillSchedules are what a backfill runs the instants of: the triggers of its job and the calendars that they use, as they were
// declared when the backfill was asked for. No later change of these changes its instants.
type BackfillSchedules struct {
	Triggers []BackfillTrigger `json:"triggers"`
	// Calendars are those that the triggers name, and their bases.
	Calendars []dispatcher.Calendar `json:"calendars,omitempty"`
}

// BackfillTrigger is a trigger as it was declared when a backfill was asked for.
type BackfillTrigger struct {
	ID       int64     `json:"id"`
	Name     string    `json:"name"`
	Identity string    `json:"identity"`
	AnchorAt time.Time `json:"anchor_at"`
	dispatcher.Schedule
}

// backfilled is a trigger of which a backfill runs the instants.
type backfilled struct {
	id int64
	*schedule.Schedule
}

const (
	// backfillSteps bounds what counting the instants of a range costs to a few seconds, and pageSteps what finding the next
	// of them costs to some tenths of a second.
	backfillSteps = 20 * MaxBackfillInstants
	pageSteps     = 64 * schedule.StepsPerSearch
	// countedAtOnce is how many instants are in memory while they are counted.
	countedAtOnce = 10_000
)

// Plan counts the instants of b by the schedules of a job as it is declared. Calendars are all those of its app. The error is Problems
// if the job has no such trigger, or the range holds more than MaxBackfillInstants.
func (b BackfillSpec) Plan(ctx context.Context, job dispatcher.Job, calendars []dispatcher.Calendar) (plan BackfillPlan, err error) {
	plan.BackfillSpec = b
	if plan.Schedules, err = b.schedules(job, calendars); err != nil {
		return plan, err
	}
	plan.BackfillCount, err = b.count(ctx, plan.Schedules)
	return plan, err
}

// schedules returns the schedules of the triggers of a job whose instants b runs. The error is Problems.
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

// calendarsUsed returns the calendars that triggers name, and their bases; of each only what it excludes.
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

// Next returns the next instants of the range in its order, limit at most: those behind after; nil: from its beginning. There
// are no more if it returns fewer.
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

// BackfillQuery selects backfills of an app, the latest first. An empty job selects those of all.
type BackfillQuery struct {
	App, Job string
	Page     input.Page // the cursor is a backfill's id
}

// BackfillAction is what an operator does with a backfill.
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
	// BackfillSkips counts the instants that a backfill by plan would leave out now, because of the runs that the ledger has.
	BackfillSkips(ctx context.Context, plan BackfillPlan) (int, error)
	Backfills(ctx context.Context, query BackfillQuery) ([]Backfill, error)
	// ChangeBackfill pauses, resumes or cancels a backfill. To cancel ends its runs that wait, and leaves those in flight
	// to end. Repeated, it changes nothing. ErrConflict: the backfill has ended.
	ChangeBackfill(ctx context.Context, app, id string, action BackfillAction, change input.Change) (Backfill, error)
	// Backfilled counts the runs of backfills of a job between two instants, both inclusive, by trigger.
	Backfilled(ctx context.Context, job int64, from, to time.Time) (map[int64]int, error)
}

// FedBackfill is what one call of FeedBackfill did.
type FedBackfill struct {
	Queued, Ended int
	// More tells that the next call goes on at once. NextAt is when the pace lets it go on; zero: when runs end.
	More   bool
	NextAt time.Time
}

// BackfillFeed keeps the runs of backfills going.
type BackfillFeed interface {
	// OpenBackfills returns those that have not ended, those first whose steps fail least; none while a rollback awaits its choice.
	OpenBackfills(ctx context.Context) ([]dispatcher.OpenSteps, error)
	// FeedBackfill counts the runs of a backfill that have ended, and queues as many of the next instants as it may. It is one
	// transaction that moves the backfill on, so any node may call it at any time and however often: each instant is
	// queued once. If it fails for what is stored of the backfill, it does nothing until a time that is further away after each
	// failure, NextAt.
	FeedBackfill(ctx context.Context, id int64, now time.Time) (FedBackfill, error)
}
