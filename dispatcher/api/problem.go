package api

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// problemDocument is the body of every error (RFC 9457). Type stays about:blank: clients branch on
// the codes.
type problemDocument struct {
	Type string `json:"type"`
	// The text of the status.
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	RequestID string         `json:"request_id"`
	Errors    input.Problems `json:"errors" schema:"min=1"`
	// ChangedBy and ChangedAt are the author and the time of the revision that a condition did not expect.
	ChangedBy string `json:"changed_by,omitempty"`
	// With changed_by: when.
	ChangedAt time.Time `json:"changed_at,omitzero"`
	// With changed_by: the X-Request-Id of the request that made the change. A client that lost the response to a write and
	// repeats it with the same X-Request-Id recognizes its own change by it.
	ChangedRequestID string `json:"changed_request_id,omitempty"`
}

// precedence are the statuses of problems, the most important first. Everything else is an invalid value, 422.
var precedence = []int{
	http.StatusInternalServerError,
	http.StatusServiceUnavailable,
	http.StatusTooManyRequests,
	http.StatusUnauthorized,
	http.StatusForbidden,
	http.StatusNotFound,
	http.StatusMethodNotAllowed,
	http.StatusConflict,
	http.StatusPreconditionFailed,
	http.StatusPreconditionRequired,
	http.StatusUnsupportedMediaType,
	http.StatusBadRequest,
	http.StatusRequestTimeout,
	http.StatusRequestEntityTooLarge,
}

func statusOf(problems input.Problems) int {
	for _, p := range problems {
		switch {
		case p.Code == input.CodeNameTaken && p.Path != "": // by another object than the written one
			return http.StatusConflict
		case p.Code == input.CodeBoundQuota && p.Path == "": // of the request, not of a value
			return http.StatusTooManyRequests
		}
	}
	for _, status := range precedence {
		if slices.ContainsFunc(problems, func(p input.Problem) bool { return input.RowOf(p.Code).Status == status }) {
			return status
		}
	}
	return http.StatusUnprocessableEntity
}

// sentinels maps errors of a Store to codes. Their texts contain only names, so they may be sent.
var sentinels = []struct {
	err  error
	code string
}{
	{dispatcher.ErrNotFound, input.CodeNotFound},
	{dispatcher.ErrPrecondition, input.CodePrecondition},
	{dispatcher.ErrConflict, input.CodeStateConflict},
	{dispatcher.ErrInUse, input.CodeCalendarInUse},
}

// conflict adds a remedy to ErrConflict; any other error stays as it is.
func conflict(err error, remedy string) error {
	return withRemedy(err, dispatcher.ErrConflict, input.CodeStateConflict, remedy)
}

// withRemedy turns an error of one kind into a refusal that says what to do about it.
func withRemedy(err, kind error, code, remedy string) error {
	if !errors.Is(err, kind) {
		return err
	}
	return input.Refuse(code, "%s; %s", strings.TrimSuffix(err.Error(), ": "+kind.Error()), remedy)
}

// problem turns err into a response that keeps the headers of res. Internal errors are logged here.
func (a *API) problem(r *request, rt route, res response, err error) response {
	problems := a.problems(r, rt, err)
	status := statusOf(problems)
	header := map[string]string{"Content-Type": "application/problem+json"}
	maps.Copy(header, res.header)
	switch status {
	case http.StatusUnauthorized:
		header["WWW-Authenticate"] = `Bearer realm="carillon"`
	case http.StatusTooManyRequests:
		if limited, is := errors.AsType[*gate.LimitedError](err); is {
			header["Retry-After"] = limited.RetryAfter()
		}
	case http.StatusServiceUnavailable:
		header["Retry-After"] = "2"
	}
	document := problemDocument{
		Type: "about:blank", Title: http.StatusText(status), Status: status, RequestID: r.ID, Errors: decode.Bounded(problems),
	}
	if changed, is := errors.AsType[*gate.ChangedError](err); is {
		document.ChangedBy, document.ChangedAt, document.ChangedRequestID = changed.By, changed.At, changed.RequestID
	}
	return response{status: status, header: header, body: document}
}

// problems returns the part of err that the caller may see.
func (a *API) problems(r *request, rt route, err error) input.Problems {
	var problems input.Problems
	var one *input.Problem
	var many input.Problems
	if errors.As(err, &one) || errors.As(err, &many) {
		problems.AddError("", err)
		return problems
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			problems.Add("", s.code, "%v", err)
			return problems
		}
	}
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		problems.Add("", input.CodeUnavailable, "the client closed the request")
		return problems
	}
	if why := a.unavailable(r, err); why != nil {
		a.log.WarnContext(r.Context(), "database unavailable", "request_id", r.ID, "route", rt.Path, "err", err)
		problems.AddError("", why)
		return problems
	}
	a.log.ErrorContext(r.Context(), "request failed", "request_id", r.ID, "method", r.Method, "route", rt.Path, "err", err)
	problems.Add("", input.CodeInternal, "internal error; the log has the details under request id %s", r.ID)
	return problems
}

// unavailable returns what callers see if err means that the database does not respond, or refuses writes; else nil.
// Drivers have no common error for silence, so in doubt unavailable asks the database.
func (a *API) unavailable(r *request, err error) error {
	if refused := a.Refused(err); refused != nil {
		return refused
	}
	var network net.Error
	if !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &network) {
		if err = a.DatabaseFailure(r.Context()); err == nil {
			return nil
		}
	}
	return cmp.Or(a.Refused(err), input.Refuse(input.CodeUnavailable, "the database does not answer; try again in a moment"))
}

// Refused is Store.Refused.
func (a *API) Refused(err error) error { return a.store.Refused(err) }

// DatabaseFailure asks the database, and returns why it does not respond within a moment, even to a disconnected caller.
func (a *API) DatabaseFailure(ctx context.Context) error {
	const timeout = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	_, err := a.store.Installation(ctx)
	return err
}
