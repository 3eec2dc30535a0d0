package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

func etag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// matchesETag says whether If-None-Match of a GET names the revision or is *. RFC 9110, section
// 13.1.2, demands the weak comparison.
func matchesETag(r *request, revision int64) bool {
	for _, header := range r.Header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(header, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag(revision) {
				return true
			}
		}
	}
	return false
}

// definitionName names the app, job, calendar, group, alert or token in the path, for messages.
func definitionName(r *request) string {
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

// change turns the conditions of r into those of the store. An If-Match that is not a single strong
// ETag of this API cannot match, so it fails here.
func (a *API) change(r *request) (input.Change, error) {
	change := r.by()
	if none := r.Header.Values("If-None-Match"); len(none) > 0 {
		if !slices.Equal(none, []string{"*"}) {
			return change, input.Refuse(input.CodePrecondition, "If-None-Match of a write must be *, which means: create only")
		}
		change.IfAbsent = true
	}
	match := r.Header.Values("If-Match")
	switch {
	case len(match) == 0 && !change.IfAbsent:
		return a.unconditional(r, change)
	case len(match) == 0:
	case slices.Equal(match, []string{"*"}):
		// The write is conditional on the current revision, so that the definition still exists then.
		revision, err := a.revision(r)
		if errors.Is(err, dispatcher.ErrNotFound) {
			return change, input.Refuse(input.CodePrecondition, "%s does not exist, but If-Match: * requires it",
				definitionName(r))
		}
		change.IfRevision = revision
		return change, err
	default:
		revision, err := strconv.ParseInt(strings.Trim(match[0], `"`), 10, 64)
		if err != nil || revision < 1 || !slices.Equal(match, []string{etag(revision)}) {
			return change, a.stale(r, "If-Match "+input.Echo(match[0])+` is not a single ETag such as "3"`)
		}
		change.IfRevision = revision
	}
	return change, nil
}

// unconditional lets a request pass that names no condition, unless it may overwrite or delete what its caller has not
// seen: two writers would then undo each other's changes without noticing. A PUT may still create.
func (a *API) unconditional(r *request, change input.Change) (input.Change, error) {
	switch r.Method {
	case http.MethodPut:
		change.IfAbsent = true // explainFailed tells it from If-None-Match: *
	case http.MethodDelete:
		revision, err := a.revision(r)
		if err != nil {
			return change, err
		}
		return change, needsCondition(r, revision)
	}
	return change, nil
}

func needsCondition(r *request, revision int64) error {
	return input.Refuse(input.CodePreconditionReq, "%s exists, at revision %d: send If-Match: %s to change this revision, "+
		"or If-Match: * to change whatever is there", definitionName(r), revision, etag(revision))
}

// explainFailed makes ErrPrecondition of a write with change say which condition failed. Any other
// error, and nil, stays as it is.
func (a *API) explainFailed(r *request, change input.Change, err error) error {
	switch {
	case !errors.Is(err, dispatcher.ErrPrecondition):
		return err
	case change.IfAbsent:
		now, _ := a.current(r)                                                 // 0 if it was deleted in the meantime
		if r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "" { // POST import only creates
			return needsCondition(r, now.revision)
		}
		last := a.lastChange(r, now)
		return &changedError{input.Refuse(input.CodeNameTaken, "%s already exists at revision %d%s",
			definitionName(r), now.revision, last.text("changed")), last}
	}
	return a.stale(r, "revision "+strconv.FormatInt(change.IfRevision, 10)+" is not the current one")
}

// stale reports a failed condition, the current revision, and who made it.
func (a *API) stale(r *request, reason string) error {
	now, err := a.current(r)
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		last := a.deletion(r)
		return &changedError{input.Refuse(input.CodePrecondition, "%s; %s does not exist%s",
			reason, definitionName(r), last.text("deleted")), last}
	case err != nil:
		return err
	}
	last := a.lastChange(r, now)
	return &changedError{input.Refuse(input.CodePrecondition, "%s; %s is at revision %d%s: read it again and repeat the change",
		reason, definitionName(r), now.revision, last.text("changed")), last}
}

// put does what every PUT of a definition does once it is decoded. problems are those of decoding.
func put[T interface{ Validate() error }](a *API, r *request, definition T, problems input.Problems,
	write func(context.Context, T, input.Change) (stored T, created bool, err error), revision func(T) int64,
) (response, error) {
	decode.AddInvalid(&problems, definition.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	change, err := a.change(r)
	if err != nil {
		return response{}, err
	}
	stored, created, err := write(r.Context(), definition, change)
	if err != nil {
		return response{}, a.explainFailed(r, change, err)
	}
	res := response{revision: revision(stored), body: stored}
	if created {
		res.status = http.StatusCreated
	}
	return res, nil
}

// remove does what every DELETE of a definition does.
func (a *API) remove(r *request, write func(input.Change) error) (response, error) {
	change, err := a.change(r)
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, a.explainFailed(r, change, write(change))
}
