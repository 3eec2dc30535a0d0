package api

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
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

// definition is an app, a job or a calendar that a write is about.
type definition struct {
	// what names it for messages, such as `job "crm/nightly"`.
	what string
	// revision reads the current one; ErrNotFound if there is none.
	revision func() (int64, error)
}

// change turns the conditions of r into those of the store. An If-Match that is not a single strong
// ETag of this API cannot match, so it fails here.
func (r *request) change(def definition) (dispatcher.Change, error) {
	change := dispatcher.Change{Actor: r.token.Name}
	if none := r.Header.Values("If-None-Match"); len(none) > 0 {
		if !slices.Equal(none, []string{"*"}) {
			return change, refuse(dispatcher.CodePrecondition, "If-None-Match of a write must be *, which means: create only")
		}
		change.IfAbsent = true
	}
	match := r.Header.Values("If-Match")
	switch {
	case len(match) == 0:
	case slices.Equal(match, []string{"*"}):
		// The write is conditional on the current revision, so that the object still exists then.
		revision, err := def.revision()
		if errors.Is(err, dispatcher.ErrNotFound) {
			return change, refuse(dispatcher.CodePrecondition, "%s does not exist, but If-Match: * requires it", def.what)
		}
		change.IfRevision = revision
		return change, err
	default:
		revision, err := strconv.ParseInt(strings.Trim(match[0], `"`), 10, 64)
		if err != nil || revision < 1 || !slices.Equal(match, []string{etag(revision)}) {
			return change, def.stale("If-Match " + dispatcher.Echo(match[0]) + ` is not a single ETag such as "3"`)
		}
		change.IfRevision = revision
	}
	return change, nil
}

// explain makes ErrPrecondition of a write with change say which condition failed.
func (def definition) explain(change dispatcher.Change, err error) error {
	switch {
	case !errors.Is(err, dispatcher.ErrPrecondition):
		return err
	case change.IfAbsent:
		revision, _ := def.revision() // 0 if it was deleted in the meantime
		return refuse(dispatcher.CodeNameTaken, "%s already exists at revision %d", def.what, revision)
	}
	return def.stale("revision " + strconv.FormatInt(change.IfRevision, 10) + " is not the current one")
}

// stale reports a failed condition and the current revision.
func (def definition) stale(reason string) error {
	revision, err := def.revision()
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		return refuse(dispatcher.CodePrecondition, "%s; %s does not exist", reason, def.what)
	case err != nil:
		return err
	}
	return refuse(dispatcher.CodePrecondition, "%s; %s is at revision %d: read it again and repeat the change", reason, def.what, revision)
}

// put does what the PUTs of definitions have in common, once the body is known to be good.
// write returns the response, and whether it created the definition.
func put(r *request, def definition, write func(dispatcher.Change) (response, bool, error)) (response, error) {
	change, err := r.change(def)
	if err != nil {
		return response{}, err
	}
	stored, created, err := write(change)
	if err != nil {
		return response{}, def.explain(change, err)
	}
	stored.status = http.StatusOK
	if created {
		stored.status = http.StatusCreated
	}
	return stored, nil
}
