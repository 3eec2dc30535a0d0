package chores

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// settleBatch bounds what one statement settles. Counting the missed fires of a trigger takes up to
// some milliseconds, and a decision should not wait long to be stored.
const settleBatch = 100

// SettleMisfires settles the misfires of the apps that have any.
func (c *Chores) SettleMisfires(ctx context.Context, now time.Time) error {
	_, version := c.Fleet.Shares(nil, nil)
	// Before left, no fire is left that was on time at this node's last look at all that it serves; zero: unknown. If
	// nothing is overdue now, any fire that becomes overdue later was on time then, so it is not due earlier.
	look, left := c.Plan.Floors.Misses.Begin(now, 0, time.Time{}), c.Plan.Floors.Left()
	if c.Fleet.Alone() { // its share is everything
		left = c.Plan.Floors.Window.Known(version)
	}
	apps, err := c.Store.OverdueApps(ctx, c.Options.Apps, c.Options.Labels, look.From, now)
	if err != nil {
		return err
	}
	c.Plan.Overdue.Settling(time.Time{}, now) // until this node finds misfires to settle
	if len(apps) == 0 {
		c.Plan.Floors.Misses.End(look, time.Time{}, left)
		return nil
	}
	locks := make([]string, len(apps))
	for i, app := range apps {
		locks[i] = dispatcher.LockApp(app)
	}
	return c.withLocks(ctx, locks, func(ctx context.Context, won []string) error {
		mine := slices.DeleteFunc(apps, func(app string) bool { return !slices.Contains(won, dispatcher.LockApp(app)) })
		return c.settle(ctx, mine, look.From, now)
	})
}

// settle decides about every trigger of apps that is later than its threshold, by its policy. The apps take turns, page
// by page. A trigger whose run finds no place in the pool waits, and delays no other. After an interval the rest is
// left to the next round, because the handler has other steps. Nothing due before from is overdue; it is the bound by
// which the apps were found; zero: unknown.
func (c *Chores) settle(ctx context.Context, apps []string, from, now time.Time) error {
	waiting, cancel := context.WithTimeout(ctx, c.Options.Handler)
	defer cancel()
	queries := make([]settling, len(apps))
	for i, app := range apps {
		queries[i].DueQuery = dispatcher.DueQuery{Apps: []string{app}, From: from, Until: now, Overdue: true, Now: now, Limit: settleBatch}
	}
	var oldest time.Time // of this round
	failed := false
	for len(queries) > 0 && waiting.Err() == nil && c.Fleet.Active() {
		loop.Turned(ctx)
		settled, first := 0, time.Time{}
		for i := range queries {
			found, n, err := c.settlePage(waiting, &queries[i], now)
			if err != nil {
				return err
			}
			settled, first = settled+n, plan.Earlier(first, found)
		}
		if oldest.IsZero() {
			oldest = first
			c.Plan.Overdue.Settling(oldest, now)
		}
		queries = slices.DeleteFunc(queries, func(of settling) bool {
			failed = failed || of.failed
			return of.done || of.failed
		})
		if settled == 0 && len(queries) > 0 {
			backoff.Sleep(waiting, plan.LeasePause)
		}
	}
	if len(queries) == 0 && !failed {
		c.Plan.Overdue.Settling(time.Time{}, now)
	}
	return nil
}

// settling is the progress in the misfires of an app. It is done at the end, if all had a place.
type settling struct {
	dispatcher.DueQuery
	refused bool // some had no place
	done    bool
	failed  bool // the database refused some, or its response was lost; the next round finds what is left
}

// settlePage settles a page of an app's misfires. It returns when the first of them was due, and how many it settled.
func (c *Chores) settlePage(ctx context.Context, of *settling, now time.Time) (first time.Time, settled int, err error) {
	page, err := c.Store.Due(ctx, of.DueQuery)
	if err != nil {
		return first, 0, err
	}
	first = c.Plan.OldestServed(page)
	if len(page) < of.Limit {
		of.AfterTime, of.AfterID = time.Time{}, 0
		of.done = !of.refused
		of.refused = false
	} else {
		last := page[len(page)-1]
		of.AfterTime, of.AfterID = last.DueAt, last.ID
	}
	page = slices.DeleteFunc(page, func(d dispatcher.DueTrigger) bool { return !c.Options.Labels.Have(d.NodeLabels) })
	missed, err := c.Plan.Evaluate(ctx, page)
	if err != nil {
		return first, 0, err
	}
	places := map[int64]pool.QueueKey{}
	missed = slices.DeleteFunc(missed, func(one plan.Entry) bool {
		one.Queue.Late = true
		if one.MisfirePolicy == dispatcher.Skip {
			return false // no run follows
		}
		if c.Pool.Admit(one.Queue) != pool.Admitted {
			of.refused, of.done = true, false
			return true
		}
		places[one.ID] = one.Queue
		return false
	})
	if len(missed) == 0 {
		return first, 0, nil
	}
	runs, drawn, failed := c.settleMissed(ctx, missed, now)
	of.failed = failed
	for _, run := range runs {
		run.Queue = places[run.TriggerID]
		delete(places, run.TriggerID)
	}
	c.Pool.Submit(runs)
	c.Pool.Release(slices.Collect(maps.Values(places))...)
	c.Claims.Close(drawn...)
	c.Wakes.Poll.Notify() // the fires after the settled ones may be due before the next poll
	return first, len(missed), nil
}

// settleMissed decides about triggers that are too late. It returns the runs that were won, one of a trigger at most,
// and their tokens. Each step is stored before the next: after a crash or an error in between, the node that finds the
// trigger goes on from there.
func (c *Chores) settleMissed(ctx context.Context, missed []plan.Entry, now time.Time) (
	runs []*plan.Held, drawn []run.Token, failed bool,
) {
	for len(missed) > 0 {
		loop.Turned(ctx)
		batch := dispatcher.SettleBatch{Node: c.Fleet.ID(), Token: c.Claims.Draw()}
		drawn = append(drawn, batch.Token)
		ranges, schedules := map[int64]*run.MissedRange{}, map[int64]*schedule.Schedule{}
		var more, settled []plan.Entry
		for i := range missed {
			var step dispatcher.Settlement
			err := dispatcher.WithoutPanic(func() (err error) {
				step, err = missed[i].Decide(now)
				return err
			})
			if err != nil {
				c.Plan.Quarantine(ctx, missed[i].DueTrigger, err)
				continue
			}
			settled = append(settled, missed[i])
			batch.Settlements = append(batch.Settlements, step)
			ranges[step.TriggerID] = &run.MissedRange{From: step.Next, To: step.To, Count: step.Count}
			schedules[step.TriggerID] = missed[i].Schedule
			if after, overdue := missed[i].After(step, now); overdue {
				more = append(more, after)
			}
		}
		if missed = settled; len(missed) == 0 {
			break
		}
		held, err := c.Store.Settle(loop.WithoutCancel(ctx), batch)
		held = c.Claims.Won(ctx, batch.Node, batch.Token, held, err)
		if err == nil {
			c.reportSettled(ctx, batch, missed, len(held))
		}
		c.Wakes.Follow.Notify() // missed fires may have followers
		for _, r := range c.Plan.HeldBy(batch.Node, held) {
			r.Due, r.Detail.Schedule = now, schedules[r.TriggerID] // its scheduled time is long past
			if r.Kind == run.KindCatchUp {
				r.Detail.Missed = ranges[r.TriggerID]
			}
			runs = append(runs, r)
		}
		if err != nil {
			return runs, drawn, true
		}
		missed = more
	}
	return runs, drawn, false
}

// reportSettled counts and logs the decisions of a batch.
func (c *Chores) reportSettled(ctx context.Context, batch dispatcher.SettleBatch, missed []plan.Entry, runs int) {
	decisions := 0
	for i, step := range batch.Settlements {
		if step.Decision != dispatcher.DecisionFireAll {
			decisions++
		}
		c.Missed(missed[i].Queue.App, step.Decision, step.Count)
		if _, delayed := missed[i].Schedule.FixedDelay(); delayed && step.CatchUp.IsZero() {
			c.Wakes.Adopt.Notify() // no run ends that would schedule the trigger's next fire
		}
	}
	c.metrics.misfires.Add(float64(decisions))
	c.Log.InfoContext(ctx, "misfires settled", "triggers", len(batch.Settlements), "decisions", decisions, "runs", runs)
}
