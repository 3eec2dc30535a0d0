package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Groups lists the endpoint groups of an app by name.
func (c *Client) Groups(ctx context.Context, app string, page input.Page) (List[target.EndpointGroup], error) {
	return list[target.EndpointGroup](ctx, c, path("apps", app, "groups")+params(dispatcher.RunQuery{Page: page}))
}

// PutGroup creates or replaces an endpoint group.
func (c *Client) PutGroup(ctx context.Context, group target.EndpointGroup, cond Condition) (target.EndpointGroup, error) {
	return send(ctx, c, request[target.EndpointGroup]{
		method: http.MethodPut, path: path("apps", group.App, "groups", group.Name), body: target.ForWire(group), cond: cond,
		is: isGroup(group.App, group.Name),
	})
}

// Group gets an endpoint group.
func (c *Client) Group(ctx context.Context, app, name string) (target.EndpointGroup, error) {
	return get(ctx, c, path("apps", app, "groups", name), isGroup(app, name))
}

// DeleteGroup deletes an endpoint group with its endpoints; ErrConflict while it is the target of a job.
func (c *Client) DeleteGroup(ctx context.Context, app, name string, cond Condition) error {
	return c.remove(ctx, path("apps", app, "groups", name), cond)
}

// DeleteGroupWhenUnused deletes an endpoint group. If it is the target of a job, waiting is true, and the change that
// removes its last use deletes it.
func (c *Client) DeleteGroupWhenUnused(ctx context.Context, app, name string, cond Condition) (waiting bool, err error) {
	marked, err := send(ctx, c, request[target.EndpointGroup]{
		method: http.MethodDelete, path: path("apps", app, "groups", name) + "?when_unused=true", cond: cond, is: isGroup(app, name),
	})
	return err == nil && marked.Name != "", err
}

// GroupStatus gets the status of an endpoint group and its endpoints, as the responding node sees them.
func (c *Client) GroupStatus(ctx context.Context, app, name string) (target.GroupStatus, error) {
	return get(ctx, c, path("apps", app, "groups", name, "status"), func(s target.GroupStatus) bool { return s.Endpoints != nil })
}

// Endpoints lists the endpoints that a group has now, by id.
func (c *Client) Endpoints(ctx context.Context, app, group string, page input.Page) (List[target.Endpoint], error) {
	return list[target.Endpoint](ctx, c, path("apps", app, "groups", group, "endpoints")+params(dispatcher.RunQuery{Page: page}))
}

// RegisterEndpoint adds an endpoint to a group, or renews it until its ExpiresAt. ErrConflict: the
// group accepts no registrations, or declares an endpoint with that id.
func (c *Client) RegisterEndpoint(
	ctx context.Context, app, group, id string, endpoint target.StaticEndpoint,
) (target.Endpoint, error) {
	return send(ctx, c, request[target.Endpoint]{
		method: http.MethodPut, path: path("apps", app, "groups", group, "endpoints", id), body: endpoint, is: isEndpoint(id),
	})
}

// DeregisterEndpoint removes an endpoint that registered itself, or returns ErrNotFound.
func (c *Client) DeregisterEndpoint(ctx context.Context, app, group, id string) error {
	return c.remove(ctx, path("apps", app, "groups", group, "endpoints", id), Condition{})
}

// DrainEndpoint sets an operator's drain of an endpoint, or lifts it.
func (c *Client) DrainEndpoint(ctx context.Context, app, group, id string, draining bool) (target.Endpoint, error) {
	verb := "resume"
	if draining {
		verb = "drain"
	}
	return post(ctx, c, path("apps", app, "groups", group, "endpoints", id, verb), nil, isEndpoint(id))
}

func isGroup(app, name string) func(target.EndpointGroup) bool {
	return func(group target.EndpointGroup) bool { return group.App == app && group.Name == name }
}

func isEndpoint(id string) func(target.Endpoint) bool {
	return func(endpoint target.Endpoint) bool { return endpoint.ID == id }
}

// Alerts lists the alerts of an app by name.
func (c *Client) Alerts(ctx context.Context, app string, page input.Page) (List[alert.Alert], error) {
	return list[alert.Alert](ctx, c, path("apps", app, "alerts")+params(dispatcher.RunQuery{Page: page}))
}

// PutAlert creates or replaces an alert.
func (c *Client) PutAlert(ctx context.Context, one alert.Alert, cond Condition) (alert.Alert, error) {
	return send(ctx, c, request[alert.Alert]{
		method: http.MethodPut, path: path("apps", one.App, "alerts", one.Name), body: target.ForWire(one), cond: cond,
		is: isAlert(one.App, one.Name),
	})
}

// Alert gets an alert.
func (c *Client) Alert(ctx context.Context, app, name string) (alert.Alert, error) {
	return get(ctx, c, path("apps", app, "alerts", name), isAlert(app, name))
}

// DeleteAlert deletes an alert; its events stay.
func (c *Client) DeleteAlert(ctx context.Context, app, name string, cond Condition) error {
	return c.remove(ctx, path("apps", app, "alerts", name), cond)
}

// MuteAlert turns off the notifications of an alert for a time.
func (c *Client) MuteAlert(ctx context.Context, app, name string, mute alert.Mute) (alert.Alert, error) {
	return post(ctx, c, path("apps", app, "alerts", name, "mute"), mute, isAlert(app, name))
}

// UnmuteAlert lifts the mute of an alert.
func (c *Client) UnmuteAlert(ctx context.Context, app, name string) (alert.Alert, error) {
	return post(ctx, c, path("apps", app, "alerts", name, "unmute"), nil, isAlert(app, name))
}

// AcknowledgeAlert acknowledges the active conditions of a job, and returns them; ErrConflict without any.
func (c *Client) AcknowledgeAlert(
	ctx context.Context, app, name string, ack alert.Acknowledgement,
) ([]alert.State, error) {
	return c.changeStates(ctx, app, name, "acknowledge", ack)
}

// WithdrawAcknowledgement withdraws acknowledgements of a job, of one condition or, if it is empty, of all.
func (c *Client) WithdrawAcknowledgement(
	ctx context.Context, app, name, job string, condition target.AlertCondition,
) ([]alert.State, error) {
	body := map[string]string{"job": job}
	if condition != "" {
		body["condition"] = string(condition)
	}
	return c.changeStates(ctx, app, name, "unacknowledge", body)
}

func (c *Client) changeStates(ctx context.Context, app, name, verb string, body any) ([]alert.State, error) {
	is := func(l List[alert.State]) bool { return l.Items != nil }
	changed, err := post(ctx, c, path("apps", app, "alerts", name, verb), body, is)
	return changed.Items, err
}

// TestAlert queues a test notification, and returns the run that delivers it. Each call queues another one.
func (c *Client) TestAlert(ctx context.Context, app, name string) (run.Run, error) {
	queued := func(run run.Run) bool { return run.App == app && run.ID != "" }
	return post(ctx, c, path("apps", app, "alerts", name, "test"), nil, queued)
}

// AlertStates lists the states of an app's alerts, by alert, job and condition.
func (c *Client) AlertStates(ctx context.Context, query alert.StateQuery) (List[alert.State], error) {
	filters := map[string]string{"alert": query.Alert, "job": query.Job}
	if query.Firing {
		filters["firing"] = "true"
	}
	return list[alert.State](ctx, c, path("apps", query.App, "alert-states")+parameters(filters, time.Time{}, time.Time{}, query.Page))
}

// AlertEvents lists transitions of alerts of an app, latest first.
func (c *Client) AlertEvents(ctx context.Context, query alert.EventQuery) (List[alert.Event], error) {
	filters := map[string]string{"alert": query.Alert, "job": query.Job}
	return list[alert.Event](ctx, c, path("apps", query.App, "alert-events")+parameters(filters, query.From, query.To, query.Page))
}

func isAlert(app, name string) func(alert.Alert) bool {
	return func(alert alert.Alert) bool { return alert.App == app && alert.Name == name }
}

// CarriedState gets the state that the runs of a job carry. Its revision is 0 if none was ever set.
func (c *Client) CarriedState(ctx context.Context, app, job string) (run.CarriedState, error) {
	return get(ctx, c, path("apps", app, "jobs", job, "state"), isState)
}

// SetCarriedState sets the state that the runs of a job carry.
func (c *Client) SetCarriedState(ctx context.Context, app, job string, state json.RawMessage, cond Condition) (
	run.CarriedState, error,
) {
	return send(ctx, c, request[run.CarriedState]{
		method: http.MethodPut, path: path("apps", app, "jobs", job, "state"), body: run.CarriedState{State: state}, cond: cond, is: isState,
	})
}

// ClearCarriedState clears the state that the runs of a job carry.
func (c *Client) ClearCarriedState(ctx context.Context, app, job string, cond Condition) error {
	return c.remove(ctx, path("apps", app, "jobs", job, "state"), cond)
}

// isState reports whether a response is a state: it has a value, which may be null.
func isState(s run.CarriedState) bool { return len(s.State) > 0 }

// Objective gets the status of a job's objective, or ErrNotFound.
func (c *Client) Objective(ctx context.Context, app, job string) (dispatcher.ObjectiveStatus, error) {
	return get(ctx, c, path("apps", app, "jobs", job, "objective"), func(s dispatcher.ObjectiveStatus) bool {
		return s.App == app && s.Job == job
	})
}

// Objectives lists the status of the objectives of jobs by app and name, in one app or in all that the token may see.
func (c *Client) Objectives(ctx context.Context, app string, page input.Page) (List[dispatcher.ObjectiveStatus], error) {
	query := parameters(map[string]string{"app": app}, time.Time{}, time.Time{}, page)
	return list[dispatcher.ObjectiveStatus](ctx, c, path("objectives")+query)
}

// AppPauses lists the current pauses of an app, oldest first. Jobs show the pauses of single jobs and triggers.
func (c *Client) AppPauses(ctx context.Context, app string) (List[dispatcher.AppPause], error) {
	return list[dispatcher.AppPause](ctx, c, path("apps", app, "pauses"))
}

// PauseApp pauses an app, or its jobs with these labels, including jobs that are added later. Each
// call adds another pause; the client does not retry it.
func (c *Client) PauseApp(ctx context.Context, app string, asked dispatcher.AppPauseRequest) (dispatcher.AppPause, error) {
	added := func(pause dispatcher.AppPause) bool { return pause.App == app && pause.ID != "" }
	return post(ctx, c, path("apps", app, "pauses"), asked, added)
}

// EndAppPause ends a pause of an app; ErrNotFound if it has already ended.
func (c *Client) EndAppPause(ctx context.Context, app, id string) error {
	return c.remove(ctx, path("apps", app, "pauses", id), Condition{})
}
