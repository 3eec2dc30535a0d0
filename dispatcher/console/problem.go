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
	// wait is how long to wait before another try; 0: it would not help.
	wait time.Duration
}

// Error names the text.
func (e *pageError) Error() string { return fmt.Sprintf("%d %s %v", e.status, e.key, e.values) }

func notFound(kind, name string) error {
	return &pageError{status: http.StatusNotFound, key: "problem.not_found", values: []any{"kind", kind, "name", name}}
}

// problemView is an error as a page shows it.
type problemView struct {
	Status int
	// Title is in the person's language. Fields are the API's words.
	Title  string
	Fields []problemField
	// RequestID is by what the log of the node names the request.
	RequestID string
}

// problemField is one of the problems of a request.
type problemField struct{ Path, Message, Code string }

// problemOf returns what to show of an error.
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
	}
	for _, p := range problems {
		view.Fields = append(view.Fields, problemField{Path: p.Path, Message: p.Message, Code: p.Code})
	}
	view.Title = v.Texts.Text(titleKey(view.Status))
	return view
}

// titleKey is the text that says what kind of problem a status is.
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

// fail shows an error as a page of its own.
func (v *visit) fail(err error) {
	if v.databaseAway(err) {
		v.showOutage(err)
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

// limited says that the address has made too many requests.
func (v *visit) limited(wait time.Duration) {
	v.fail(&pageError{status: http.StatusTooManyRequests, key: "problem.limited", wait: wait})
}
