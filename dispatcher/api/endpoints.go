package api

import (
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// registerEndpoint takes the heartbeat of an endpoint. It has no condition: the latest says where the endpoint is.
func (a *API) registerEndpoint(r *request) (response, error) {
	endpoint := target.Endpoint{ID: r.PathValue("endpoint")}
	problems := r.Decode(&endpoint)
	mustMatch(&problems, "/id", endpoint.ID, r.PathValue("endpoint"))
	input.CheckName(&problems, "/id", r.PathValue("endpoint"))
	decode.AddInvalid(&problems, endpoint.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	if err := noCondition(r, "an endpoint"); err != nil {
		return response{}, err
	}
	app, group := r.PathValue("app"), r.PathValue("group")
	stored, created, err := a.store.RegisterEndpoint(r.Context(), app, group, endpoint, time.Time{}, r.By())
	if err != nil {
		return response{}, conflict(err, "register in a group that has registration, under an id that the group does not declare")
	}
	if !created {
		return response{body: stored}, nil
	}
	a.registrations.note(r.Context(), cameEndpoint, app, group, endpoint.ID)
	return response{status: http.StatusCreated, body: stored}, nil
}

func (a *API) deregisterEndpoint(r *request) (response, error) {
	if err := noCondition(r, "an endpoint"); err != nil {
		return response{}, err
	}
	app, group, id := r.PathValue("app"), r.PathValue("group"), r.PathValue("endpoint")
	err := a.store.DeregisterEndpoint(r.Context(), app, group, id, r.By())
	if err == nil {
		a.registrations.note(r.Context(), leftEndpoint, app, group, id)
	}
	return response{status: http.StatusNoContent}, err
}

// noCondition refuses a condition on a thing which has no revision that could meet it.
func noCondition(r *request, thing string) error {
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if len(r.Header.Values(name)) > 0 {
			return input.Refuse(input.CodePrecondition, "%s has no revision; leave out %s", thing, name)
		}
	}
	return nil
}
