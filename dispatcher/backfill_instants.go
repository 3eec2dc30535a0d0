package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"time"

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

// triggers returns the triggers of a job whose instants b runs. The error is Problems.
func (b BackfillSpec) triggers(job Job, calendars Calendars) ([]backfilled, error) {
	var problems Problems
	var all []backfilled
	for _, name := range sortedKeys(job.Triggers) {
		if b.Trigger != "" && b.Trigger != name {
			continue
		}
		t := job.Triggers[name]
		s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars)
		if err != nil {
			problems.AddError(Pointer("triggers", name), err)
			continue
		}
		if _, delayed := s.FixedDelay(); delayed {
			if b.Trigger != "" {
				problems.Add("/trigger", CodeEnum, "trigger %s is a fixed delay: its fires depend on when runs end, so a range holds none; "+
					"run the job by hand", Echo(name))
			}
			continue
		}
		all = append(all, backfilled{job.TriggerKey(name), s})
	}
	if len(problems) == 0 && len(all) == 0 {
		if b.Trigger != "" {
			problems.Add("/trigger", CodeEnum, "job %s has no trigger %s%s", job.Name, Echo(b.Trigger),
				DidYouMean(b.Trigger, sortedKeys(job.Triggers)))
		} else {
			problems.Add("/trigger", CodeRequired, "job %s has no trigger with a schedule, so a range holds no instants", job.Name)
		}
	}
	return all, problems.Err()
}

// Count counts the instants of the range. The error is Problems if there are more than MaxBackfillInstants, or if the job has
// no such trigger.
func (b BackfillSpec) Count(ctx context.Context, job Job, calendars Calendars) (BackfillCount, error) {
	var count BackfillCount
	triggers, err := b.triggers(job, calendars)
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
				return count, Problems{{Path: "/from", Code: CodeTooMany, Message: "the range holds more than 500000 instants; shorten it"}}
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
	var problems Problems
	problems.AddError("/from", err)
	return problems.Err()
}

// Next returns the next instants of the range in its order, limit at most: those behind after; nil: from its beginning. There
// are no more if it returns fewer.
func (b BackfillSpec) Next(
	ctx context.Context, job Job, calendars Calendars, after *BackfillInstant, limit int,
) ([]BackfillInstant, error) {
	triggers, err := b.triggers(job, calendars)
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
