package api

import (
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// defined is what a failed condition tells of an app, job, calendar, group or token.
type defined struct {
	revision  int64
	changedAt time.Time // zero: unknown
}

// current reads the revision of the app, job, calendar, group or token in the path, and when it was changed last.
func (a *API) current(r *request) (defined, error) {
	name := r.PathValue("app")
	switch {
	case r.PathValue("job") != "":
		job, err := a.store.Job(r.Context(), name, r.PathValue("job"))
		return defined{job.Revision, job.UpdatedAt}, err
	case r.PathValue("calendar") != "":
		calendar, err := a.store.Calendar(r.Context(), name, r.PathValue("calendar"))
		return defined{calendar.Revision, calendar.UpdatedAt}, err
	case r.PathValue("group") != "":
		group, err := a.store.Group(r.Context(), name, r.PathValue("group"))
		return defined{group.Revision, group.UpdatedAt}, err
	case r.PathValue("token") != "":
		token, err := a.store.Token(r.Context(), r.PathValue("token"))
		return defined{revision: token.Revision}, err
	}
	app, err := a.store.App(r.Context(), name)
	return defined{app.Revision, app.UpdatedAt}, err
}

// revision reads the current revision of the app, job, calendar, group or token in the path.
func (a *API) revision(r *request) (int64, error) {
	d, err := a.current(r)
	return d.revision, err
}

// lastChange is who made the current revision, and when; empty if the audit log does not know.
type lastChange struct {
	by string
	at time.Time
}

// String says it as part of a message.
func (c lastChange) String() string {
	if c.by == "" {
		return ""
	}
	return ", changed by " + dispatcher.Echo(c.by) + " at " + c.at.UTC().Format(time.RFC3339)
}

// changedError is a failed condition of a write: another client has changed what it is about.
type changedError struct {
	error
	lastChange
}

// Unwrap returns the problem.
func (e *changedError) Unwrap() error { return e.error }

// changesLooked is how many entries of the audit log of one millisecond are looked through for a change.
const changesLooked = 20

// lastChange looks up who made a revision. The audit log is asked for the entries of the app at the millisecond of the
// change alone, so that the look stays short however long the log is.
func (a *API) lastChange(r *request, d defined) lastChange {
	if d.changedAt.IsZero() {
		return lastChange{}
	}
	refused := false
	page, err := a.store.AuditEntries(r.Context(), dispatcher.AuditQuery{
		Apps: []string{r.PathValue("app")}, From: d.changedAt, To: d.changedAt.Add(time.Millisecond), Refused: &refused,
		Page: dispatcher.Page{Limit: changesLooked},
	})
	if err != nil {
		return lastChange{} // the condition failed all the same
	}
	for _, e := range page.Entries {
		if e.Revision == d.revision && concerns(r, e.Subject) {
			return lastChange{e.Actor, d.changedAt}
		}
	}
	return lastChange{}
}

// concerns tells whether the subject of an entry is what is in the path, or a trigger of it.
func concerns(r *request, subject string) bool {
	for _, kind := range []string{"job", "calendar", "group"} {
		if name := r.PathValue(kind); name != "" {
			return subject == kind+" "+name || strings.HasPrefix(subject, kind+" "+name+" trigger ")
		}
	}
	return subject == "app "+r.PathValue("app")
}
