package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Executors of XXL-JOB call what its admin would serve, below the address of their group. They have no token of this
// installation but that of the group, and read from each response, whose status is 200, a code.
const (
	executorPath = "/xxl-job/{app}/{group}/api"

	executorSuccess  = 200
	executorFailure  = 500
	executorTimedOut = 502 // the handler took longer than its time-out
)

// executorReply is the body of each response to an executor.
type executorReply struct {
	Code int     `json:"code"`
	Msg  *string `json:"msg"`
}

// forExecutor turns a response into one that executors understand.
func forExecutor(res response) response {
	reply := executorReply{Code: executorSuccess}
	if document, ok := res.body.(problemDocument); ok {
		texts := make([]string, len(document.Errors))
		for i, problem := range document.Errors {
			texts[i] = problem.Message
		}
		reply = executorReply{executorFailure, new(strings.Join(texts, "; "))}
	}
	return response{status: http.StatusOK, body: reply}
}

// registry is the body of a registration, and of its removal.
type registry struct {
	Group string `json:"registryGroup"`
	Key   string `json:"registryKey"`
	Value string `json:"registryValue"`
}

// readRegistry reads a registration, and checks that it is one of the group.
func (a *API) readRegistry(r *request) (endpoint target.Endpoint, err error) {
	var body registry
	if err := r.decodeOfExecutor(&body); err != nil {
		return endpoint, err
	}
	name := r.Executors.ExecutorName()
	switch {
	case body.Group != "EXECUTOR":
		return endpoint, input.Refuse(input.CodeEnum, "registryGroup %s is not EXECUTOR", input.Echo(body.Group))
	case body.Key != name:
		return endpoint, input.Refuse(input.CodeNameMismatch, "registryKey %s is not the AppName of group %s, %s; change the address of the "+
			"executor, or app_name of the group", input.Echo(body.Key), input.Echo(r.Executors.Name), input.Echo(name))
	}
	endpoint.URL = body.Value
	endpoint.ID = target.ExecutorEndpointID(body.Value)
	return endpoint, endpoint.Validate()
}

// registerExecutor takes the heartbeat of an executor.
func (a *API) registerExecutor(r *request) (response, error) {
	endpoint, err := a.readRegistry(r)
	if err != nil {
		return response{}, err
	}
	app, group := r.PathValue("app"), r.PathValue("group")
	_, created, err := a.store.RegisterEndpoint(r.Context(), app, group, endpoint, time.Time{}, r.By())
	if err == nil && created {
		a.registrations.note(r.Context(), cameEndpoint, app, group, endpoint.ID)
	}
	return response{}, conflict(err, "give the group registration, with the networks and ports of the executors")
}

// deregisterExecutor takes the leave of an executor. One that is gone already may leave again.
func (a *API) deregisterExecutor(r *request) (response, error) {
	endpoint, err := a.readRegistry(r)
	if err != nil {
		return response{}, err
	}
	app, group := r.PathValue("app"), r.PathValue("group")
	err = a.store.DeregisterEndpoint(r.Context(), app, group, endpoint.ID, r.By())
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		err = nil
	case err == nil:
		a.registrations.note(r.Context(), leftEndpoint, app, group, endpoint.ID)
	}
	return response{}, err
}

// decodeOfExecutor reads the body of r. Executors of other versions may send members that are unknown here.
func (r *request) decodeOfExecutor(into any) error {
	text, problems := r.Text()
	if len(problems) > 0 {
		return problems
	}
	if err := json.Unmarshal(text, into); err != nil {
		return input.Refuse(input.CodeJSONSyntax, "the body is not the JSON of XXL-JOB's protocol: %s", input.Echo(fmt.Sprint(err)))
	}
	return nil
}
