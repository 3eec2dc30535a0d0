package console

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// pageError is an error that a person sees in their language.
type pageError struct {
	status int
	key    string // of the text
	values []any
	// wait is how long to wait before another try; 0: another try would not help.
	wait time.Duration
}

// Error names the text.
func (e *pageError) Error() string { return fmt.Sprintf("%d %s %v", e.status, e.key, e.values) }

func notFound(kind, name string) error {
	return &pageError{status: http.StatusNotFound, key: "problem.not_found", values: []any{"kind", kind, "name", name}}
}

// problemView is an error in the form for a page.
type problemView struct {
	Status int
	// Title is in the person's language. Fields are the API's words.
	Title  string
	Fields []problemField
	// RequestID identifies the request in the log of the node.
	RequestID string
}

// problemField is one of the problems of a request.
type problemField struct{ Path, Message, Code string }

func (v *visit) problemOf(err error) problemView {
	view := problemView{Status: http.StatusInternalServerError, RequestID: v.id}
	if own, is := errors.AsType[*pageError](err); is {
		view.Status, view.Title = own.status, v.Texts.Text(own.key, own.values...)
		return view
	}
	var problems input.Problems
	if of, is := errors.AsType[*client.Error](err); is && of.Status > 0 {
		view.Status, problems = of.Status, of.Problems
		if len(problems) == 0 {
			view.Fields = []problemField{{Message: of.Error()}}
		}
	} else if errors.As(err, &problems) {
		view.Status = http.StatusUnprocessableEntity
	} else if errors.Is(err, dispatcher.ErrConflict) {
		view.Status, view.Fields = http.StatusConflict, []problemField{{Message: err.Error()}}
	} else if refused, is := errors.AsType[*input.Problem](v.refused(err)); is {
		view.Status, problems = http.StatusServiceUnavailable, input.Problems{*refused}
	}
	for _, p := range problems {
		view.Fields = append(view.Fields, problemField{Path: p.Path, Message: p.Message, Code: p.Code})
	}
	view.Title = v.Texts.Text(titleKey(view.Status))
	return view
}

// titleKey is the text for the kind of problem of a status.
func titleKey(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed,
		http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return "problem." + strconv.Itoa(status)
	}
	if status < http.StatusInternalServerError {
		return "problem.400"
	}
	return "problem.500"
}

// fail shows an error on a page of its own.
func (v *visit) fail(err error) {
	if failure := v.databaseFailure(err); failure != nil {
		v.showOutage(failure)
		return
	}
	problem := v.problemOf(err)
	if own, is := errors.AsType[*pageError](err); is && own.wait > 0 {
		v.w.Header().Set("Retry-After", strconv.Itoa(int((own.wait+time.Second-1)/time.Second)))
	}
	if problem.Status >= http.StatusInternalServerError && v.Context().Err() == nil {
		v.console.log.WarnContext(v.Context(), "page of the console failed", "request_id", v.id, "path", v.URL.Path, "err", err)
	}
	v.problem = &problem
	v.render("problem", content{Title: problem.Title, Data: problem, Status: problem.Status})
}

// limited shows that the address has made too many requests.
func (v *visit) limited(wait time.Duration) {
	v.fail(&pageError{status: http.StatusTooManyRequests, key: "problem.limited", wait: wait})
}

const (
	// sessionPatience is how long a page waits for the session: people must soon see that the database is unreachable.
	sessionPatience = 3 * time.Second
	// outageRetry is the number of seconds after which a browser may ask again.
	outageRetry = "5"
)

// outagePage shows that the database cannot be reached, to any caller: without the database no person can be signed in,
// so it holds nothing secret.
type outagePage struct {
	// Since is when the node last reached its database; zero: unknown.
	Since time.Time
	// Why is how the database refuses connections, and what to do; empty if it does not respond.
	Why string
	// Retry makes the browser load the page again by itself.
	Retry bool
}

// databaseFailure returns why the database is unreachable, if that is the cause of an error. A refusal by the API or the
// console is not.
func (v *visit) databaseFailure(err error) error {
	if _, own := errors.AsType[*pageError](err); own || v.console.opts.API == nil {
		return nil
	}
	if of, is := errors.AsType[*client.Error](err); is && of.Status != http.StatusServiceUnavailable {
		return nil
	}
	if v.Context().Err() != nil {
		return nil //nolint:nilerr // the browser has disconnected
	}
	return v.console.opts.API.DatabaseFailure(v.Context())
}

// refused is API.Refused, also before there is an API.
func (v *visit) refused(err error) error {
	if v.console.opts.API == nil {
		return nil
	}
	return v.console.opts.API.Refused(err)
}

// showOutage shows that the database cannot be reached.
func (v *visit) showOutage(err error) {
	v.console.log.WarnContext(v.Context(), "page of the console not shown: database unavailable", "request_id", v.id, "path", v.URL.Path,
		"err", err)
	page := outagePage{Retry: v.Method == http.MethodGet}
	if refused, is := errors.AsType[*input.Problem](v.refused(err)); is {
		page.Why = refused.Message
	}
	if v.console.opts.Reached != nil {
		page.Since, _ = v.console.opts.Reached()
	}
	v.w.Header().Set("Retry-After", outageRetry)
	v.render("outage", content{Data: page, Status: http.StatusServiceUnavailable})
}

// errHeartbeat is the reason why a page that needs no database is not shown: its reader would have to sign in.
var errHeartbeat = errors.New("the heartbeats of this node do not reach the database")

// cannotSignIn shows a person without a session that the database cannot be reached, instead of the login. It asks the
// database only if heartbeats have not reached it.
func (v *visit) cannotSignIn() bool {
	if v.console.opts.Reached == nil {
		return false
	}
	if _, well := v.console.opts.Reached(); well {
		return false
	}
	failure := v.databaseFailure(errHeartbeat)
	if failure != nil {
		v.showOutage(failure)
	}
	return failure != nil
}
