package gate

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// ETag is the tag of a revision.
func ETag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// MatchesETag reports whether If-None-Match of a GET names the revision or is *. RFC 9110, section 13.1.2, requires the
// weak comparison.
func (r *Request) MatchesETag(revision int64) bool {
	for _, header := range r.Header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(header, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == ETag(revision) {
				return true
			}
		}
	}
	return false
}

// DefinitionName returns the name of the app, job, calendar, group, alert or token in the path, for messages.
func (r *Request) DefinitionName() string {
	if name := r.PathValue("token"); name != "" {
		return "token " + input.Echo(name)
	}
	app := r.PathValue("app")
	if aboutState(r) {
		return "the state of job " + input.Echo(app+"/"+r.PathValue("job"))
	}
	for _, kind := range []string{"job", "calendar", "group", "alert"} {
		if name := r.PathValue(kind); name != "" {
			return kind + " " + input.Echo(app+"/"+name)
		}
	}
	return "app " + input.Echo(app)
}

// Change turns the conditions of r into those of the store. An If-Match that is not a single strong ETag of this API
// cannot match, so it fails here.
func (g *Gate) Change(r *Request) (input.Change, error) {
	change := r.By()
	if none := r.Header.Values("If-None-Match"); len(none) > 0 {
		if !slices.Equal(none, []string{"*"}) {
			return change, input.Refuse(input.CodePrecondition, "If-None-Match of a write must be *, which means: create only")
		}
		change.IfAbsent = true
	}
	match := r.Header.Values("If-Match")
	switch {
	case len(match) == 0 && !change.IfAbsent:
		return g.unconditional(r, change)
	case len(match) == 0:
	case slices.Equal(match, []string{"*"}):
		// The write is conditional on the current revision, so that the definition still exists then.
		revision, err := g.Revision(r)
		if errors.Is(err, dispatcher.ErrNotFound) {
			return change, input.Refuse(input.CodePrecondition, "%s does not exist, but If-Match: * requires it",
				r.DefinitionName())
		}
		change.IfRevision = revision
		return change, err
	default:
		revision, err := strconv.ParseInt(strings.Trim(match[0], `"`), 10, 64)
		if err != nil || revision < 1 || !slices.Equal(match, []string{ETag(revision)}) {
			return change, g.stale(r, "If-Match "+input.Echo(match[0])+` is not a single ETag such as "3"`)
		}
		change.IfRevision = revision
	}
	return change, nil
}

// unconditional admits a request without a condition, unless it may overwrite or delete a revision that its caller has
// not seen: two writers would then undo each other's changes without noticing. A PUT may still create.
func (g *Gate) unconditional(r *Request, change input.Change) (input.Change, error) {
	switch r.Method {
	case http.MethodPut:
		change.IfAbsent = true // ExplainFailed distinguishes it from If-None-Match: *
	case http.MethodDelete:
		revision, err := g.Revision(r)
		if err != nil {
			return change, err
		}
		return change, r.NeedsCondition(revision)
	}
	return change, nil
}

// NeedsCondition refuses a write without a condition to an object that exists at a revision.
func (r *Request) NeedsCondition(revision int64) error {
	return input.Refuse(input.CodePreconditionReq, "%s exists, at revision %d: send If-Match: %s to change this revision, "+
		"or If-Match: * to change whatever is there", r.DefinitionName(), revision, ETag(revision))
}

// ExplainFailed adds the failed condition to an ErrPrecondition of a write with change, and who deleted it to an
// ErrNotFound of a DELETE. Any other error, and nil, stays the same.
func (g *Gate) ExplainFailed(r *Request, change input.Change, err error) error {
	switch {
	case errors.Is(err, dispatcher.ErrNotFound) && r.Method == http.MethodDelete:
		return &ChangedError{err, g.deletion(r)}
	case !errors.Is(err, dispatcher.ErrPrecondition):
		return err
	case change.IfAbsent:
		now, _ := g.current(r)                                                 // 0 if it was deleted in the meantime
		if r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "" { // POST import only creates
			return r.NeedsCondition(now.revision)
		}
		last := g.lastChange(r, now)
		return &ChangedError{input.Refuse(input.CodeNameTaken, "%s already exists at revision %d%s",
			r.DefinitionName(), now.revision, last.text("changed")), last}
	}
	return g.stale(r, "revision "+strconv.FormatInt(change.IfRevision, 10)+" is not the current one")
}

// stale reports a failed condition with the current revision and its author.
func (g *Gate) stale(r *Request, reason string) error {
	now, err := g.current(r)
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		last := g.deletion(r)
		return &ChangedError{input.Refuse(input.CodePrecondition, "%s; %s does not exist%s",
			reason, r.DefinitionName(), last.text("deleted")), last}
	case err != nil:
		return err
	}
	last := g.lastChange(r, now)
	return &ChangedError{input.Refuse(input.CodePrecondition, "%s; %s is at revision %d%s: read it again and repeat the change",
		reason, r.DefinitionName(), now.revision, last.text("changed")), last}
}

// defined is the current revision of an app, job, calendar, group, alert or token, for a failed condition.
type defined struct {
	revision  int64
	changedAt time.Time // zero: unknown
}

// current reads the revision of the app, job, calendar, group, alert or token in the path, and its last change.
func (g *Gate) current(r *Request) (defined, error) {
	name := r.PathValue("app")
	switch {
	case aboutState(r):
		state, err := g.store.CarriedState(r.Context(), name, r.PathValue("job"))
		if state.UpdatedAt == nil {
			return defined{}, err
		}
		return defined{state.Revision, *state.UpdatedAt}, err
	case r.PathValue("job") != "":
		job, err := g.store.Job(r.Context(), name, r.PathValue("job"))
		return defined{job.Revision, job.UpdatedAt}, err
	case r.PathValue("calendar") != "":
		calendar, err := g.store.Calendar(r.Context(), name, r.PathValue("calendar"))
		return defined{calendar.Revision, calendar.UpdatedAt}, err
	case r.PathValue("group") != "":
		group, err := g.store.Group(r.Context(), name, r.PathValue("group"))
		return defined{group.Revision, group.UpdatedAt}, err
	case r.PathValue("alert") != "":
		alert, err := g.store.Alert(r.Context(), name, r.PathValue("alert"))
		return defined{alert.Revision, alert.UpdatedAt}, err
	case r.PathValue("token") != "":
		token, err := g.store.Token(r.Context(), r.PathValue("token"))
		return defined{revision: token.Revision}, err
	}
	app, err := g.store.App(r.Context(), name)
	return defined{app.Revision, app.UpdatedAt}, err
}

// Revision reads the current revision of the app, job, calendar, group, alert or token in the path.
func (g *Gate) Revision(r *Request) (int64, error) {
	d, err := g.current(r)
	return d.revision, err
}

// lastChange is the author, the time and the request of the current revision or of the deletion; empty if the audit log
// lacks it.
type lastChange struct {
	By        string
	At        time.Time
	RequestID string
}

// text returns it as part of a message; done is "changed" or "deleted".
func (c lastChange) text(done string) string {
	if c.By == "" {
		return ""
	}
	return ", " + done + " by " + input.Echo(c.By) + " at " + c.At.UTC().Format(time.RFC3339)
}

// ChangedError is a failed condition of a write: another client has changed the object.
type ChangedError struct {
	error
	lastChange
}

// Unwrap returns the problem.
func (e *ChangedError) Unwrap() error { return e.error }

// changesLooked is how many entries of the audit log of one millisecond are searched for a change.
const changesLooked = 20

// lastChange looks up the author of a revision. It reads only the audit entries of the app at the millisecond of the
// change, so that it stays short however long the log is.
func (g *Gate) lastChange(r *Request, d defined) lastChange {
	if d.changedAt.IsZero() {
		return lastChange{}
	}
	refused := false
	page, err := g.store.AuditEntries(r.Context(), access.AuditQuery{
		Apps: []string{r.PathValue("app")}, From: d.changedAt, To: d.changedAt.Add(time.Millisecond), Refused: &refused,
		Page: input.Page{Limit: changesLooked},
	})
	if err != nil {
		return lastChange{} // the condition failed anyway
	}
	for _, e := range page.Entries {
		ofTrigger := r.PathValue("job") != "" && strings.HasPrefix(e.Subject, subject(r)+" trigger ")
		if e.Revision == d.revision && (e.Subject == subject(r) || ofTrigger) {
			return lastChange{e.Actor, d.changedAt, e.RequestID}
		}
	}
	return lastChange{}
}

// deletionLooked is how far back a deletion is searched: longer than from a plan to its apply, and short in a long log.
const deletionLooked = 24 * time.Hour

// deletion looks up who deleted the object in the path.
func (g *Gate) deletion(r *Request) lastChange {
	refused := false
	page, err := g.store.AuditEntries(r.Context(), access.AuditQuery{
		Apps: []string{r.PathValue("app")}, Action: "delete", Subject: subject(r), From: r.Now.Add(-deletionLooked), Refused: &refused,
		Page: input.Page{Limit: 1},
	})
	if err != nil || len(page.Entries) == 0 {
		return lastChange{}
	}
	e := page.Entries[0]
	return lastChange{e.Actor, e.At, e.RequestID}
}

// subject is the name of the job, calendar, group, alert or app in the path in the audit log.
func subject(r *Request) string {
	for _, kind := range []string{"job", "calendar", "group", "alert"} {
		if name := r.PathValue(kind); name != "" {
			return kind + " " + name
		}
	}
	return "app " + r.PathValue("app")
}

// aboutState reports whether a request is about the state that a job carries, which has its own revision.
func aboutState(r *Request) bool { return strings.HasSuffix(r.Pattern, "/jobs/{job}/state") }
