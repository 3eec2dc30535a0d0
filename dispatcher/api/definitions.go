package api

import (
	"context"
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// put does what every PUT of a definition does once it is decoded. problems are those of decoding.
func put[T interface{ Validate() error }](a *API, r *request, definition T, problems input.Problems,
	write func(context.Context, T, input.Change) (stored T, created bool, err error), revision func(T) int64,
) (response, error) {
	decode.AddInvalid(&problems, definition.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	change, err := a.gate.Change(r.Request)
	if err != nil {
		return response{}, err
	}
	stored, created, err := write(r.Context(), definition, change)
	if err != nil {
		return response{}, a.gate.ExplainFailed(r.Request, change, err)
	}
	res := response{revision: revision(stored), body: stored}
	if created {
		res.status = http.StatusCreated
	}
	return res, nil
}

// remove does what every DELETE of a definition does.
func (a *API) remove(r *request, write func(input.Change) error) (response, error) {
	change, err := a.gate.Change(r.Request)
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, a.gate.ExplainFailed(r.Request, change, write(change))
}

// mustMatch reports a name in the body that differs from the one in the path. Validate reports an
// invalid name.
func mustMatch(problems *input.Problems, path, inBody, inPath string) {
	if inBody != inPath && input.IsName(inBody) {
		problems.Add(path, input.CodeNameMismatch, "name %s differs from the one in the path, %s; a PUT renames nothing",
			input.Echo(inBody), input.Echo(inPath))
	}
}
