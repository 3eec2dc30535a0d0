package alert

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Alert notifies people when jobs of its app begin or cease to fail, be late, not run, or burn their error budget.
//
// It selects jobs by name, by label, or both. An alert that selects none is a default of its app: it applies to jobs
// that other alerts do not select. A job may have several alerts.
type Alert struct {
	// App and Name identify the alert; the client chooses them, and they cannot change. In a body they are optional,
	// and equal to those in the path.
	App  string `json:"app" schema:"Name"`
	Name string `json:"name" schema:"Name"`
	Spec
	Status `body:"-"`
}

// Spec is the definition of an alert, as people declare it.
type Spec struct {
	// Description is free text of at most 1024 characters; notifications have it.
	Description string `json:"description" schema:"max=1024"`
	// Jobs are names of jobs, at most MaxJobs. The jobs need not exist. nil: the alert names none. An empty list
	// requires Labels, because otherwise it would select no job, while a missing list makes the alert a default of the
	// app.
	Jobs []string `json:"jobs,omitzero" schema:"Name,max=1000"`
	// Labels select the jobs that have all of them, in addition to Jobs.
	Labels input.Labels `json:"labels,omitempty"`
	AlertConditionsOf
	// Recovery is whether the end of a condition is notified. It is true by default.
	Recovery bool `json:"recovery"`
	// Mutes are times when transitions are recorded without a notification; at most MaxMutes. Conditions that still
	// hold at their end are notified then.
	Mutes []MuteWindow `json:"mutes,omitempty" schema:"max=20"`
	// Destination gets the notifications.
	Destination target.AlertDestination `json:"destination" schema:"required"`
	// Retry decides when an undelivered notification is sent again. Zero means for a day, up to 15 minutes apart.
	Retry run.Retry `json:"retry,omitzero"`
}

// Status is what Carillon itself knows about an alert.
type Status struct {
	// Muted is an operator's mute, or nil.
	Muted *Mute `json:"muted,omitempty"`
	// Firing is how many conditions of jobs hold now.
	Firing int `json:"firing"`
	// Warnings name entries of Jobs and Labels that select no job now. Alerts in lists have none.
	Warnings []input.Problem `json:"warnings,omitempty"`
	// Revision counts the changes of the alert; it is its ETag. Mutes and acknowledgements do not count.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// AlertConditionsOf are the conditions that an alert watches; at least one is given. Runs of backfills do not count.
type AlertConditionsOf struct {
	// Failure: runs end as failed, timed_out or lost.
	Failure *Failures `json:"failure,omitempty"`
	// Missed: a fire is missed; see MisfirePolicy. It ends when a scheduled fire runs again.
	Missed bool `json:"missed,omitempty"`
	// LateAfter: a scheduled fire begins, or has not begun, later than this after its scheduled time. 0: not watched.
	LateAfter input.Duration `json:"late_after,omitempty"`
	// OverrunAfter: an attempt takes longer than this. 0: not watched.
	OverrunAfter input.Duration `json:"overrun_after,omitempty"`
	// NoSuccessFor: no run has succeeded for this long, since the job, its app or the alert was last changed. While no
	// fire is scheduled for longer than that, as on excluded days, the time does not count. Disabled and paused jobs are
	// left out. 0: not watched.
	NoSuccessFor input.Duration `json:"no_success_for,omitempty"`
	// Objective: the error budget of a job burns so fast that somebody should look; see ObjectiveBurn. Jobs without an objective
	// are left out.
	Objective bool `json:"objective,omitempty"`
	// Blocked: the fires of the job only wait or are skipped, because a run has had its slot for unusually long. It ends
	// when the job may run again.
	Blocked bool `json:"blocked,omitempty"`
}

// Failures decide when failures of a job are notified.
type Failures struct {
	// After is how many runs in a row fail before the condition holds, 1 to MaxFailures; 0 means 1.
	After int `json:"after,omitempty" schema:"max=1000,min=1"`
	// RepeatEvery notifies again after that many further failures; 0 means never.
	RepeatEvery int `json:"repeat_every,omitempty" schema:"max=1000,min=0"`
}

// MuteWindow is a time without notifications of an alert: a recurring one, by Schedule and Duration, or a single one,
// by From and To.
type MuteWindow struct {
	// Schedule is when the window begins, in the form of a trigger's expression; Duration is how long it lasts, and
	// Timezone is the zone of Schedule, UTC if it is empty.
	Schedule string `json:"schedule,omitempty"`
	// How long it lasts, 1m to 744h.
	Duration input.Duration `json:"duration,omitempty"`
	// IANA time zone of schedule; default UTC.
	Timezone string `json:"timezone,omitempty"`
	// From and To bound a single window; To is after From.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
}

// Mute is an operator's mute of an alert.
type Mute struct {
	// Until is when it ends; nil if somebody has to unmute the alert.
	Until *time.Time `json:"until,omitempty"`
	// Reason is free text of at most 1024 characters.
	Reason string `json:"reason,omitempty" schema:"max=1024"`
	// By is the actor, as in the audit log, and At is when it was muted. Read-only.
	By string     `json:"by,omitempty" body:"-"`
	At *time.Time `json:"at,omitempty" body:"-"`
}

// Bounds and defaults of alerts.
const (
	Max             = 100 // of an app
	MaxJobs         = 1000
	MaxMutes        = 20
	MaxFailures     = 1000
	MinAfter        = time.Minute         // overrun_after and no_success_for
	MaxAfter        = 90 * 24 * time.Hour // late_after, overrun_after and no_success_for
	MaxMuteDuration = 31 * 24 * time.Hour
)

// SetDefaults gives a decoded alert the values of fields that its JSON leaves out.
func (a *Alert) SetDefaults() {
	a.Recovery = true
	a.Retry = defaultAlertRetry()
}

// SetDefaults gives decoded failures the values of fields that their JSON leaves out.
func (f *Failures) SetDefaults() { f.After = 1 }

// defaultAlertRetry tries for a day, with up to 15 minutes between attempts.
func defaultAlertRetry() run.Retry {
	return run.Retry{MaxAttempts: run.MostAttempts, Base: input.Duration(5 * time.Second), Cap: input.Duration(15 * time.Minute),
		MaxAge: run.DefaultMaxAge}
}

// Resolved returns a with its defaults, as it is stored.
func (a Alert) Resolved() Alert {
	if a.Retry.IsZero() {
		a.Retry = defaultAlertRetry()
	}
	if len(a.Jobs) == 0 {
		a.Jobs = nil // only Labels select
	}
	if a.Failure != nil && a.Failure.After == 0 {
		a.Failure = &Failures{After: 1, RepeatEvery: a.Failure.RepeatEvery}
	}
	return a
}

// Validate returns everything wrong with a, as Problems with JSON pointers, or nil.
func (a Alert) Validate() error {
	var problems input.Problems
	input.CheckName(&problems, "/name", a.Name)
	input.CheckText(&problems, "/description", a.Description)
	a.checkSelection(&problems)
	a.AlertConditionsOf.check(&problems)
	if len(a.Mutes) > MaxMutes {
		problems.Add("/mutes", input.CodeTooMany, "alert has %d mute windows; the maximum is %d", len(a.Mutes), MaxMutes)
	} else {
		for i, m := range a.Mutes {
			m.check(&problems, input.Pointer("mutes", strconv.Itoa(i)))
		}
	}
	problems.AddError("/destination", a.Destination.Validate())
	a.Retry.Check(&problems, "/retry")
	if a.Retry.StopAtNextFire {
		problems.Add("/retry/stop_at_next_fire", input.CodeAlertForm, "a notification has no next fire; leave stop_at_next_fire out")
	}
	return problems.Err()
}

func (a Alert) checkSelection(problems *input.Problems) {
	if len(a.Jobs) > MaxJobs {
		problems.Add("/jobs", input.CodeTooMany, "alert names %d jobs; the maximum is %d: select them by labels", len(a.Jobs), MaxJobs)
		return
	}
	if a.Jobs != nil && len(a.Jobs) == 0 && len(a.Labels) == 0 {
		problems.Add("/jobs", input.CodeRequired, "jobs is an empty list and labels are missing, so the alert would select no job; name jobs, "+
			"or leave jobs out for an alert of all jobs that no other one selects")
	}
	for i, name := range a.Jobs {
		at := input.Pointer("jobs", strconv.Itoa(i))
		input.CheckName(problems, at, name)
		if slices.Contains(a.Jobs[:i], name) {
			problems.Add(at, input.CodeAlertForm, "job %s is named twice; name it once", input.Echo(name))
		}
	}
	a.Labels.Check(problems, "/labels")
}

func (c AlertConditionsOf) check(problems *input.Problems) {
	if c.Failure == nil && !c.Missed && c.LateAfter == 0 && c.OverrunAfter == 0 && c.NoSuccessFor == 0 && !c.Objective && !c.Blocked {
		problems.Add("/failure", input.CodeRequired,
			"alert watches nothing; give failure, missed, late_after, overrun_after, no_success_for, objective or blocked, or several of them")
	}
	if f := c.Failure; f != nil {
		input.CheckRange(problems, "/failure/after", max(f.After, 1), 1, MaxFailures)
		input.CheckRange(problems, "/failure/repeat_every", f.RepeatEvery, 0, MaxFailures)
	}
	if c.LateAfter != 0 {
		c.LateAfter.CheckRange(problems, "/late_after", time.Second, MaxAfter)
	}
	if c.OverrunAfter != 0 {
		c.OverrunAfter.CheckRange(problems, "/overrun_after", MinAfter, MaxAfter)
	}
	if c.NoSuccessFor != 0 {
		c.NoSuccessFor.CheckRange(problems, "/no_success_for", MinAfter, MaxAfter)
	}
}

func (m MuteWindow) check(problems *input.Problems, at string) {
	once, again := m.From != nil || m.To != nil, m.Schedule != "" || m.Duration != 0 || m.Timezone != ""
	switch {
	case once == again:
		problems.Add(at, input.CodeRequired, "mute window is given by schedule and duration, or by from and to: one of the two")
	case again:
		m.Duration.CheckRange(problems, at+"/duration", time.Minute, MaxMuteDuration)
		_, err := m.parse()
		var wrong input.Problems
		wrong.AddError("", err)
		for _, p := range wrong {
			if p.Path == "/expression" {
				p.Path = "/schedule"
			}
			*problems = append(*problems, input.Problem{Path: at + p.Path, Code: p.Code, Message: p.Message})
		}
	case m.From == nil || m.To == nil:
		problems.Add(at, input.CodeRequired, "mute window has one of from and to; give both")
	case !m.To.After(*m.From):
		problems.Add(at+"/to", input.CodeTimeRange, "mute window ends at %s, before it begins; give a later time", input.FormatInstant(*m.To))
	}
}

func (m MuteWindow) parse() (*schedule.Schedule, error) {
	return schedule.Parse(schedule.Spec{Expression: m.Schedule, Timezone: m.Timezone})
}

// Validate returns everything wrong with m, as Problems, or nil.
func (m Mute) Validate() error {
	var problems input.Problems
	input.CheckText(&problems, "/reason", m.Reason)
	return problems.Err()
}

// Decide returns the mute of an alert after it is muted, or unmuted if m is nil, at now. The error is Problems.
func (m *Mute) Decide(by input.Change, now time.Time) (*Mute, error) {
	if m == nil {
		return nil, nil
	}
	return &Mute{Until: input.WholeMillis(m.Until), Reason: m.Reason, By: by.Actor, At: &now}, checkUntil(m.Until, now)
}

// checkUntil refuses an end that has passed.
func checkUntil(until *time.Time, now time.Time) error {
	if until == nil || until.After(now) {
		return nil
	}
	return input.Problems{{Path: "/until", Code: input.CodeAtPast, Message: "time " + input.FormatInstant(*until) +
		" has passed; it is " + input.FormatInstant(now) + ": give a later one, or leave it out"}}
}

// MutedUntil returns the earliest end of the mute at now, EndOfTime if it has no end. Adjoining windows are
// considered when the first one has ended.
func (a Alert) MutedUntil(now time.Time) (until time.Time, muted bool) {
	later := func(end time.Time) {
		if end.After(now) && end.After(until) {
			until, muted = end, true
		}
	}
	if m := a.Muted; m != nil {
		if m.Until == nil {
			return dispatcher.EndOfTime, true
		}
		later(*m.Until)
	}
	for _, w := range a.Mutes {
		if w.From != nil && w.To != nil && !w.From.After(now) {
			later(*w.To)
		}
		if w.Schedule == "" {
			continue
		}
		s, err := w.parse()
		if err != nil {
			continue // it was valid when it was stored; rather notify than stay silent
		}
		if begun, ok := s.Previous(now.Add(time.Millisecond)); ok {
			later(begun.Add(w.Duration.Std()))
		}
	}
	return until, muted
}

// Selects reports whether a selects a job by its name or labels. A default selects none; see Of.
func (a Alert) Selects(name string, labels input.Labels) bool {
	return slices.Contains(a.Jobs, name) || len(a.Labels) > 0 && labels.Have(a.Labels)
}

// Severity is that of incidents at the destination; empty if it has none.
func (a Alert) Severity() (severity target.AlertSeverity) {
	if w := a.Destination.Webhook; w != nil {
		severity = w.Severity
	}
	return severity
}

// IsDefault reports whether a applies to the jobs of its app that other alerts do not select.
func (a Alert) IsDefault() bool { return len(a.Jobs) == 0 && len(a.Labels) == 0 }

// Of returns the alerts of an app that apply to a job: those that select it, or else the defaults.
func Of(all []Alert, name string, labels input.Labels) []Alert {
	selected := slices.DeleteFunc(slices.Clone(all), func(a Alert) bool { return !a.Selects(name, labels) })
	if len(selected) > 0 {
		return selected
	}
	return slices.DeleteFunc(slices.Clone(all), func(a Alert) bool { return !a.IsDefault() })
}

// Attached returns the job with the runs that deliver the notifications of a.
func (a Alert) Attached() dispatcher.Job {
	job := dispatcher.Job{App: a.App, Name: a.Name + dispatcher.AlertSuffix,
		JobSpec: dispatcher.JobSpec{Target: a.Destination.Target(), JobPolicies: dispatcher.JobPolicies{Retry: a.Retry}}}
	enabled := job
	enabled.SetDefaults()
	job.Enabled, job.Delivery = enabled.Enabled, enabled.Delivery
	job.ConcurrencyPolicy, job.QueueLimit = enabled.ConcurrencyPolicy, enabled.QueueLimit
	return job
}

// Declares reports whether declared, once stored, would equal the stored alert a. A given value of a secret always
// counts as different, as in Job.Declares.
func (a Alert) Declares(declared Alert) bool {
	return !target.GivesSecret(declared) && input.SameJSON(a.Resolved().Spec, declared.Resolved().Spec)
}

// Before holds everything that a PUT of an alert depends on.
type Before struct {
	Old      *Alert         // as it is stored; nil if it is new
	Bounds   *target.Bounds // of its app
	Alerts   int            // number in the app; needed for a new alert
	Defaults *dispatcher.JobDefaults
	Attached dispatcher.AttachedBefore
	// Warnings are about entries of the declared alert that select no job.
	Warnings []input.Problem
	Keys     bool // the node has keys to store secrets with
}

// Change is the effect of a PUT of an alert.
type Change struct {
	Alert    Alert // as it is to be stored, but with the values of its secrets
	Attached dispatcher.AttachedChange
}

// Unchanged returns the stored alert, with its warnings, if a PUT of declared would not change it. An alert outside
// the bounds of its app is refused even then.
func (b Before) Unchanged(declared Alert) (Alert, bool) {
	if b.Old == nil || b.Bounds.CheckDestination(declared.App, declared.Destination) != nil || !b.Old.Declares(declared) {
		return Alert{}, false
	}
	same := *b.Old
	same.Warnings = b.Warnings
	return same, true
}

// Put returns the effect of declared at now. The error is Problems: it is outside the bounds of its app, or one alert
// too many, or its secrets cannot be stored.
func (b Before) Put(declared Alert, now time.Time) (c Change, err error) {
	c.Alert = declared.Resolved()
	var problems input.Problems
	problems.AddError("/destination", b.Bounds.CheckDestination(c.Alert.App, c.Alert.Destination))
	if b.Old == nil && b.Alerts >= Max {
		problems.Add("", input.CodeTooMany, "app %s has %d alerts already, which is the maximum; delete one that is not used",
			c.Alert.App, b.Alerts)
	}
	if err := problems.Err(); err != nil {
		return c, err
	}
	attached := c.Alert.Attached()
	b.Defaults.Fill(&attached)
	c.Attached, err = b.Attached.Put(attached, b.Keys, now)
	return c, ofDestination(err)
}

// ofDestination converts the JSON pointers of problems of the target of an attached job to pointers in its alert.
func ofDestination(err error) error {
	var problems input.Problems
	if !errors.As(err, &problems) {
		return err
	}
	moved := make(input.Problems, len(problems))
	for i, p := range problems {
		p.Path = target.DestinationAt + strings.TrimPrefix(p.Path, "/alert")
		moved[i] = p
	}
	return moved
}
