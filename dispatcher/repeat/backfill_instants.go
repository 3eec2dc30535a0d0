package repeat

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// BackfillInstant is one instant of one trigger.
type BackfillInstant struct {
	At        time.Time
	TriggerID int64
}

func (a BackfillInstant) compare(b BackfillInstant) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.TriggerID, b.TriggerID))
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
		return y.compare(x)
	}
	return x.compare(y)
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
