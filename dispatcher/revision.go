package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// TriggerRevision is a trigger as it was from one change to the next. Its NextFireTime is the
// first instant that it owes, nil if none; Enabled and Paused are those of trigger and job together.
type TriggerRevision struct {
	Trigger
	// Revision is the job's, CalendarRevision that of the app's calendars.
	Revision, CalendarRevision int64
	// From is when it came into force, by Cause.
	From  time.Time
	Cause Cause
	// Settled is the last instant that the revision before it owed.
	Settled time.Time
	// Zones is the time zone database by which its fire times were worked out.
	Zones string
}

// Cause is what brought a revision of a trigger about.
type Cause string

// The causes.
const (
	CausePut      Cause = "put"
	CausePause    Cause = "pause"
	CauseResume   Cause = "resume"
	CauseDelete   Cause = "delete"   // of the trigger or its job
	CauseCalendar Cause = "calendar" // a calendar that it uses was changed
	CauseZones    Cause = "zones"    // the time zone database was changed
)

// TriggerHistory is what is on record of one trigger.
type TriggerHistory struct {
	Name string
	// Revisions are those in force since the instant asked for, oldest first; never none.
	Revisions []TriggerRevision
	// Next is the instant that is to be claimed or settled next, zero if there is none, and
	// Error why it cannot be.
	Next  time.Time
	Error string
}

// AppHistory is what the accounts of an app depend on.
type AppHistory struct {
	// Now is the present by the database's clock, Since how far the app's history goes back.
	Now, Since time.Time
	// Enabled is whether the app was enabled at the instant asked for, and Changed since when;
	// nil: since before anything that is on record.
	Enabled bool
	Changed *time.Time
}

// Accounts is what Explain and Audit read.
type Revisions interface {
	// AppHistory returns ErrNotFound if there is no such app.
	AppHistory(ctx context.Context, app string, at, now time.Time) (AppHistory, error)
	// EveryJobName lists the names of an app's jobs, deleted ones too, in order.
	EveryJobName(ctx context.Context, app string, page Page) ([]string, error)
	// TriggerHistories returns the records of a job's triggers, removed ones too, by name, with
	// their revisions in force at since or later. What is claimed afterwards is later than Next.
	TriggerHistories(ctx context.Context, app, job string, since time.Time) ([]TriggerHistory, error)
	// CalendarsAt returns the calendars of an app as they were at a revision of the lot.
	CalendarsAt(ctx context.Context, app string, revision int64) ([]Calendar, error)
	// Fires returns the scheduled runs of a job from one instant to another, both inclusive, in
	// order, at most limit.
	Fires(ctx context.Context, app, job string, from, to time.Time, limit int) ([]RunKey, error)
}

// span is a stretch of instants, both inclusive, in which one schedule says what a trigger owes.
type span struct {
	revision    *TriggerRevision
	from, until time.Time
	// open is the first instant that is yet to be claimed or settled, zero if there is none.
	open time.Time
}

// spans returns what r owed, in order.
func (r *TriggerHistory) spans() []span {
	var all []span
	for i := range r.Revisions {
		one := &r.Revisions[i]
		if one.NextFireTime == nil {
			continue
		}
		s := span{revision: one, from: *one.NextFireTime, until: lastSettled}
		if i+1 < len(r.Revisions) {
			s.until = r.Revisions[i+1].Settled
		} else {
			s.open = r.Next
		}
		if !s.until.Before(s.from) {
			all = append(all, s)
		}
	}
	return all
}

// lastSettled is after every instant that a schedule has.
var lastSettled = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// at returns the revision that was in force at an instant, nil before the first.
func (r *TriggerHistory) at(t time.Time) *TriggerRevision {
	var found *TriggerRevision
	for i := range r.Revisions {
		if !r.Revisions[i].From.After(t) {
			found = &r.Revisions[i]
		}
	}
	return found
}

// accountant reads the accounts of one job.
type revisionReader struct {
	Revisions
	app, job  string
	calendars map[int64]Calendars
}

func newRevisionReader(a Revisions, app, job string) *revisionReader {
	return &revisionReader{Revisions: a, app: app, job: job, calendars: map[int64]Calendars{}}
}

// schedule returns the schedule of a revision as it was, with its calendar or without any.
func (a *revisionReader) schedule(ctx context.Context, trigger string, r *TriggerRevision, bare bool) (*schedule.Schedule, error) {
	declared := r.Schedule
	if bare {
		declared.Calendar = ""
	}
	calendars, known := a.calendars[r.CalendarRevision]
	if declared.Calendar != "" && !known {
		all, err := a.CalendarsAt(ctx, a.app, r.CalendarRevision)
		if err != nil {
			return nil, fmt.Errorf("read calendars of app %s: %w", a.app, err)
		}
		calendars = CompileCalendars(all)
		a.calendars[r.CalendarRevision] = calendars
	}
	s, err := declared.Parse(Identity(a.app, a.job, trigger), r.AnchorAt, calendars)
	if err != nil {
		return nil, &unreadableError{err}
	}
	return s, nil
}

// FiresAround returns the instants of a schedule before and after one of them, zero where there is
// none. Those of a fixed delay are not known by its schedule.
func FiresAround(s *schedule.Schedule, at time.Time) (previous, next time.Time) {
	if _, delayed := s.FixedDelay(); delayed {
		return previous, next
	}
	previous, _ = s.Previous(at)
	next, _ = s.Next(at)
	return previous, next
}

// FiresAroundInForce is FiresAround by the schedule, and calendars, that were in force when a trigger
// owed an instant. It is a *TemplateError if this version cannot evaluate them.
func FiresAroundInForce(ctx context.Context, ledger Revisions, app, job, trigger string, at time.Time) (previous, next time.Time, err error) {
	records, err := ledger.TriggerHistories(ctx, app, job, at)
	if err != nil {
		return previous, next, err
	}
	for i := range records {
		if records[i].Name != trigger {
			continue
		}
		owed := records[i].at(at)
		for _, s := range records[i].spans() {
			if !at.Before(s.from) && !at.After(s.until) {
				owed = s.revision
			}
		}
		if owed == nil {
			continue
		}
		s, err := newRevisionReader(ledger, app, job).schedule(ctx, trigger, owed, false)
		var unreadable *unreadableError
		switch {
		case errors.As(err, &unreadable):
			return previous, next, &TemplateError{Problems{{Path: Pointer("triggers", trigger), Code: CodeTemplateField, Message: "the schedule of the run cannot be evaluated: " + err.Error()}}}
		case err != nil:
			return previous, next, err
		}
		previous, next = FiresAround(s, at)
	}
	return previous, next, nil
}

// unreadableError is a definition on record that this version cannot evaluate.
type unreadableError struct{ error }

func (e *unreadableError) Unwrap() error { return e.error }

// zonal tells whether the fire times of r depend on the time zone database.
func (r *TriggerRevision) zonal() bool {
	return r.Timezone != "" && r.Timezone != "UTC" || r.Calendar != ""
}
