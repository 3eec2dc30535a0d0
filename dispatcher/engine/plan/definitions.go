package plan

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Definitions are caches for due fires: jobs, their triggers, the groups that they call, the calendars of their apps,
// and the expressions that the schedules of triggers share.
type Definitions struct {
	Node
	store     definitionStore
	Jobs      *jobCache
	Groups    *groupCache
	Triggers  *cache.Cache[int64, *KnownTrigger]
	calendars *calendarCache
	schedules *schedule.Cache
	// known is called with the app of each trigger that is planned.
	known func(app string)
}

// definitionStore is where definitions are read from.
type definitionStore interface {
	jobReader
	GroupReader
	calendarReader
	TriggersByID(ctx context.Context, ids []int64) ([]dispatcher.TriggerVersion, error)
	Quarantine(ctx context.Context, id, revision int64, reason string) error
}

// NewDefinitions returns empty caches. They call known with the app of each trigger that is planned.
func NewDefinitions(store definitionStore, of Node, known func(app string)) *Definitions {
	return &Definitions{
		Node: of, store: store, known: known,
		Jobs: &jobCache{
			store: store, jobs: cache.Sized[int64](mostJobBytes, (*preparedJob).size), changed: map[string]time.Time{},
		},
		Groups: &groupCache{
			store: store, groups: cache.Sized[int64](mostGroupBytes, (*knownGroup).size), reads: map[int64]*groupRead{},
		},
		Triggers:  cache.New[int64, *KnownTrigger](mostKnownTriggers),
		calendars: &calendarCache{store: store, apps: map[string]appCalendars{}},
		schedules: schedule.NewCache(10_000),
	}
}

// Forget drops everything: after a rollback of the database, a revision may mean something else.
func (d *Definitions) Forget() {
	d.Jobs.Clear()
	d.Groups.Clear()
	d.Triggers.Clear()
	d.calendars.clear()
}

// Evaluate returns triggers as entries of the timeline. One that cannot be evaluated is quarantined and does not stop
// the rest. One that was deleted meanwhile is left out.
func (d *Definitions) Evaluate(ctx context.Context, triggers []dispatcher.DueTrigger) ([]Entry, error) {
	all, err := d.recognize(ctx, triggers)
	if err != nil {
		return nil, err
	}
	return d.prepare(ctx, all, true)
}

// prepare reads the jobs of triggers, and parses the schedules that are not known yet; with remember it keeps them.
func (d *Definitions) prepare(ctx context.Context, all []candidate, remember bool) ([]Entry, error) {
	needed := make(map[int64]int64, len(all))
	for i := range all {
		needed[all[i].jobID()] = max(needed[all[i].jobID()], all[i].Revision)
	}
	jobs, err := d.Jobs.Load(ctx, needed)
	if err != nil {
		return nil, err
	}
	due := make([]Entry, 0, len(all))
	for i := range all {
		one := &all[i]
		job, ok := jobs[one.jobID()]
		if !ok {
			continue
		}
		known, err := one.known, error(nil)
		if known == nil {
			err = dispatcher.WithoutPanic(func() (err error) {
				known, err = d.parse(ctx, one, job)
				return err
			})
		}
		var unread *unreadError
		switch {
		case err == nil:
			next := Entry{DueTrigger: one.DueTrigger, KnownTrigger: known, Queue: job.Queue(), Weight: job.Bounds.Weight}
			if job.Revision == one.Revision {
				next.Job = job
			}
			d.known(job.App) // its series begin at 0 before its first fire counts
			due = append(due, next)
			if one.known == nil && remember {
				d.Triggers.Put(one.ID, known)
			}
		case errors.As(err, &unread):
			return nil, err
		case !errors.Is(err, ErrGone):
			d.Quarantine(ctx, one.DueTrigger, err)
		}
	}
	return due, nil
}

// parse returns the definition of a trigger of job in the form that firing needs.
func (d *Definitions) parse(ctx context.Context, trigger *candidate, job *preparedJob) (*KnownTrigger, error) {
	version := &trigger.version
	if job.Err != nil {
		return nil, job.Err
	}
	name, ok := job.triggers[trigger.ID]
	if !ok {
		return nil, ErrGone
	}
	known := &KnownTrigger{
		JobID: version.JobID, revision: version.Revision, Jitter: version.Spec.Jitter,
		MisfirePolicy: version.MisfirePolicy, catchUpWindow: version.CatchUpWindow,
		Zones: schedule.CurrentZones(), // before anything is parsed
	}
	spec := version.Spec
	spec.Identity = job.Identity(name)
	if version.Calendar != "" {
		revision, all, err := d.calendars.of(ctx, job.App, trigger.CalendarRevision)
		if err != nil {
			return nil, &unreadError{fmt.Errorf("read calendars of app %s: %w", job.App, err)}
		}
		if spec.Calendar, err = all.Find(version.Calendar); err != nil {
			return nil, err
		}
		known.calendars = revision
	}
	var err error
	known.Schedule, err = d.schedules.Parse(spec)
	return known, err
}

// unreadError is a failure of the database, not of the trigger.
type unreadError struct{ error }

func (e *unreadError) Unwrap() error { return e.error }

// Quarantine stops a trigger that cannot be evaluated, with the reason.
func (d *Definitions) Quarantine(ctx context.Context, trigger dispatcher.DueTrigger, reason error) {
	loop.Turned(ctx)
	d.Log.WarnContext(ctx, "trigger quarantined", "trigger_id", trigger.ID, "err", reason)
	d.Log.Failed(ctx, "quarantine trigger", d.store.Quarantine(ctx, trigger.ID, trigger.Revision, reason.Error()))
}

type calendarReader interface {
	AppCalendars(ctx context.Context, app string) (int64, []dispatcher.Calendar, error)
}

// calendarCache caches the calendars of the apps whose triggers use some.
type calendarCache struct {
	store calendarReader

	mu   sync.Mutex
	apps map[string]appCalendars
}

type appCalendars struct {
	revision int64
	zones    *schedule.Zones // that they were parsed with
	all      dispatcher.Calendars
}

// of returns the calendars of an app at a revision or later, and their revision.
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

// clear drops everything, as Forget does.
func (c *calendarCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.apps)
}

// mostKnownTriggers bounds the triggers whose definitions a node remembers. Each takes some 500 bytes. A
// trigger that fires again while it is remembered is not read again.
const mostKnownTriggers = 100_000

// KnownTrigger is the definition of a trigger in the form that firing needs. It is shared and never changed.
type KnownTrigger struct {
	JobID    int64
	revision int64 // of the job
	// calendars is the revision of the app's calendars that the schedule uses; 0: it uses none.
	calendars int64
	Schedule  *schedule.Schedule
	// Zones is the time zone data with which the schedule was parsed.
	Zones         *schedule.Zones
	Jitter        time.Duration
	MisfirePolicy dispatcher.MisfirePolicy
	catchUpWindow time.Duration
}

// current reports whether k is the definition by which due was scheduled.
func (k *KnownTrigger) current(due dispatcher.DueTrigger) bool {
	return k.revision == due.Revision && k.calendars >= due.CalendarRevision && k.Zones == schedule.CurrentZones()
}

// candidate is a trigger on the way into the timeline: known, or with its definition as it was read.
type candidate struct {
	dispatcher.DueTrigger
	known   *KnownTrigger
	version dispatcher.TriggerVersion // if known is nil
}

func (c *candidate) jobID() int64 {
	if c.known != nil {
		return c.known.JobID
	}
	return c.version.JobID
}

// recognize returns triggers with their definitions, from memory or, in one statement, from the database. It leaves out
// those that were deleted or changed since they were read: a claim of them would be lost, and the change notifies the
// nodes.
func (d *Definitions) recognize(ctx context.Context, triggers []dispatcher.DueTrigger) ([]candidate, error) {
	all := make([]candidate, 0, len(triggers))
	unknown := map[int64]dispatcher.DueTrigger{}
	var ids []int64
	for _, trigger := range triggers {
		if known, ok := d.Triggers.Get(trigger.ID); ok && known.current(trigger) {
			all = append(all, candidate{DueTrigger: trigger, known: known})
			continue
		}
		unknown[trigger.ID] = trigger
		ids = append(ids, trigger.ID)
	}
	if len(ids) == 0 {
		return all, nil
	}
	versions, err := d.store.TriggersByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, version := range versions {
		if trigger := unknown[version.ID]; trigger.Revision == version.Revision {
			all = append(all, candidate{DueTrigger: trigger, version: version})
		}
	}
	return all, nil
}
