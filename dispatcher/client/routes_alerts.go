package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

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

// MuteAlert lets an alert notify nobody for a time.
func (c *Client) MuteAlert(ctx context.Context, app, name string, mute alert.Mute) (alert.Alert, error) {
	return post(ctx, c, path("apps", app, "alerts", name, "mute"), mute, isAlert(app, name))
}

// UnmuteAlert lifts the mute of an alert.
func (c *Client) UnmuteAlert(ctx context.Context, app, name string) (alert.Alert, error) {
	return post(ctx, c, path("apps", app, "alerts", name, "unmute"), nil, isAlert(app, name))
}

// AcknowledgeAlert acknowledges what holds for a job, and returns it; ErrConflict if nothing does.
func (c *Client) AcknowledgeAlert(
	ctx context.Context, app, name string, ack alert.Acknowledgement,
) ([]alert.State, error) {
	return c.changeStates(ctx, app, name, "acknowledge", ack)
}

// WithdrawAcknowledgement takes acknowledgements of a job back, of one condition or, if it is empty, of all.
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
	changed, err := send(ctx, c, request[List[alert.State]]{
		method: http.MethodPost, path: path("apps", app, "alerts", name, verb), body: body, is: is,
	})
	return changed.Items, err
}

// TestAlert queues a test notification, and returns the run that delivers it. Each call queues another.
func (c *Client) TestAlert(ctx context.Context, app, name string) (run.Run, error) {
	queued := func(run run.Run) bool { return run.App == app && run.ID != "" }
	return post(ctx, c, path("apps", app, "alerts", name, "test"), nil, queued)
}

// AlertStates lists what alerts of an app know of jobs, by alert, job and condition.
func (c *Client) AlertStates(ctx context.Context, query alert.StateQuery) (List[alert.State], error) {
	values := alertValues(query.Alert, query.Job)
	if query.Firing {
		values.Set("firing", "true")
	}
	addPage(values, time.Time{}, time.Time{}, query.Page)
	return list[alert.State](ctx, c, path("apps", query.App, "alert-states")+encoded(values))
}

// AlertEvents lists transitions of alerts of an app, latest first.
func (c *Client) AlertEvents(ctx context.Context, query alert.EventQuery) (List[alert.Event], error) {
	values := alertValues(query.Alert, query.Job)
	addPage(values, query.From, query.To, query.Page)
	return list[alert.Event](ctx, c, path("apps", query.App, "alert-events")+encoded(values))
}

func alertValues(alert, job string) url.Values {
	values := url.Values{}
	for key, value := range map[string]string{"alert": alert, "job": job} {
		if value != "" {
			values.Set(key, value)
		}
	}
	return values
}

func isAlert(app, name string) func(alert.Alert) bool {
	return func(alert alert.Alert) bool { return alert.App == app && alert.Name == name }
}
