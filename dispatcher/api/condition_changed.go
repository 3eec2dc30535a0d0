package api

import (
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// defined is what a failed condition tells of an app, job, calendar, group, alert or token.
type defined struct {
	revision  int64
	changedAt time.Time // zero: unknown
}

// current reads the revision of the app, job, calendar, group, alert or token in the path, and when it was changed last.
func (a *API) current(r *request) (defined, error) {
	name := r.PathValue("app")
	switch {
	case aboutState(r):
		state, err := a.store.CarriedState(r.Context(), name, r.PathValue("job"))
		if state.UpdatedAt == nil {
			return defined{}, err
		}
		return defined{state.Revision, *state.UpdatedAt}, err
	case r.PathValue("job") != "":
		job, err := a.store.Job(r.Context(), name, r.PathValue("job"))
		return defined{job.Revision, job.UpdatedAt}, err
	case r.PathValue("calendar") != "":
		calendar, err := a.store.Calendar(r.Context(), name, r.PathValue("calendar"))
		return defined{calendar.Revision, calendar.UpdatedAt}, err
	case r.PathValue("group") != "":
		group, err := a.store.Group(r.Context(), name, r.PathValue("group"))
		return defined{group.Revision, group.UpdatedAt}, err
	case r.PathValue("alert") != "":
		alert, err := a.store.Alert(r.Context(), name, r.PathValue("alert"))
		return defined{alert.Revision, alert.UpdatedAt}, err
	case r.PathValue("token") != "":
		token, err := a.store.Token(r.Context(), r.PathValue("token"))
		return defined{revision: token.Revision}, err
	}
	app, err := a.store.App(r.Context(), name)
	return defined{app.Revision, app.UpdatedAt}, err
}

// revision reads the current revision of the app, job, calendar, group, alert or token in the path.
func (a *API) revision(r *request) (int64, error) {
	d, err := a.current(r)
	return d.revision, err
}

// lastChange is who made the current revision, or deleted the last one, and when; empty if the audit log does not know.
type lastChange struct {
	by string
	at time.Time
}

// text says it as part of a message; done is "changed" or "deleted".
func (c lastChange) text(done string) string {
	if c.by == "" {
		return ""
	}
	return ", " + done + " by " + input.Echo(c.by) + " at " + c.at.UTC().Format(time.RFC3339)
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
	page, err := a.store.AuditEntries(r.Context(), access.AuditQuery{
		Apps: []string{r.PathValue("app")}, From: d.changedAt, To: d.changedAt.Add(time.Millisecond), Refused: &refused,
		Page: input.Page{Limit: changesLooked},
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

// deletionLooked is how far back a deletion is looked for: longer than from a plan to its apply, and short in a long log.
const deletionLooked = 24 * time.Hour

// deletion looks up who deleted what is in the path.
func (a *API) deletion(r *request) lastChange {
	refused := false
	page, err := a.store.AuditEntries(r.Context(), access.AuditQuery{
		Apps: []string{r.PathValue("app")}, Action: "delete", Subject: subject(r), From: r.now.Add(-deletionLooked), Refused: &refused,
		Page: input.Page{Limit: 1},
	})
	if err != nil || len(page.Entries) == 0 {
		return lastChange{}
	}
	return lastChange{page.Entries[0].Actor, page.Entries[0].At}
}

// concerns tells whether the subject of an entry is what is in the path, or a trigger of it.
func concerns(r *request, of string) bool {
	return of == subject(r) || r.PathValue("job") != "" && strings.HasPrefix(of, subject(r)+" trigger ")
}

// subject is how the audit log names the job, calendar, group, alert or app in the path.
func subject(r *request) string {
	for _, kind := range []string{"job", "calendar", "group", "alert"} {
		if name := r.PathValue(kind); name != "" {
			return kind + " " + name
		}
	}
	return "app " + r.PathValue("app")
}
