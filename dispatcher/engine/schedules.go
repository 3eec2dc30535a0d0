package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// evaluate returns triggers as the timeline plans them. One that cannot be evaluated is quarantined and
// does not stop the rest. One that was deleted meanwhile is left out.
func (e *Engine) evaluate(ctx context.Context, triggers []dispatcher.DueTrigger) ([]entry, error) {
	all, err := e.recognize(ctx, triggers)
	if err != nil {
		return nil, err
	}
	return e.prepare(ctx, all, true)
}

// prepare reads the jobs of triggers, and parses the schedules of those that are not known; remember keeps
// these.
func (e *Engine) prepare(ctx context.Context, all []candidate, remember bool) ([]entry, error) {
	needed := make(map[int64]int64, len(all))
	for i := range all {
		needed[all[i].jobID()] = max(needed[all[i].jobID()], all[i].Revision)
	}
	jobs, err := e.jobs.load(ctx, needed)
	if err != nil {
		return nil, err
	}
	due := make([]entry, 0, len(all))
	for i := range all {
		one := &all[i]
		job, ok := jobs[one.jobID()]
		if !ok {
			continue
		}
		known, err := one.known, error(nil)
		if known == nil {
			err = dispatcher.WithoutPanic(func() (err error) {
				known, err = e.parse(ctx, one, job)
				return err
			})
		}
		var unread *unreadError
		switch {
		case err == nil:
			next := entry{DueTrigger: one.DueTrigger, knownTrigger: known, queue: job.queue(), weight: job.Bounds.Weight}
			if job.Revision == one.Revision {
				next.job = job
			}
			e.metrics.apps.Of(job.App) // its series begin at 0 before its first fire counts
			due = append(due, next)
			if one.known == nil && remember {
				e.triggers.put(one.ID, known)
			}
		case errors.As(err, &unread):
			return nil, err
		case !errors.Is(err, errGone):
			e.quarantine(ctx, one.DueTrigger, err)
		}
	}
	return due, nil
}

// parse returns what a trigger of job is, by its definition as it was read.
func (e *Engine) parse(ctx context.Context, trigger *candidate, job *preparedJob) (*knownTrigger, error) {
	version := &trigger.version
	if job.Err != nil {
		return nil, job.Err
	}
	name, ok := job.triggers[trigger.ID]
	if !ok {
		return nil, errGone
	}
	known := &knownTrigger{
		JobID: version.JobID, revision: version.Revision, jitter: version.Spec.Jitter,
		misfirePolicy: version.MisfirePolicy, catchUpWindow: version.CatchUpWindow,
		zones: schedule.CurrentZones(), // before anything is parsed
	}
	spec := version.Spec
	spec.Identity = job.Identity(name)
	if version.Calendar != "" {
		revision, all, err := e.calendars.of(ctx, job.App, trigger.CalendarRevision)
		if err != nil {
			return nil, &unreadError{fmt.Errorf("read calendars of app %s: %w", job.App, err)}
		}
		if spec.Calendar, err = all.Find(version.Calendar); err != nil {
			return nil, err
		}
		known.calendars = revision
	}
	var err error
	known.schedule, err = e.schedules.Parse(spec)
	return known, err
}

// catchesUp tells whether runs of a kind go after those on time.
func catchesUp(kind run.Kind) bool {
	return kind == run.KindCatchUp || kind == run.KindBackfill
}

// heldBy returns runs that node holds and that were not claimed here, each due at its scheduled time.
func (e *Engine) heldBy(node run.NodeID, runs []run.HeldRun) []*heldRun {
	held := make([]*heldRun, len(runs))
	for i, r := range runs {
		delayed := r.Shard == 0 && (r.Kind == run.KindSchedule || r.Kind == run.KindCatchUp)
		held[i] = &heldRun{HeldRun: r, Node: node, Due: r.ScheduledAt, Detail: runDetail{delayed: delayed}}
		if job, ok := e.jobs.get(r.JobID, 0); ok {
			held[i].Queue, held[i].Weight = job.queue(), job.Bounds.Weight
		}
		held[i].Queue.Job, held[i].Queue.Late = r.JobID, catchesUp(r.Kind)
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

// brokenTrigger is a trigger that cannot be evaluated, and why.
type brokenTrigger struct {
	dispatcher.DueTrigger
	reason error
}

// brokenLoop puts triggers into state error that the claim loop, which must not wait, could not evaluate.
func (e *Engine) brokenLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.broken.wake:
		}
		for _, one := range e.broken.take() {
			e.quarantine(ctx, one.DueTrigger, one.reason)
		}
	}
}

// calendarCache caches the calendars of the apps whose triggers use some.
type calendarCache struct {
	store Store

	mu   sync.Mutex
	apps map[string]appCalendars
}

type appCalendars struct {
	revision int64
	zones    *schedule.Zones // that they were parsed with
	all      dispatcher.Calendars
}

func newCalendarCache(store Store) *calendarCache {
	return &calendarCache{store: store, apps: map[string]appCalendars{}}
}

// of returns the calendars of an app as they were at a revision, or later, and which revision that is.
func (c *calendarCache) of(ctx context.Context, app string, revision int64) (int64, dispatcher.Calendars, error) {
	c.mu.Lock()
	found, ok := c.apps[app]
	c.mu.Unlock()
	zones := schedule.CurrentZones()
	if ok && found.revision >= revision && found.zones == zones {
		return found.revision, found.all, nil
	}
	current, all, err := c.store.AppCalendars(ctx, app)
	if err != nil {
		return 0, nil, err
	}
	found = appCalendars{current, zones, dispatcher.CompileCalendars(all)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apps[app] = found
	return found.revision, found.all, nil
}

// clear forgets everything, as triggerCache.clear does.
func (c *calendarCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.apps)
}
