package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// settleBatch bounds what one statement settles. Counting the missed fires of a trigger takes up to
// some milliseconds, and a decision should not wait long to be stored.
const settleBatch = 100

// catchUpPause is the longest pause between two fires of a trigger that fire_all catches up.
const catchUpPause = time.Second

// settleMisfires settles the misfires of the apps that have any.
func (e *Engine) settleMisfires(ctx context.Context, now time.Time) error {
	if !e.fleet.active() {
		return nil
	}
	_, version := e.fleet.shares(nil, nil)
	look, left := e.floors.misses.begin(now, 0, time.Time{}), e.leastOnTime(version)
	apps, err := e.store.OverdueApps(ctx, e.opts.Apps, e.opts.Labels, look.from, now)
	if err != nil {
		return err
	}
	e.overdue.settling(time.Time{}, now) // until this node finds what it is to settle
	if len(apps) == 0 {
		e.floors.misses.end(look, time.Time{}, left)
		return nil
	}
	locks := make([]string, len(apps))
	for i, app := range apps {
		locks[i] = dispatcher.LockApp(app)
	}
	return e.withLocks(ctx, locks, func(ctx context.Context, won []string) error {
		mine := slices.DeleteFunc(apps, func(app string) bool { return !slices.Contains(won, dispatcher.LockApp(app)) })
		return e.settle(ctx, mine, look.from, now)
	})
}

// leastOnTime returns the time before which nothing is left that was on time when this node last looked at all
// that it serves; zero: it does not know. If nothing is overdue now, what will be was on time then, so it is not
// due earlier. version is that of the shares now.
func (e *Engine) leastOnTime(version int) time.Time {
	if e.fleet.alone() { // its share is everything
		return e.floors.window.known(version)
	}
	return e.floors.left()
}

// settle decides about every trigger of apps that is later than its threshold, by its policy. The apps take turns,
// page by page. A trigger whose run finds no place in the pool waits, and delays no other. What is not reached within
// an interval is left to the next round, because the handler has other steps. Nothing is overdue that was due before from,
// which is the bound by which the apps were found; zero: that is not known.
func (e *Engine) settle(ctx context.Context, apps []string, from, now time.Time) error {
	waiting, cancel := context.WithTimeout(ctx, e.opts.Handler)
	defer cancel()
	queries := make([]settling, len(apps))
	for i, app := range apps {
		queries[i].DueQuery = dispatcher.DueQuery{Apps: []string{app}, From: from, Until: now, Overdue: true, Now: now, Limit: settleBatch}
	}
	var oldest time.Time // of this round
	for len(queries) > 0 && waiting.Err() == nil && e.fleet.active() {
		turned(ctx)
		settled, first := 0, time.Time{}
		for i := range queries {
			found, n, err := e.settlePage(waiting, &queries[i], now)
			if err != nil {
				return err
			}
			settled, first = settled+n, earlier(first, found)
		}
		if oldest.IsZero() {
			oldest = first
			e.overdue.settling(oldest, now)
		}
		queries = slices.DeleteFunc(queries, func(of settling) bool { return of.done })
		if settled == 0 && len(queries) > 0 {
			sleep(waiting, leasePause)
		}
	}
	if len(queries) == 0 {
		e.overdue.settling(time.Time{}, now)
	}
	return nil
}

// settling is how far the misfires of an app are settled. It is done at the end, if all had a place.
type settling struct {
	dispatcher.DueQuery
	refused bool // some had no place
	done    bool
}

// settlePage settles a page of an app's misfires. It returns when the first of them was due, and how many it settled.
func (e *Engine) settlePage(ctx context.Context, of *settling, now time.Time) (first time.Time, settled int, err error) {
	page, err := e.store.Due(ctx, of.DueQuery)
	if err != nil {
		return first, 0, err
	}
	first = e.oldestServed(page)
	if len(page) < of.Limit {
		of.AfterTime, of.AfterID = time.Time{}, 0
		of.done = !of.refused
		of.refused = false
	} else {
		last := page[len(page)-1]
		of.AfterTime, of.AfterID = last.DueAt, last.ID
	}
	page = slices.DeleteFunc(page, func(d dispatcher.DueTrigger) bool { return !e.opts.Labels.Have(d.NodeLabels) })
	missed, err := e.evaluate(ctx, page)
	if err != nil {
		return first, 0, err
	}
	places := map[int64]pool.QueueKey{}
	missed = slices.DeleteFunc(missed, func(one entry) bool {
		one.queue.Late = true
		if one.misfirePolicy == dispatcher.Skip {
			return false // no run follows
		}
		if e.pool.Admit(one.queue) != pool.Admitted {
			of.refused, of.done = true, false
			return true
		}
		places[one.ID] = one.queue
		return false
	})
	if len(missed) == 0 {
		return first, 0, nil
	}
	runs, drawn := e.settleMissed(ctx, missed, now)
	for _, run := range runs {
		run.Queue = places[run.TriggerID]
		delete(places, run.TriggerID)
	}
	e.pool.Submit(runs)
	e.pool.Release(slices.Collect(maps.Values(places))...)
	e.tokens.close(drawn...)
	wake(e.wakePoll) // the fires after the settled ones may be due before the next poll
	return first, len(missed), nil
}

// settleMissed decides about triggers that are too late. It returns the runs that were won, one of a
// trigger at most, and the tokens that they were won under. Each step is stored before the next: a
// node that finds a trigger after a crash in between goes on from there.
func (e *Engine) settleMissed(ctx context.Context, missed []entry, now time.Time) (runs []*heldRun, drawn []run.Token) {
	for len(missed) > 0 {
		turned(ctx)
		batch := dispatcher.SettleBatch{Node: e.fleet.id(), Token: e.tokens.draw()}
		drawn = append(drawn, batch.Token)
		ranges, schedules := map[int64]*run.MissedRange{}, map[int64]*schedule.Schedule{}
		var more, settled []entry
		for i := range missed {
			var step dispatcher.Settlement
			err := dispatcher.WithoutPanic(func() (err error) {
				step, err = missed[i].decide(now)
				return err
			})
			if err != nil {
				e.quarantine(ctx, missed[i].DueTrigger, err)
				continue
			}
			settled = append(settled, missed[i])
			batch.Settlements = append(batch.Settlements, step)
			ranges[step.TriggerID] = &run.MissedRange{From: step.Next, To: step.To, Count: step.Count}
			schedules[step.TriggerID] = missed[i].schedule
			if after, overdue := missed[i].after(step, now); overdue {
				more = append(more, after)
			}
		}
		if missed = settled; len(missed) == 0 {
			break
		}
		held, err := e.store.Settle(withoutCancel(ctx), batch)
		if err != nil {
			held = e.reconcile(ctx, batch.Node, batch.Token, err)
		}
		e.reportSettled(ctx, batch, missed, len(held))
		wake(e.wakeFollow) // something may follow missed fires
		for _, r := range e.heldBy(batch.Node, held) {
			r.Due, r.Detail.schedule = now, schedules[r.TriggerID] // its scheduled time is long past
			if r.Kind == run.KindCatchUp {
				r.Detail.missed = ranges[r.TriggerID]
			}
			runs = append(runs, r)
		}
		missed = more
	}
	return runs, drawn
}

// reportSettled counts and logs what a batch has decided.
func (e *Engine) reportSettled(ctx context.Context, batch dispatcher.SettleBatch, missed []entry, runs int) {
	decisions := 0
	for i, step := range batch.Settlements {
		if step.Decision != dispatcher.DecisionFireAll {
			decisions++
		}
		e.metrics.apps.Of(missed[i].queue.App).missed[step.Decision].Add(float64(step.Count))
		if _, delayed := missed[i].schedule.FixedDelay(); delayed && step.CatchUp.IsZero() {
			wake(e.wakeAdopt) // no run ends that would schedule its next fire
		}
	}
	e.metrics.misfires.Add(float64(decisions))
	e.log.InfoContext(ctx, "misfires settled", "triggers", len(batch.Settlements), "decisions", decisions, "runs", runs)
}

// decide returns the next step in settling the missed fires of one trigger. It skips fires that are
// too old, or too many, first. Fires so recent that jitter may still delay them are left to run.
func (e *entry) decide(now time.Time) (dispatcher.Settlement, error) {
	until := later(now.Add(-e.jitter), e.NextFireTime)
	why := fmt.Sprintf("not claimed within %s of %s", e.MisfireAfter, input.FormatInstant(e.DueAt))
	if oldest := now.Add(-e.catchUpWindow); e.NextFireTime.Before(oldest) && e.misfirePolicy != dispatcher.Skip {
		tooOld := oldest.Add(-time.Millisecond)
		if tooOld.After(until) {
			tooOld = until
		}
		return e.settleUntil(tooOld, dispatcher.DecisionSkip,
			fmt.Sprintf("%s, and older than the catch-up window of %s", why, e.catchUpWindow))
	}
	switch e.misfirePolicy {
	case dispatcher.Skip:
		return e.settleUntil(until, dispatcher.DecisionSkip, why)
	case dispatcher.FireAll:
		return e.catchUp(until, now, why)
	}
	return e.settleUntil(until, dispatcher.DecisionFireOnce, why)
}

// settleUntil decides about all missed fires up to an instant at once.
func (e *entry) settleUntil(until time.Time, decision dispatcher.Decision, why string) (dispatcher.Settlement, error) {
	last, count, next, err := dispatcher.Missed(e.schedule, e.NextFireTime, until)
	step := dispatcher.Settlement{Advance: e.advance(), To: last, Count: count, Decision: decision, Reason: why}
	if decision == dispatcher.DecisionFireOnce {
		step.CatchUp = last
	}
	if next != nil {
		step.Then, step.ThenDue = *next, next.Add(e.schedule.Delay(*next))
	}
	return step, err
}

// catchUp runs the first of the missed fires; the others follow by ordinary claims, each a little
// after the one before. Of more than MostCaughtUp fires, it skips the oldest first. The trigger
// itself says how far it has come, so nothing else need be remembered.
func (e *entry) catchUp(until, now time.Time, why string) (dispatcher.Settlement, error) {
	last, count, next, err := dispatcher.MissedButLatest(e.schedule, e.NextFireTime, until, dispatcher.MostCaughtUp)
	if err != nil {
		return dispatcher.Settlement{}, err
	}
	if count > 0 {
		return dispatcher.Settlement{
			Advance: e.advanceTo(next, now), To: last, Count: count, Decision: dispatcher.DecisionSkip,
			Reason: fmt.Sprintf("%s, and more than the latest %d, which are caught up", why, dispatcher.MostCaughtUp),
		}, nil
	}
	step := dispatcher.Settlement{
		Advance: e.advance(), To: e.NextFireTime, Count: 1, Decision: dispatcher.DecisionFireAll, Reason: why, CatchUp: e.NextFireTime,
	}
	then, ok, err := e.schedule.Find(e.NextFireTime)
	if ok {
		step.Advance = e.advanceTo(then, e.pacedAfter(then, now))
	}
	return step, err
}

// after returns e as a settlement leaves it, and whether it is still too late and needs another step.
func (e *entry) after(step dispatcher.Settlement, now time.Time) (after entry, overdue bool) {
	after = *e
	after.PrevFireTime, after.NextFireTime, after.DueAt = step.Next, step.Then, step.ThenDue
	return after, !step.Then.IsZero() && step.ThenDue.Add(e.MisfireAfter).Before(now)
}

// late reports whether e is one of the missed fires that fire_all catches up: jitter never makes a
// fire due so long after its scheduled time.
func (e *entry) late() bool { return e.DueAt.After(e.NextFireTime.Add(e.jitter)) }

// pacedAfter returns when the fire after e is due if e is caught up at now. If that fire was missed
// too, it follows after a pause: a second or, where fires come so fast that this would never catch
// up, a quarter of the time between the two.
func (e *entry) pacedAfter(then, now time.Time) time.Time {
	if e.late() {
		now = later(now, e.DueAt)
	}
	if !then.Add(e.jitter).Before(now) {
		return later(now, then.Add(e.schedule.Delay(then)))
	}
	return now.Add(min(catchUpPause, then.Sub(e.NextFireTime)/4))
}
