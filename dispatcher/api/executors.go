package api

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Executors of XXL-JOB call what its admin would serve, below the address of their group. They have no token of this
// installation but that of the group, and read from each response, whose status is 200, a code.
const (
	executorPath = "/xxl-job/{app}/{group}/api"

	executorTokenHeader = "XXL-JOB-ACCESS-TOKEN"
	executorSuccess     = 200
	executorFailure     = 500
	executorTimedOut    = 502 // the handler took longer than its time-out
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

// admitExecutor checks that the caller of r is an executor of the group in the path, and counts the request for its app. The
// error does not tell whether there is such a group.
func (a *API) admitExecutor(r *request) error {
	if err := a.checkCertificate(r); err != nil {
		a.noteUnauthorized(r)
		return err
	}
	app, name := r.PathValue("app"), r.PathValue("group")
	given := r.Header.Get(executorTokenHeader)
	hash := sha256.Sum256([]byte(app + "/" + name + "/" + given))
	if !a.limits.isKnown(hash) {
		if wait := a.limits.badTokens.Wait(r.client, a.limits.BadTokens, r.now); wait > 0 {
			return a.limited(r, limitedBad, "your address has made more than "+strconv.Itoa(a.limits.BadTokens)+
				" requests without a valid token in a minute", wait)
		}
	}
	group, err := a.groupOfExecutor(r, app, name, given)
	if err != nil {
		return err
	}
	if group == nil {
		r.bad = "access_token"
		a.noteUnauthorized(r)
		return input.Refuse(input.CodeUnauthorized, "the access token is wrong, or no group of kind xxl_job has this address")
	}
	a.limits.setKnown(hash)
	r.executors = group
	r.token = access.APIToken{Name: "executors of " + name, Apps: []string{app}}
	return a.checkCaller(r)
}

// groupOfExecutor returns the group of kind xxl_job that has a token; nil: there is none, or this node cannot read its token,
// of which only the log tells: a caller without the token must not learn that there is the group.
func (a *API) groupOfExecutor(r *request, app, name, token string) (*target.EndpointGroup, error) {
	if a.opts.Executors == nil || token == "" || !input.IsName(app) || !input.IsName(name) {
		return nil, nil
	}
	of, err := a.groupOf(r, app, name)
	if errors.Is(err, dispatcher.ErrNotFound) || err == nil && of.Group.Kind != target.GroupXXLJob {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	is, err := a.opts.Executors.IsAccessToken(r.Context(), of, token)
	if err != nil {
		if withheld, may := a.limits.lines.May("access token unread", r.now); may {
			a.log.WarnContext(r.Context(), "access token of a group cannot be read", "app", app, "group", name, "err", err,
				"lines_withheld", withheld)
		}
		return nil, nil
	}
	if !is {
		return nil, nil
	}
	return &of.Group.EndpointGroup, nil
}

// groupOf reads a group with its endpoints and the values of its secrets, for calls of its executors.
func (a *API) groupOf(r *request, app, name string) (of target.ExecutorCall, err error) {
	version, err := a.store.GroupVersion(r.Context(), app, name, time.Time{})
	if err != nil {
		return of, err
	}
	owner, err := a.store.App(r.Context(), app)
	if err == nil {
		err = owner.Err
	}
	if err != nil {
		return of, err
	}
	if owner.Bounds == nil {
		owner.Bounds = &target.Bounds{}
	}
	return target.ExecutorCall{
		App: app, Bounds: new(owner.Bounds.WithDefaults(app)), AWSExternalID: owner.AWSExternalID, Group: &version,
	}, nil
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
	name := r.executors.ExecutorName()
	switch {
	case body.Group != "EXECUTOR":
		return endpoint, input.Refuse(input.CodeEnum, "registryGroup %s is not EXECUTOR", input.Echo(body.Group))
	case body.Key != name:
		return endpoint, input.Refuse(input.CodeNameMismatch, "registryKey %s is not the AppName of group %s, %s; change the address of the "+
			"executor, or app_name of the group", input.Echo(body.Key), input.Echo(r.executors.Name), input.Echo(name))
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
	_, created, err := a.store.RegisterEndpoint(r.Context(), app, group, endpoint, time.Time{}, r.by())
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
	err = a.store.DeregisterEndpoint(r.Context(), app, group, endpoint.ID, r.by())
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
	text, problems := r.readBody()
	if len(problems) > 0 {
		return problems
	}
	if err := json.Unmarshal(text, into); err != nil {
		return input.Refuse(input.CodeJSONSyntax, "the body is not the JSON of XXL-JOB's protocol: %s", input.Echo(fmt.Sprint(err)))
	}
	return nil
}
