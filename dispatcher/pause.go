package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Pause says who paused a job or a trigger, when, and why. It is empty if there is no pause.
type Pause struct {
	// PausedBy is the actor, as in the audit log: a token, or the command line.
	PausedBy string     `json:"paused_by,omitempty"`
	PausedAt *time.Time `json:"paused_at,omitempty"`
	// PauseReason and PausedUntil come from the PauseRequest.
	PauseReason string `json:"pause_reason,omitempty"`
	// When the pause ends by itself; left out if it has no end.
	PausedUntil *time.Time `json:"paused_until,omitempty"`
}

// PauseRequest is the optional body of a request to pause a job or a trigger.
type PauseRequest struct {
	// Reason is shown with the pause; free text of at most 1024 characters.
	Reason string `json:"reason,omitempty" schema:"max=1024"`
	// Until is when the pause ends by itself, within a handler interval; nil if it has no end.
	Until *time.Time `json:"until,omitempty"`
}

// Validate returns everything wrong with p, as Problems, or nil.
func (p PauseRequest) Validate() error {
	var problems input.Problems
	input.CheckText(&problems, "/reason", p.Reason)
	return problems.Err()
}

// AppPause is a pause of an app, or of its jobs with certain labels, including jobs that are created or get the
// labels while it lasts. A job is held while one of these pauses, or a pause of its own, holds it.
type AppPause struct {
	// The server chooses ID.
	ID  string `json:"id"`
	App string `json:"app" schema:"Name"`
	AppPauseRequest
	// PausedBy is the actor, as in the audit log: a token, or the command line.
	PausedBy string    `json:"paused_by"`
	PausedAt time.Time `json:"paused_at"`
	// Pending is true if some jobs of the app do not follow its pauses yet, because the request that changed them was
	// interrupted. The handler of a node continues it.
	Pending bool `json:"pending,omitempty"`
	// EndedAt is when it ended, and EndedBy is who ended it; nil if it still holds. Only histories have ended pauses.
	EndedAt *time.Time `json:"-"`
	EndedBy string     `json:"-"`
}

// AppPauseRequest asks for a pause of an app.
type AppPauseRequest struct {
	// Labels are the labels that a job must have to be held; if empty, every job of the app is.
	Labels input.Labels `json:"labels,omitempty"`
	// Reason is shown with the pause; free text of at most 1024 characters.
	Reason string `json:"reason,omitempty" schema:"max=1024"`
	// Until is when the pause ends by itself; nil if it has no end. The handler of a node ends it, so jobs go on
	// within a handler interval after that.
	Until *time.Time `json:"until,omitempty"`
}

// MaxAppPauses bounds the pauses that an app has at once.
const MaxAppPauses = 100

// Validate returns everything wrong with p that does not depend on the time, as Problems, or nil.
func (p AppPauseRequest) Validate() error {
	var problems input.Problems
	p.Labels.Check(&problems, "/labels")
	input.CheckText(&problems, "/reason", p.Reason)
	return problems.Err()
}

// CheckUntil returns a problem if until is not after now.
func CheckUntil(until *time.Time, now time.Time) error {
	if until == nil || until.After(now) {
		return nil
	}
	return &input.Problem{Path: "/until", Code: input.CodeAtPast, Message: fmt.Sprintf(
		"until %s is not after now, %s; give a later time, or leave it out for a pause that somebody has to end",
		input.FormatInstant(*until), input.FormatInstant(now))}
}

// Holds reports whether p holds jobs with these labels.
func (p AppPause) Holds(labels input.Labels) bool { return labels.Have(p.Labels) }

// HeldBy returns those of the pauses that hold jobs with these labels.
func HeldBy(pauses []AppPause, labels input.Labels) (held []AppPause) {
	for _, p := range pauses {
		if p.Holds(labels) {
			held = append(held, p)
		}
	}
	return held
}

// What says which jobs p holds, such as "jobs of app billing with labels team=payments".
func (p AppPause) What() string {
	if len(p.Labels) == 0 {
		return "all jobs of app " + p.App
	}
	return "jobs of app " + p.App + " with labels " + p.Labels.String()
}

// String says what p holds, who paused it, since when, until when, and why.
func (p AppPause) String() string {
	text := fmt.Sprintf("%s are paused by %s since %s", p.What(), p.PausedBy, input.FormatInstant(p.PausedAt))
	if p.Until != nil {
		text += ", until " + input.FormatInstant(*p.Until)
	}
	if p.Reason != "" {
		text += ": " + input.Echo(p.Reason)
	}
	return text
}

// AppPauses pause many jobs of an app at once. Each write adds its entry to the audit log in the same transaction.
type AppPauses interface {
	// PauseApp adds a pause, also if an equal one exists. From its commit on it holds some thousand triggers of the
	// matching jobs; FollowPauses holds the others. ErrNotFound: the app does not exist. Problems: until has passed,
	// or the app has MaxAppPauses.
	PauseApp(ctx context.Context, app string, asked AppPauseRequest, change input.Change) (AppPause, error)
	// AppPauses lists the pauses that an app has now, oldest first. ErrNotFound: the app does not exist.
	AppPauses(ctx context.Context, app string) ([]AppPause, error)
	// EndAppPause ends a pause. Jobs that no other pause holds go on, some at once and the others by FollowPauses, as
	// in PauseApp. ErrNotFound: the app has no such pause now.
	EndAppPause(ctx context.Context, app, id string, change input.Change) error
	// FollowPauses makes jobs with about limit triggers follow their app's pauses, and reports whether more are left.
	FollowPauses(ctx context.Context, app string, limit int) (more bool, err error)
}

// PauseChange is the effect of pausing or resuming a job or one of its triggers.
type PauseChange struct {
	Job   Job  // as it is to be stored
	Was   bool // paused before
	Pause Pause
	// Restarted is true if the job is scheduled again as if it had been declared again, because a trigger was in
	// state error. Missed are the fires that were due before.
	Restarted bool
	Missed    []Misfire
}

// Paused returns the stored job if pausing or resuming it, or the named trigger, would not change it. A resume in
// state error always changes it.
func (b JobBefore) Paused(trigger string, paused bool) (Job, bool) {
	was, found := b.Old.isPaused(trigger)
	if !found || was != paused || !paused && b.Old.inError(trigger) {
		return Job{}, false
	}
	return b.Shown(*b.Old), true
}

// Pause returns the effect of pausing or resuming a job, or the named trigger, at now. The error is ErrNotFound if
// the trigger does not exist, or Problems.
func (b JobBefore) Pause(trigger string, paused bool, by input.Change, now time.Time) (c PauseChange, err error) {
	if paused {
		if err := CheckUntil(by.Until, now); err != nil {
			return c, err
		}
		c.Pause = Pause{PausedBy: by.Actor, PausedAt: &now, PauseReason: by.Reason, PausedUntil: input.WholeMillis(by.Until)}
	}
	was, found := b.Old.isPaused(trigger)
	if !found {
		return c, NotFound("trigger", b.Old.App+"/"+b.Old.Name+"/"+trigger)
	}
	c.Job, c.Was = *b.Old, was
	if trigger == "" {
		c.Job.Paused, c.Job.Pause = paused, c.Pause
	} else {
		c.Job.Triggers = maps.Clone(c.Job.Triggers)
		one := c.Job.Triggers[trigger]
		one.Paused, one.Pause = paused, c.Pause
		c.Job.Triggers[trigger] = one
	}
	if c.Restarted = !paused && b.Old.inError(trigger); c.Restarted {
		c.Job, c.Missed, err = Apply(&c.Job, c.Job, Prior{}, b.Calendars, now)
		return c, err
	}
	c.Job.Revision, c.Job.UpdatedAt = c.Job.Revision+1, now
	c.Job.State = c.Job.RollUp(false)
	return c, nil
}

// isPaused reports whether a job, or its named trigger, is paused.
func (j Job) isPaused(trigger string) (paused, found bool) {
	if trigger == "" {
		return j.Paused, true
	}
	one, found := j.Triggers[trigger]
	return one.Paused, found
}

// inError reports whether the named trigger of a job, or without a name any of them, is in state error.
func (j Job) inError(trigger string) bool {
	for name, one := range j.Triggers {
		if one.State == TriggerError && (trigger == "" || trigger == name) {
			return true
		}
	}
	return false
}
