package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// CarriedState gets the state that the runs of a job carry. Its revision is 0 if there was none yet.
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

// isState reports whether a response is a state: it has a value, perhaps null.
func isState(s run.CarriedState) bool { return len(s.State) > 0 }

// Objective gets how a job does by its objective; ErrNotFound if it has none.
func (c *Client) Objective(ctx context.Context, app, job string) (dispatcher.ObjectiveStatus, error) {
	return get(ctx, c, path("apps", app, "jobs", job, "objective"), func(s dispatcher.ObjectiveStatus) bool {
		return s.App == app && s.Job == job
	})
}

// Objectives lists how the jobs of an app do by their objectives, by name.
func (c *Client) Objectives(ctx context.Context, app string, page input.Page) (List[dispatcher.ObjectiveStatus], error) {
	return list[dispatcher.ObjectiveStatus](ctx, c, path("apps", app, "objectives")+params(dispatcher.RunQuery{Page: page}))
}
