package alert

import (
	"cmp"
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

// Alert tells people of jobs of its app that fail, are late, do not run, or burn their error budget: when that begins, and when it ends.
//
// It selects jobs by name, by label, or both. One that selects nothing is a default of its app: it applies to the jobs that no
// other alert selects. A job may have several alerts.
type Alert struct {
	// App and Name identify the alert; they are chosen by the client and cannot change. In a body they
	// are optional, and equal to those in the path.
	App  string `json:"app" schema:"Name"`
	Name string `json:"name" schema:"Name"`
	Spec
	Status `body:"-"`
}

// Spec is what a person declares of an alert.
type Spec struct {
	// Description is free text of at most 1024 characters; notifications have it.
	Description string `json:"description" schema:"max=1024"`
	// Jobs are names of jobs, at most MaxJobs. A job of that name need not exist. nil: the alert names none. An empty list
	// needs Labels: without them it would select no job, while a missing one makes the alert a default of the app.
	Jobs []string `json:"jobs,omitzero" schema:"Name,max=1000"`
	// Labels select the jobs that have all of them, in addition to Jobs.
	Labels input.Labels `json:"labels,omitempty"`
	AlertConditionsOf
	// Recovery is whether a notification tells that a condition no longer holds. Decoded alerts have it.
	Recovery bool `json:"recovery"`
	// Mutes are times in which transitions are recorded and nobody is notified; at most MaxMutes. What still holds when
	// they end is notified then.
	Mutes []MuteWindow `json:"mutes,omitempty" schema:"max=20"`
	// Destination is what gets the notifications.
	Destination target.AlertDestination `json:"destination" schema:"required"`
	// Retry says when a notification is sent again that could not be delivered. The zero value stands for a day of attempts,
	// 15 minutes apart in the end.
	Retry run.Retry `json:"retry,omitzero"`
}

// Status is what Carillon knows of an alert.
type Status struct {
	// Muted is an operator's mute; nil: there is none.
	Muted *Mute `json:"muted,omitempty"`
	// Firing is how many conditions of jobs hold now.
	Firing int `json:"firing"`
	// Warnings name what of Jobs and Labels selects no job now. Alerts in lists have none.
	Warnings []input.Problem `json:"warnings,omitempty"`
	// Revision counts the changes of the alert; it is its ETag. A mute or an acknowledgement is none.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// AlertConditionsOf are what an alert watches; at least one is given. Runs of backfills count for none of them.
type AlertConditionsOf struct {
	// Failure: runs end as failed, timed_out or lost.
	Failure *Failures `json:"failure,omitempty"`
	// Missed: a fire is missed; see MisfirePolicy. It ends when a scheduled fire runs again.
	Missed bool `json:"missed,omitempty"`
	// LateAfter: a scheduled fire begins, or has not begun, later than this after its scheduled time. 0: nobody is told.
	LateAfter input.Duration `json:"late_after,omitempty"`
	// OverrunAfter: an attempt takes longer than this. 0: nobody is told.
	OverrunAfter input.Duration `json:"overrun_after,omitempty"`
	// NoSuccessFor: no run has succeeded for this long, since the job, its app or the alert was last changed. Disabled and
	// paused jobs are left out. 0: nobody is told.
	NoSuccessFor input.Duration `json:"no_success_for,omitempty"`
	// Objective: the error budget of a job burns so fast that somebody should look; see ObjectiveBurn. Jobs without an objective
	// are left out.
	Objective bool `json:"objective,omitempty"`
}

// Failures is when failures of a job are told.
type Failures struct {
	// After is how many runs in a row fail before the condition holds, 1 to MaxFailures; 0 means 1.
	After int `json:"after,omitempty" schema:"max=1000,min=1"`
	// RepeatEvery notifies again after so many further failures; 0: never.
	RepeatEvery int `json:"repeat_every,omitempty" schema:"max=1000,min=0"`
}

// MuteWindow is a time in which an alert notifies nobody: one that comes again and again, by Schedule and Duration, or
// one by From and To.
type MuteWindow struct {
	// Schedule says when the window begins, as the expression of a trigger does; Duration is how long it lasts, and Timezone
	// the zone of Schedule, UTC if it is empty.
	Schedule string `json:"schedule,omitempty"`
	// How long it lasts, 1m to 744h.
	Duration input.Duration `json:"duration,omitempty"`
	// IANA time zone of schedule; default UTC.
	Timezone string `json:"timezone,omitempty"`
	// From and To bound a window that comes once; To is after From.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
}

// Mute is an operator's mute of an alert.
type Mute struct {
	// Until is when it ends; nil: when somebody unmutes the alert.
	Until *time.Time `json:"until,omitempty"`
	// Reason is free text of at most 1024 characters.
	Reason string `json:"reason,omitempty" schema:"max=1024"`
	// By is the actor that the audit log names, and At when it was muted. Read-only.
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

// defaultAlertRetry tries for a day, at most every 15 minutes in the end.
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
		a.Jobs = nil // Labels alone select
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
	if c.Failure == nil && !c.Missed && c.LateAfter == 0 && c.OverrunAfter == 0 && c.NoSuccessFor == 0 && !c.Objective {
		problems.Add("/failure", input.CodeRequired,
			"alert watches nothing; give failure, missed, late_after, overrun_after, no_success_for or objective, or several of them")
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

// Decide returns the mute that an alert has once it is muted, or unmuted if m is nil, at now. The error is Problems.
func (m *Mute) Decide(by input.Change, now time.Time) (*Mute, error) {
	if m == nil {
		return nil, nil
	}
	return &Mute{Until: input.WholeMillis(m.Until), Reason: m.Reason, By: by.Actor, At: &now}, checkUntil(m.Until, now)
}

// checkUntil refuses what would have ended before it begins.
func checkUntil(until *time.Time, now time.Time) error {
	if until == nil || until.After(now) {
		return nil
	}
	return input.Problems{{Path: "/until", Code: input.CodeAtPast, Message: "time " + input.FormatInstant(*until) +
		" has passed; it is " + input.FormatInstant(now) + ": give a later one, or leave it out"}}
}

// MutedUntil returns when a mute that stands at now ends, at the earliest; far is set if nobody knows. Both are zero if none
// stands. The windows that follow one another are looked at when the first has ended.
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
			continue // it was valid when it was stored; an alert that notifies is better than one that does not
		}
		if begun, ok := s.Previous(now.Add(time.Millisecond)); ok {
			later(begun.Add(w.Duration.Std()))
		}
	}
	return until, muted
}

// Selects tells whether a selects a job by its name or labels. A default selects none; see Of.
func (a Alert) Selects(name string, labels input.Labels) bool {
	return slices.Contains(a.Jobs, name) || len(a.Labels) > 0 && labels.Have(a.Labels)
}

// IsDefault tells whether a applies to the jobs of its app that no other alert selects.
func (a Alert) IsDefault() bool { return len(a.Jobs) == 0 && len(a.Labels) == 0 }

// Of returns those of an app's alerts that apply to a job: those that select it, or else the defaults.
func Of(all []Alert, name string, labels input.Labels) []Alert {
	selected := slices.DeleteFunc(slices.Clone(all), func(a Alert) bool { return !a.Selects(name, labels) })
	if len(selected) > 0 {
		return selected
	}
	return slices.DeleteFunc(slices.Clone(all), func(a Alert) bool { return !a.IsDefault() })
}

// Attached returns the job whose runs deliver the notifications of a.
func (a Alert) Attached() dispatcher.Job {
	job := dispatcher.Job{App: a.App, Name: a.Name + dispatcher.AlertSuffix,
		JobSpec: dispatcher.JobSpec{Target: a.Destination.Target(), JobPolicies: dispatcher.JobPolicies{Retry: a.Retry}}}
	enabled := job
	enabled.SetDefaults()
	job.Enabled, job.Delivery = enabled.Enabled, enabled.Delivery
	job.ConcurrencyPolicy, job.QueueLimit = enabled.ConcurrencyPolicy, enabled.QueueLimit
	return job
}

// Declares tells whether a, which is stored, is what declared would become. A value that is given for a secret differs
// always, as that of a job does.
func (a Alert) Declares(declared Alert) bool {
	return !target.GivesSecret(declared) && input.SameJSON(a.Resolved().Spec, declared.Resolved().Spec)
}

// Before is what a PUT of an alert depends on.
type Before struct {
	Old      *Alert         // as it is stored; nil: it is new
	Bounds   *target.Bounds // of its app
	Alerts   int            // that the app has; it matters for a new one
	Defaults *dispatcher.JobDefaults
	Attached dispatcher.AttachedBefore
	// Warnings are those of the alert that is declared: what of it selects no job.
	Warnings []input.Problem
	Keys     bool // the node has keys to store secrets with
}

// Change is what becomes of an alert that is put.
type Change struct {
	Alert    Alert // as it is to be stored, but with the values of its secrets
	Attached dispatcher.AttachedChange
}

// Unchanged returns the alert as it is stored, with its warnings, if a PUT of declared leaves it so. What is outside the bounds of
// its app is refused also then.
func (b Before) Unchanged(declared Alert) (Alert, bool) {
	if b.Old == nil || b.Bounds.CheckDestination(declared.App, declared.Destination) != nil || !b.Old.Declares(declared) {
		return Alert{}, false
	}
	same := *b.Old
	same.Warnings = b.Warnings
	return same, true
}

// Put decides what becomes of declared at now. The error is Problems: it is outside the bounds of its app, or one too many, or its
// secrets cannot be stored.
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

// ofDestination turns the JSON pointers of problems of an attached job into those in its alert.
func ofDestination(err error) error {
	var problems input.Problems
	if !errors.As(err, &problems) {
		return err
	}
	moved := make(input.Problems, len(problems))
	for i, p := range problems {
		p.Path = cmp.Or(strings.Replace(p.Path, "/target/alert", "/destination", 1), "/destination")
		moved[i] = p
	}
	return moved
}
