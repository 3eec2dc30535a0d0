package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// List is one page of a list; Next is the cursor of the following page, empty after the last.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// Apps lists apps by name.
func (c *Client) Apps(ctx context.Context, page dispatcher.Page) (List[dispatcher.App], error) {
	return call[List[dispatcher.App]](ctx, c, http.MethodGet, path("apps")+params(dispatcher.RunQuery{Page: page}), nil, Condition{}, isList)
}

// PutApp creates or replaces an app.
func (c *Client) PutApp(ctx context.Context, app dispatcher.App, cond Condition) (dispatcher.App, error) {
	return call[dispatcher.App](ctx, c, http.MethodPut, path("apps", app.Name), app, cond, isApp(app.Name))
}

// App reads an app.
func (c *Client) App(ctx context.Context, name string) (dispatcher.App, error) {
	return call[dispatcher.App](ctx, c, http.MethodGet, path("apps", name), nil, Condition{}, isApp(name))
}

// PatchApp switches an app on or off and leaves the rest of it alone.
func (c *Client) PatchApp(ctx context.Context, name string, enabled bool, cond Condition) (dispatcher.App, error) {
	return call[dispatcher.App](ctx, c, http.MethodPatch, path("apps", name), map[string]bool{"enabled": enabled}, cond, isApp(name))
}

// DeleteApp deletes an app, which must have no jobs.
func (c *Client) DeleteApp(ctx context.Context, name string, cond Condition) error {
	_, err := call[struct{}](ctx, c, http.MethodDelete, path("apps", name), nil, cond, nil)
	return err
}

// Jobs lists the jobs of an app by name.
func (c *Client) Jobs(ctx context.Context, app string, page dispatcher.Page) (List[dispatcher.Job], error) {
	return call[List[dispatcher.Job]](ctx, c, http.MethodGet, path("apps", app, "jobs")+params(dispatcher.RunQuery{Page: page}), nil, Condition{}, isList)
}

// PutJob creates or replaces a job with its triggers.
func (c *Client) PutJob(ctx context.Context, job dispatcher.Job, cond Condition) (dispatcher.Job, error) {
	return call[dispatcher.Job](ctx, c, http.MethodPut, path("apps", job.App, "jobs", job.Name), job.ForWire(), cond, isJob(job.App, job.Name))
}

// Job reads a job.
func (c *Client) Job(ctx context.Context, app, name string) (dispatcher.Job, error) {
	return call[dispatcher.Job](ctx, c, http.MethodGet, path("apps", app, "jobs", name), nil, Condition{}, isJob(app, name))
}

// DeleteJob deletes a job; its ledger stays.
func (c *Client) DeleteJob(ctx context.Context, app, name string, cond Condition) error {
	_, err := call[struct{}](ctx, c, http.MethodDelete, path("apps", app, "jobs", name), nil, cond, nil)
	return err
}

// Calendars lists the calendars of an app by name.
func (c *Client) Calendars(ctx context.Context, app string, page dispatcher.Page) (List[dispatcher.Calendar], error) {
	return call[List[dispatcher.Calendar]](ctx, c, http.MethodGet, path("apps", app, "calendars")+params(dispatcher.RunQuery{Page: page}), nil, Condition{}, isList)
}

// PutCalendar creates or replaces a calendar; the triggers that name it get new fire times.
func (c *Client) PutCalendar(ctx context.Context, calendar dispatcher.Calendar, cond Condition) (dispatcher.Calendar, error) {
	return call(ctx, c, http.MethodPut, path("apps", calendar.App, "calendars", calendar.Name), calendar, cond, isCalendar(calendar.App, calendar.Name))
}

// Calendar reads a calendar.
func (c *Client) Calendar(ctx context.Context, app, name string) (dispatcher.Calendar, error) {
	return call(ctx, c, http.MethodGet, path("apps", app, "calendars", name), nil, Condition{}, isCalendar(app, name))
}

// DeleteCalendar deletes a calendar; ErrConflict while something refers to it.
func (c *Client) DeleteCalendar(ctx context.Context, app, name string, cond Condition) error {
	_, err := call[struct{}](ctx, c, http.MethodDelete, path("apps", app, "calendars", name), nil, cond, nil)
	return err
}

// PauseJob sets or lifts an operator's pause of a job, or of one trigger if trigger is not empty.
func (c *Client) PauseJob(ctx context.Context, app, job, trigger string, paused bool, cond Condition) (dispatcher.Job, error) {
	segments := []string{"apps", app, "jobs", job}
	if trigger != "" {
		segments = append(segments, "triggers", trigger)
	}
	verb := "resume"
	if paused {
		verb = "pause"
	}
	return call[dispatcher.Job](ctx, c, http.MethodPost, path(append(segments, verb)...), nil, cond, isJob(app, job))
}

// RunJob queues a run of a job now. It is not repeated by the client: each call is a run.
func (c *Client) RunJob(ctx context.Context, app, job string) (dispatcher.Run, error) {
	queued := func(run dispatcher.Run) bool { return run.App == app && run.Job == job && run.ID != "" }
	return call(ctx, c, http.MethodPost, path("apps", app, "jobs", job, "run"), nil, Condition{}, queued)
}

// Slots lists the slots of a job that are taken.
func (c *Client) Slots(ctx context.Context, app, job string) (List[dispatcher.Slot], error) {
	return call[List[dispatcher.Slot]](ctx, c, http.MethodGet, path("apps", app, "jobs", job, "slots"), nil, Condition{}, isList)
}

// Runs lists runs of an app, latest first; query holds the parameters of the route.
func (c *Client) Runs(ctx context.Context, query dispatcher.RunQuery) (List[dispatcher.Run], error) {
	return call[List[dispatcher.Run]](ctx, c, http.MethodGet, path("apps", query.App, "runs")+params(query), nil, Condition{}, isList)
}

// Run reads one run with its attempts.
func (c *Client) Run(ctx context.Context, id string) (dispatcher.Run, error) {
	return call[dispatcher.Run](ctx, c, http.MethodGet, path("runs", id), nil, Condition{}, isRun(id))
}

// CancelRun ends a live run; ErrConflict if it is finished.
func (c *Client) CancelRun(ctx context.Context, id string) (dispatcher.Run, error) {
	return call[dispatcher.Run](ctx, c, http.MethodPost, path("runs", id, "cancel"), nil, Condition{}, isRun(id))
}

// RetryRun queues a finished run again, as its next attempt; ErrConflict if it is not finished.
func (c *Client) RetryRun(ctx context.Context, id string) (dispatcher.Run, error) {
	return call[dispatcher.Run](ctx, c, http.MethodPost, path("runs", id, "retry"), nil, Condition{}, isRun(id))
}

// Misfires lists the misfire decisions of an app, latest first.
func (c *Client) Misfires(ctx context.Context, query dispatcher.RunQuery) (List[dispatcher.Misfire], error) {
	return call[List[dispatcher.Misfire]](ctx, c, http.MethodGet, path("apps", query.App, "misfires")+params(query), nil, Condition{}, isList)
}

// Explain tells what became of one instant of a trigger, and why.
func (c *Client) Explain(ctx context.Context, app, job, trigger string, at time.Time) (verify.Explanation, error) {
	query := "?at=" + url.QueryEscape(at.Format(time.RFC3339Nano))
	asked := func(e verify.Explanation) bool {
		return e.App == app && e.Job == job && e.Trigger == trigger && e.At.Equal(at.Truncate(time.Millisecond))
	}
	return call(ctx, c, http.MethodGet, path("apps", app, "jobs", job, "triggers", trigger, "explain")+query, nil, Condition{}, asked)
}

// Audit reconciles the ledger of an app with its schedules, a page of jobs at a time.
func (c *Client) Verify(ctx context.Context, query verify.Query) (verify.Page, error) {
	q := dispatcher.RunQuery{From: query.From, To: query.To, Page: query.Page}
	isPage := func(p verify.Page) bool { return p.Items != nil }
	return call(ctx, c, http.MethodGet, path("apps", query.App, "verify")+params(q), nil, Condition{}, isPage)
}

// Nodes lists the dispatcher nodes.
func (c *Client) Nodes(ctx context.Context) (List[dispatcher.Node], error) {
	return call[List[dispatcher.Node]](ctx, c, http.MethodGet, path("nodes"), nil, Condition{}, isList)
}

// SetNodeState pauses, resumes (NodeActive) or drains a node; ErrConflict if it is dead.
func (c *Client) SetNodeState(ctx context.Context, id dispatcher.NodeID, state dispatcher.NodeState) (dispatcher.Node, error) {
	verb, ok := map[dispatcher.NodeState]string{
		dispatcher.NodePaused: "pause", dispatcher.NodeActive: "resume", dispatcher.NodeDraining: "drain",
	}[state]
	if !ok {
		return dispatcher.Node{}, fmt.Errorf("set node to state %s: %w", state, dispatcher.ErrConflict)
	}
	isNode := func(node dispatcher.Node) bool { return node.ID == id }
	return call(ctx, c, http.MethodPost, path("nodes", id.String(), verb), nil, Condition{}, isNode)
}

// Rollback returns the rollback of the database that is not settled; ErrNotFound: there is none.
func (c *Client) Rollback(ctx context.Context) (dispatcher.Rollback, error) {
	return call(ctx, c, http.MethodGet, path("rollback"), nil, Condition{}, isRollback)
}

// ResolveRollback chooses what becomes of it; ErrConflict: there is none, or it was chosen already.
func (c *Client) ResolveRollback(ctx context.Context, choice dispatcher.RollbackChoice) (dispatcher.Rollback, error) {
	return call(ctx, c, http.MethodPost, path("rollback", string(choice)), nil, Condition{}, isRollback)
}

// Preview tells when a schedule would fire.
func (c *Client) Preview(ctx context.Context, asked dispatcher.PreviewRequest) (dispatcher.Preview, error) {
	isPreview := func(preview dispatcher.Preview) bool { return preview.FireTimes != nil }
	return call(ctx, c, http.MethodPost, path("schedules", "preview"), asked, Condition{}, isPreview)
}

func isRollback(rollback dispatcher.Rollback) bool { return !rollback.At.IsZero() }

// The checks by which a response is known to be about what was asked for.

func isApp(name string) func(dispatcher.App) bool {
	return func(app dispatcher.App) bool { return app.Name == name }
}

func isJob(app, name string) func(dispatcher.Job) bool {
	return func(job dispatcher.Job) bool { return job.App == app && job.Name == name }
}

func isCalendar(app, name string) func(dispatcher.Calendar) bool {
	return func(calendar dispatcher.Calendar) bool { return calendar.App == app && calendar.Name == name }
}

func isRun(id string) func(dispatcher.Run) bool {
	return func(run dispatcher.Run) bool { return run.ID == id }
}

// isList tells a list, which may be empty, from an object that holds none.
func isList[T any](list List[T]) bool { return list.Items != nil }

func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// params writes the query of q, with its question mark, or nothing.
func params(q dispatcher.RunQuery) string {
	values := url.Values{}
	set := func(key, value string) {
		if value != "" {
			values.Set(key, value)
		}
	}
	set("job", q.Job)
	set("trigger", q.Trigger)
	set("state", string(q.State))
	set("cursor", q.Page.Cursor)
	if q.Page.Limit > 0 {
		set("limit", strconv.Itoa(q.Page.Limit))
	}
	if !q.From.IsZero() {
		set("from", q.From.Format(time.RFC3339Nano))
	}
	if !q.To.IsZero() {
		set("to", q.To.Format(time.RFC3339Nano))
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}
