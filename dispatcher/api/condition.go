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

// matchesETag tells whether If-None-Match of a GET names revision, or anything (RFC 9110,
// section 13.1.2, which compares weakly).
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

// change turns the conditions of r into those of the store. Whatever is no single strong
// ETag of ours cannot match and fails here, rather than being passed over.
func (r *request) change(def definition) (dispatcher.Change, error) {
	change := dispatcher.Change{Actor: r.token.Name}
	if none := r.Header.Values("If-None-Match"); len(none) > 0 {
		if !slices.Equal(none, []string{"*"}) {
			return change, refuse(dispatcher.CodePrecondition, "If-None-Match of a write must be *, which means: only if it does not exist")
		}
		change.IfAbsent = true
	}
	match := r.Header.Values("If-Match")
	switch {
	case len(match) == 0:
	case slices.Equal(match, []string{"*"}):
		// The revision that is found takes the place of "any", so the condition still holds
		// when the write is made.
		revision, err := def.revision()
		if errors.Is(err, dispatcher.ErrNotFound) {
			return change, refuse(dispatcher.CodePrecondition, "%s does not exist, and If-Match: * asks that it does", def.what)
		}
		change.IfRevision = revision
		return change, err
	default:
		revision, err := strconv.ParseInt(strings.Trim(match[0], `"`), 10, 64)
		if err != nil || revision < 1 || !slices.Equal(match, []string{etag(revision)}) {
			return change, def.stale("If-Match " + dispatcher.Echo(match[0]) + ` is not one ETag such as "3"`)
		}
		change.IfRevision = revision
	}
	return change, nil
}

// explain makes ErrPrecondition, which a write with change met, tell what stands in its way.
func (def definition) explain(change dispatcher.Change, err error) error {
	switch {
	case !errors.Is(err, dispatcher.ErrPrecondition):
		return err
	case change.IfAbsent:
		revision, _ := def.revision() // 0 where it was deleted meanwhile
		return refuse(dispatcher.CodeNameTaken, "%s exists already, at revision %d", def.what, revision)
	}
	return def.stale("revision " + strconv.FormatInt(change.IfRevision, 10) + " is not the current one")
}

// stale says that a condition failed, and what the current revision is.
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
