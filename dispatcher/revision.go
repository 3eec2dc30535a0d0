package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// TriggerRevision is a trigger as it was between two changes. NextFireTime is the first time that
// this revision scheduled, nil if none; Enabled and Paused combine those of the trigger and its job, and Pause is that of the
// trigger, or else of the job.
type TriggerRevision struct {
	Trigger
	// Name is the name of the trigger in this revision.
	Name string
	// Revision is the revision of the job, CalendarRevision that of the app's calendars.
	Revision, CalendarRevision int64
	// Labels are the labels of the job: they decide which pauses of the app held it.
	Labels input.Labels
	// From is when the revision came into force, Cause is why, and Actor made the change, as in the audit log.
	From  time.Time
	Cause Cause
	Actor string
	// Settled is the last time that the revision before it scheduled.
	Settled time.Time
	// Zones is the version of the time zone database that its fire times were computed with.
	Zones string
}

// Cause is why a trigger got a new revision.
type Cause string

// The causes.
const (
	CausePut      Cause = "put"
	CauseRename   Cause = "rename" // of the trigger or its job
	CauseImport   Cause = "import" // the app was imported from another installation, with its waiting runs
	CausePause    Cause = "pause"
	CauseResume   Cause = "resume"
	CauseDelete   Cause = "delete"   // of the trigger or its job
	CauseCalendar Cause = "calendar" // a calendar that it uses changed
	CauseZones    Cause = "zones"    // the time zone database changed
)

// TriggerHistory is the history of one trigger.
type TriggerHistory struct {
	// Name is the current name of the trigger. ID is its key, and Identity the name that H in its expression and its
	// jitter hash.
	Name     string
	ID       int64
	Identity string
	// Revisions are the revisions in force since the requested time, oldest first; never empty.
	Revisions []TriggerRevision
	// Next is the scheduled time to claim or settle next, zero if there is none. Error is why that is impossible.
	Next  time.Time
	Error string
}

// AppHistory is the part of an app's history that explains its fires.
type AppHistory struct {
	// Now is the time by the database's clock. Since is when the app's history begins.
	Now, Since time.Time
	// DisabledNow says that the app is disabled now, whatever it was then.
	DisabledNow bool
	// Suspended is why the app is suspended now; empty if it is not.
	Suspended string
	// Switches are those of the app to enabled or not, the last one before the time asked for and those after it, oldest first.
	Switches []AppSwitch
	// Pauses are the pauses of the app that lasted at the requested time or came later, those that last first.
	Pauses []AppPause
	// Outages are the latest times, since the requested one, in which a node could not reach the database.
	Outages []Outage
}

// AppSwitch is a change after which an app was enabled, or not: its owner disabled it, or an operator suspended it.
type AppSwitch struct {
	At      time.Time
	Enabled bool
	Actor   string
}

// Outage is a time in which a node could not reach the database: from its last heartbeat before to its first one after.
type Outage struct {
	Node run.NodeID `json:"node"`
	Name string     `json:"name,omitempty"` // of the node; the store fills it in
	From time.Time  `json:"from"`
	To   time.Time  `json:"to"`
}

// Who names the node for people.
func (o Outage) Who() string {
	if o.Name == "" {
		return "node " + o.Node.String()
	}
	return "node " + o.Name + " (" + o.Node.String() + ")"
}

// Revisions is the history of definitions: it says which times an app's triggers scheduled.
type Revisions interface {
	// AppHistory returns ErrNotFound if the app does not exist. A zero at stands for the beginning of its history.
	AppHistory(ctx context.Context, app string, at, now time.Time) (AppHistory, error)
	// AppHolds returns the switches, pauses and outages of apps since a time, by their names. A deleted app may have only outages.
	AppHolds(ctx context.Context, since time.Time, apps []string) (map[string]*AppHistory, error)
	// EveryJobName lists the names of an app's jobs in order, deleted ones included.
	EveryJobName(ctx context.Context, app string, page input.Page) ([]string, error)
	// JobKey returns the key of a job, also of a deleted one; ErrNotFound if no job has the name.
	JobKey(ctx context.Context, app, name string) (int64, error)
	// TriggerHistories returns the histories of the triggers of jobs, by their keys, job by job in the order of their
	// names, removed ones included, with the revisions in force at since or later. A fire that is claimed after this call
	// is not earlier than Next.
	TriggerHistories(ctx context.Context, since time.Time, jobs []int64) ([]TriggerHistory, error)
	// LatestFires returns the scheduled times, in [from, to], of at most limit runs of a trigger's fires, latest
	// first. It looks only at the latest runs of the job, some thousands, and leaves out earlier ones.
	LatestFires(ctx context.Context, job, trigger int64, from, to time.Time, limit int) ([]time.Time, error)
	// CalendarsAt returns the calendars of an app as they were at a calendar revision.
	CalendarsAt(ctx context.Context, app string, revision int64) ([]Calendar, error)
	// Fires returns the scheduled runs of a job, by its key, between two times, both inclusive, in order, at
	// most limit.
	Fires(ctx context.Context, job int64, from, to time.Time, limit int) ([]run.Key, error)
}

// Span is a period, both ends inclusive, in which one revision schedules the fires of a trigger.
type Span struct {
	Revision    *TriggerRevision
	From, Until time.Time
	// Open is the first scheduled time that is neither claimed nor settled, zero if there is none.
	Open time.Time
}

// Contains reports whether t lies in the span.
func (s Span) Contains(t time.Time) bool { return !t.Before(s.From) && !t.After(s.Until) }

// Spans returns the spans of a trigger, in order.
func (h *TriggerHistory) Spans() []Span {
	var all []Span
	for i := range h.Revisions {
		one := &h.Revisions[i]
		if one.NextFireTime == nil {
			continue
		}
		s := Span{Revision: one, From: *one.NextFireTime, Until: EndOfTime}
		if i+1 < len(h.Revisions) {
			s.Until = h.Revisions[i+1].Settled
		} else {
			s.Open = h.Next
		}
		if !s.Until.Before(s.From) {
			all = append(all, s)
		}
	}
	return all
}

// EndOfTime is after every fire of every schedule.
var EndOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// At returns the revision that decides about a time, and the span that contains the time. The span is nil if the
// revision did not schedule then. Before the first revision, both are nil.
func (h *TriggerHistory) At(t time.Time) (*TriggerRevision, *Span) {
	if spans := h.SpansAt(t); len(spans) > 0 {
		return spans[0].Revision, &spans[0]
	}
	for i := range slices.Backward(h.Revisions) {
		if !h.Revisions[i].From.After(t) {
			return &h.Revisions[i], nil
		}
	}
	return nil, nil
}

// SpansAt returns the spans that contain a time, the latest first. There are several if a fire was pending when the
// schedule changed: a fire that the new schedule did not contain belongs to an earlier span.
func (h *TriggerHistory) SpansAt(t time.Time) (all []Span) {
	for _, s := range slices.Backward(h.Spans()) {
		if s.Contains(t) {
			all = append(all, s)
		}
	}
	return all
}

// PastSchedules evaluates the schedules of an app as they were at earlier revisions.
type PastSchedules struct {
	revisions Revisions
	app       string
	calendars map[int64]Calendars // by revision
}

// NewPastSchedules returns the past schedules of an app.
func NewPastSchedules(revisions Revisions, app string) *PastSchedules {
	return &PastSchedules{revisions: revisions, app: app, calendars: map[int64]Calendars{}}
}

// At returns the schedule of a trigger at a revision, with the calendars of that revision. identity comes from its
// TriggerHistory. The error is an *UnreadableError if this version of the program cannot evaluate the schedule.
func (p *PastSchedules) At(ctx context.Context, identity string, r *TriggerRevision) (*schedule.Schedule, error) {
	calendars, known := p.calendars[r.CalendarRevision]
	if r.Calendar != "" && !known {
		all, err := p.revisions.CalendarsAt(ctx, p.app, r.CalendarRevision)
		if err != nil {
			return nil, fmt.Errorf("read calendars of app %s: %w", p.app, err)
		}
		calendars = CompileCalendars(all)
		p.calendars[r.CalendarRevision] = calendars
	}
	s, err := r.Parse(identity, r.AnchorAt, calendars)
	if err != nil {
		return nil, &UnreadableError{err}
	}
	return s, nil
}

// FiresAround returns the fires of a schedule before and after one of them; zero means none. For a fixed delay, the
// schedule does not know them.
func FiresAround(s *schedule.Schedule, at time.Time) (previous, next time.Time) {
	if _, delayed := s.FixedDelay(); delayed {
		return previous, next
	}
	previous, _ = s.Previous(at)
	next, _ = s.Next(at)
	return previous, next
}

// Around is FiresAround with the schedule and calendars that were in force at a scheduled time of a trigger, given by
// its job's key and its own. The error is a *target.TemplateError if this version of the program cannot evaluate them.
func (p *PastSchedules) Around(ctx context.Context, job, trigger int64, at time.Time) (previous, next time.Time, err error) {
	histories, err := p.revisions.TriggerHistories(ctx, at, []int64{job})
	if err != nil {
		return previous, next, err
	}
	i := slices.IndexFunc(histories, func(h TriggerHistory) bool { return h.ID == trigger })
	if i < 0 {
		return previous, next, nil
	}
	history := &histories[i]
	revision, _ := history.At(at)
	if revision == nil {
		return previous, next, nil
	}
	s, err := p.At(ctx, history.Identity, revision)
	var unreadable *UnreadableError
	switch {
	case errors.As(err, &unreadable):
		return previous, next, &target.TemplateError{Problems: input.Problems{{
			Path: input.Pointer("triggers", history.Name), Code: input.CodeTemplateField,
			Message: "the schedule of the run cannot be evaluated: " + err.Error(),
		}}}
	case err != nil:
		return previous, next, err
	}
	previous, next = FiresAround(s, at)
	return previous, next, nil
}

// UnreadableError explains why this version of the program cannot evaluate a past definition.
type UnreadableError struct{ error }

func (e *UnreadableError) Unwrap() error { return e.error }

// UsesZones reports whether the fire times of r depend on the time zone database.
func (r *TriggerRevision) UsesZones() bool {
	return r.Timezone != "" && r.Timezone != "UTC" || r.Calendar != ""
}
