package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// evaluate parses the schedules of triggers and reads their jobs. A trigger that cannot be evaluated
// is quarantined and does not stop the rest. One that was deleted meanwhile is left out.
func (e *Engine) evaluate(ctx context.Context, triggers []dispatcher.DueTrigger) ([]entry, error) {
	needed := make(map[int64]int64, len(triggers))
	for _, trigger := range triggers {
		needed[trigger.JobID] = trigger.Revision
	}
	if err := e.jobs.load(ctx, needed); err != nil {
		return nil, err
	}
	due := make([]entry, 0, len(triggers))
	for _, trigger := range triggers {
		job, ok := e.jobs.get(trigger.JobID, trigger.Revision)
		if !ok {
			continue
		}
		var unread *unreadError
		switch s, err := e.parse(ctx, trigger, job); {
		case err == nil:
			next := entry{DueTrigger: trigger, schedule: s, queue: job.queue(), weight: job.AppWeight}
			if job.Revision == trigger.Revision {
				next.job = job
			}
			due = append(due, next)
		case errors.As(err, &unread):
			return nil, err
		case !errors.Is(err, errGone):
			e.quarantine(ctx, trigger, err)
		}
	}
	return due, nil
}

// parse returns the schedule of a trigger of job.
func (e *Engine) parse(ctx context.Context, trigger dispatcher.DueTrigger, job *preparedJob) (*schedule.Schedule, error) {
	name, ok := job.triggers[trigger.ID]
	switch {
	case job.Err != nil:
		return nil, job.Err
	case !ok:
		return nil, errGone
	}
	spec := trigger.Spec
	spec.Identity = dispatcher.Identity(job.App, job.Name, name)
	if trigger.Calendar != "" {
		all, err := e.calendars.of(ctx, job.App, trigger.CalendarRevision)
		if err != nil {
			return nil, &unreadError{fmt.Errorf("read calendars of app %s: %w", job.App, err)}
		}
		if spec.Calendar, err = all.Find(trigger.Calendar); err != nil {
			return nil, err
		}
	}
	return e.schedules.Parse(spec)
}

// heldBy returns runs that node holds and that were not claimed here, each due at its scheduled time.
func (e *Engine) heldBy(node dispatcher.NodeID, runs []dispatcher.HeldRun) []*heldRun {
	held := make([]*heldRun, len(runs))
	for i, run := range runs {
		held[i] = &heldRun{HeldRun: run, Node: node, Due: run.ScheduledAt, Detail: runDetail{delayed: run.TriggerID != run.JobID}}
		if job, ok := e.jobs.get(run.JobID, 0); ok {
			held[i].Queue, held[i].Weight = job.queue(), job.AppWeight
		}
		in := &held[i].Queue
		in.Slow, in.Late = in.MayBeSlow() && e.pool.IsSlow(run.JobID), run.Kind == dispatcher.KindCatchUp
	}
	return held
}

// unreadError is a failure of the database, not of the trigger.
type unreadError struct{ error }

func (e *unreadError) Unwrap() error { return e.error }

// quarantine stops a trigger that cannot be evaluated, with the reason.
func (e *Engine) quarantine(ctx context.Context, trigger dispatcher.DueTrigger, reason error) {
	turned(ctx)
	e.log.WarnContext(ctx, "trigger quarantined", "trigger_id", trigger.ID, "err", reason)
	e.logIf(ctx, "quarantine trigger", e.store.Quarantine(ctx, trigger.ID, trigger.Revision, reason.Error()))
}

// calendarCache caches the calendars of the apps whose triggers use some.
type calendarCache struct {
	store Store

	mu   sync.Mutex
	apps map[string]appCalendars
}

type appCalendars struct {
	revision int64
	all      dispatcher.Calendars
}

func newCalendarCache(store Store) *calendarCache {
	return &calendarCache{store: store, apps: map[string]appCalendars{}}
}

// of returns the calendars of an app as they were at a revision, or later.
func (c *calendarCache) of(ctx context.Context, app string, revision int64) (dispatcher.Calendars, error) {
	c.mu.Lock()
	found, ok := c.apps[app]
	c.mu.Unlock()
	if ok && found.revision >= revision {
		return found.all, nil
	}
	current, all, err := c.store.AppCalendars(ctx, app)
	if err != nil {
		return nil, err
	}
	found = appCalendars{current, dispatcher.CompileCalendars(all)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apps[app] = found
	return found.all, nil
}
