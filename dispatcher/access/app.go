package access

import (
	"cmp"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// App is a namespace of jobs. Tokens, limits and fairness are scoped to it.
type App struct {
	// Name is chosen by the client; see CheckName.
	Name string `json:"name"`
	AppSpec
	AppStatus `body:"-"`
}

// AppSpec is what a person declares of an app.
type AppSpec struct {
	// Description is free text of at most 1024 characters.
	Description string `json:"description"`
	// Enabled is whether nodes claim fires of the app, unless it is suspended. Runs in flight always finish.
	Enabled bool `json:"enabled"`
	// Retention is how long the app's runs, attempts and misfires are kept, from MinRetention to
	// the retention of its quotas; 0 means DefaultRetention. History is removed by whole UTC days.
	Retention input.Duration `json:"retention,omitempty"`
	// Defaults are what the jobs of the app get where they leave it out; nil: nothing.
	Defaults *dispatcher.JobDefaults `json:"defaults,omitempty"`
	// Bounds are what operators allow the app. A change without them leaves them as they are; with them, it needs the
	// scope admin unless they are the same.
	Bounds *target.Bounds `json:"bounds,omitempty"`
}

// AppStatus is what Carillon knows of an app.
type AppStatus struct {
	// AWSExternalID is the external id with which nodes assume roles for the app: trust policies that demand it trust
	// no other app. It is drawn at random when the app is created, and stays.
	AWSExternalID string `json:"aws_external_id,omitempty"`
	// Usage is how much of its quotas the app uses; lists leave it out.
	Usage *target.Usage `json:"usage,omitempty"`
	// Pauses are those that the app has now; lists leave them out.
	Pauses []dispatcher.AppPause `json:"pauses,omitempty"`
	// Breaks are the jobs that are outside of bounds that a change has set. Only the response to that change has them.
	Breaks *Breaks `json:"breaks,omitempty"`
	// Importing tells that an import has yet to write a part of the app. Until it has, the app is disabled and takes no change.
	Importing bool `json:"importing,omitempty"`
	// Revision counts the changes of the app; it is its ETag.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// Err is why what is stored of the app cannot be read. It is then shown as suspended, with that reason, and can be deleted; only an
	// operator can put it, with bounds.
	Err error `json:"-"`
}

// Close suspends an app that cannot be read, and says why.
func (a *App) Close(why error) {
	closed := target.Bounds{Suspended: true, SuspendedReason: fmt.Sprintf("%s; delete the app, or let an operator put it with bounds",
		why)}
	a.Err, a.Bounds = why, new(closed.WithDefaults(a.Name))
}

// SuspendedMessage says that the app is suspended, why, and who lifts that.
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

// Declares tells whether a, which is stored, is what declared would become. Without bounds, declared leaves them.
// An app that an import has yet to write is not: it takes no change.
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
