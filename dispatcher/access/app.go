// Package access has apps, tokens, sessions and the audit log, and the export of an app to another installation.
package access

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// App is a namespace of jobs. Tokens, limits and fairness are scoped to it.
type App struct {
	// Name is chosen by the client; see CheckName.
	Name string `json:"name" schema:"Name"`
	AppSpec
	AppStatus `body:"-"`
}

// AppSpec is the definition of an app, as people declare it.
type AppSpec struct {
	// Description is free text of at most 1024 characters.
	Description string `json:"description" schema:"max=1024"`
	// Enabled is whether nodes claim fires of the app, unless it is suspended. Runs in flight always finish.
	Enabled bool `json:"enabled"`
	// Retention is how long the app's runs, attempts and misfires are kept, from MinRetention to
	// the retention of its quotas; 0 means DefaultRetention. History is removed by whole UTC days.
	Retention input.Duration `json:"retention,omitempty"`
	// Defaults are for fields that jobs of the app omit; nil if there are none.
	Defaults *dispatcher.JobDefaults `json:"defaults,omitempty"`
	// Bounds are what operators allow the app. A PUT without them keeps them; to change them needs the scope admin.
	Bounds *target.Bounds `json:"bounds,omitempty"`
}

// AppStatus is what Carillon itself knows about an app.
type AppStatus struct {
	// AWSExternalID is the external id with which nodes assume roles for the app: trust policies that require it
	// trust no other app. It is chosen at random when the app is created, and never changes.
	AWSExternalID string `json:"aws_external_id,omitempty"`
	// Usage is how much of its quotas the app uses; lists leave it out.
	Usage *target.Usage `json:"usage,omitempty"`
	// Pauses are the current pauses of the app; lists leave them out.
	Pauses []dispatcher.AppPause `json:"pauses,omitempty"`
	// Breaks are the jobs that are outside of changed bounds. Only the response to that change has them.
	Breaks *Breaks `json:"breaks,omitempty"`
	// Importing is true while an import has not written all of the app. Until then, the app is disabled and takes no
	// change.
	Importing bool `json:"importing,omitempty"`
	// Revision counts the changes of the app; it is its ETag.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// Err is why the stored app cannot be read. It is then shown as suspended, with that reason, and can be deleted;
	// only an operator can put it, with bounds.
	Err error `json:"-"`
}

// Close suspends an app that cannot be read, with the reason.
func (a *App) Close(why error) {
	closed := target.Bounds{Suspended: true, SuspendedReason: fmt.Sprintf("%s; delete the app, or let an operator put it with bounds",
		why)}
	a.Err, a.Bounds = why, new(closed.WithDefaults(a.Name))
}

// SuspendedMessage reports that the app is suspended, why, and who can lift the suspension.
func (a App) SuspendedMessage() string { return a.Bounds.SuspendedMessage(a.Name) }

// SetDefaults gives a decoded app the values of fields that its JSON leaves out.
func (a *App) SetDefaults() { a.Enabled, a.Retention = true, input.DefaultRetention }

// Validate returns everything wrong with a, as Problems, or nil.
func (a App) Validate() error {
	var problems input.Problems
	input.CheckName(&problems, "/name", a.Name)
	input.CheckText(&problems, "/description", a.Description)
	if a.Retention != 0 {
		a.Retention.CheckRange(&problems, "/retention", input.MinRetention, input.MaxRetention)
	}
	if a.Defaults != nil {
		a.Defaults.Check(&problems, "/defaults")
	}
	if a.Bounds != nil {
		problems.AddError("/bounds", a.Bounds.Validate())
	}
	return problems.Err()
}

// Declares reports whether declared, once stored, would equal the stored app a. Without bounds, declared keeps them.
// It is false during an import, because the app then takes no change.
func (a App) Declares(declared App) bool {
	if declared.Bounds == nil {
		declared.Bounds = a.Bounds
	}
	return !a.Importing && input.SameJSON(a.declared(), declared.declared())
}

// declared returns the Spec of a with its defaults.
func (a App) declared() AppSpec {
	a.Retention = cmp.Or(a.Retention, input.DefaultRetention)
	a.Defaults = a.Defaults.Normal()
	if a.Bounds != nil {
		bounds := a.Bounds.WithoutDefaults(a.Name).WithDefaults(a.Name)
		bounds.Suspension = target.Suspension{}
		a.Bounds = &bounds
	}
	return a.AppSpec
}

// AppBefore holds everything that a PUT of an app depends on.
type AppBefore struct {
	Stored   *App // nil if there is none
	Revision int64
	Enabled  bool          // and not suspended; true if there is none
	Bounds   target.Bounds // as they were given, also for a deleted app
	// Unreadable is why the bounds cannot be read; they must then be given.
	Unreadable error
	// Names are the names of all apps; needed for a new app.
	Names []string
	// Usage is how much of its quotas the app uses; a deleted app may still use some.
	Usage target.Usage
}

// AppChange is the effect of a PUT of an app.
type AppChange struct {
	Bounds   target.Bounds // as they are given
	Enabled  bool          // and not suspended
	Switched bool          // Enabled has changed
	Created  bool
}

// Unchanged returns the stored app if a PUT of declared would not change it.
func (b AppBefore) Unchanged(declared App) (App, bool) {
	if b.Stored == nil || !b.Stored.Declares(declared) {
		return App{}, false
	}
	return *b.Stored, true
}

// Put returns the effect of declared. The error is Problems: a change that only operators may make, or a taken name.
func (b AppBefore) Put(declared App, by input.Change, now time.Time) (c AppChange, err error) {
	if c.Bounds, err = b.nextBounds(declared, by, now); err != nil {
		return c, err
	}
	c.Created, c.Enabled = b.Revision == 0, declared.Enabled && !c.Bounds.Suspended
	c.Switched = c.Enabled != b.Enabled
	if c.Created {
		err = b.checkName(declared.Name)
	}
	return c, err
}

// nextBounds returns the bounds of an app after a change, and refuses an app outside of them.
func (b AppBefore) nextBounds(declared App, by input.Change, now time.Time) (target.Bounds, error) {
	if b.Unreadable != nil && (declared.Bounds == nil || !by.Operator) {
		return target.Bounds{}, b.Unreadable
	}
	old, given := b.Bounds.WithDefaults(declared.Name), b.Bounds
	if declared.Bounds != nil {
		asked := declared.Bounds.WithoutDefaults(declared.Name)
		if asked.Suspension = b.Bounds.Suspension; !reflect.DeepEqual(asked.WithDefaults(declared.Name), old) {
			given = asked
		}
	}
	next := given.WithDefaults(declared.Name)
	var problems input.Problems
	if !by.Operator && !reflect.DeepEqual(next, old) {
		problems.Add("/bounds", input.CodeBoundOperator,
			"bounds are set by operators, with a token of scope admin that is bound to no app; leave them out to keep them as they are")
	}
	if most := next.Quotas.Retention; declared.Retention > most {
		problems.Add("/retention", input.CodeBoundQuota,
			"retention %s is longer than the %s that the bounds of the app allow (quotas.retention); shorten it, or ask an operator",
			declared.Retention, most)
	}
	switch {
	case !given.Suspended:
		given.Suspension = target.Suspension{}
	case !b.Bounds.Suspended:
		given.Suspension = target.Suspension{SuspendedBy: by.Actor, SuspendedAt: &now}
	}
	return given, problems.Err()
}

// checkName refuses the name of a new app that differs from another's only by _ and -.
func (b AppBefore) checkName(name string) error {
	for _, other := range b.Names {
		if other != name && input.FoldName(other) == input.FoldName(name) {
			return &input.Problem{Path: "/name", Code: input.CodeNameTaken, Message: "name " + input.Echo(name) +
				" differs from the name of app " + other + " by - and _ only, and variables of secrets name both alike; choose another"}
		}
	}
	return nil
}

// Breaks are the jobs outside the bounds of their app, themselves or by their endpoint groups, and the alerts outside
// of them. Their attempts fail with class bounds, or skip endpoints that are outside; others go on.
type Breaks struct {
	// Count is the number of jobs, and Jobs are the first of them by name, at most MaxBreaks.
	Count int `json:"count"`
	// The first of them by name.
	Jobs []BreakJob `json:"jobs" schema:"max=100"`
	// Alerts are all alerts that are outside, by name.
	Alerts []BreakAlert `json:"alerts,omitempty" schema:"max=100"`
}

// MaxBreaks bounds Breaks.Jobs.
const MaxBreaks = 100

// BreakJob is a job with its problems with the bounds, with JSON pointers in the job.
type BreakJob struct {
	Job      string          `json:"job" schema:"Name"`
	Problems []input.Problem `json:"problems"`
}

// BreakAlert is an alert with its problems with the bounds, with JSON pointers in the alert.
type BreakAlert struct {
	Alert    string          `json:"alert" schema:"Name"`
	Problems []input.Problem `json:"problems"`
}

// AddAlert adds an alert if its destination is outside the bounds of its app.
func (b *Breaks) AddAlert(alert alert.Alert, bounds target.Bounds) {
	var problems input.Problems
	problems.AddError(target.DestinationAt, bounds.CheckDestination(alert.App, alert.Destination))
	if len(problems) > 0 {
		b.Alerts = append(b.Alerts, BreakAlert{Alert: alert.Name, Problems: problems})
	}
}

// None reports whether all jobs and alerts are inside.
func (b *Breaks) None() bool { return b == nil || b.Count == 0 && len(b.Alerts) == 0 }

// Add adds a job if it has problems with bounds.
func (b *Breaks) Add(job string, problems input.Problems) {
	if len(problems) == 0 {
		return
	}
	if b.Count++; b.Count <= MaxBreaks {
		b.Jobs = append(b.Jobs, BreakJob{Job: job, Problems: problems})
	}
}
