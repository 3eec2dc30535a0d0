package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// List is one page of a list; Next is the cursor of the following page, empty after the last one.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// Apps lists apps by name.
func (c *Client) Apps(ctx context.Context, page input.Page) (List[access.App], error) {
	return list[access.App](ctx, c, path("apps")+params(dispatcher.RunQuery{Page: page}))
}

// PutApp creates or replaces an app.
func (c *Client) PutApp(ctx context.Context, app access.App, cond Condition) (access.App, error) {
	return send(ctx, c, request[access.App]{method: http.MethodPut, path: path("apps", app.Name), body: app, cond: cond, is: isApp(app.Name)})
}

// App gets an app.
func (c *Client) App(ctx context.Context, name string) (access.App, error) {
	return get(ctx, c, path("apps", name), isApp(name))
}

// PatchApp enables or disables an app and leaves the rest of it unchanged.
func (c *Client) PatchApp(ctx context.Context, name string, enabled bool, cond Condition) (access.App, error) {
	return send(ctx, c, request[access.App]{
		method: http.MethodPatch, path: path("apps", name), body: map[string]bool{"enabled": enabled},
		cond: cond, is: isApp(name),
	})
}

// SetBounds changes the bounds of an app and leaves the rest of it unchanged. The response lists
// the jobs that the change breaks. It needs the scope admin.
func (c *Client) SetBounds(ctx context.Context, name string, change func(*target.Bounds)) (access.App, error) {
	const tries = 5 // another client may change the app in between
	for try := 1; ; try++ {
		app, err := c.App(ctx, name)
		if err != nil {
			return app, err
		}
		if app.Bounds == nil {
			app.Bounds = &target.Bounds{}
		}
		change(app.Bounds)
		app, err = c.PutApp(ctx, app, Condition{Revision: app.Revision})
		if !errors.Is(err, dispatcher.ErrPrecondition) || try == tries {
			return app, err
		}
	}
}

// DeleteApp deletes an app; ErrConflict if it has jobs, calendars, groups or alerts.
func (c *Client) DeleteApp(ctx context.Context, name string, cond Condition) error {
	return c.remove(ctx, path("apps", name), cond)
}

// ExportApp returns a disabled app with everything that another installation needs. ErrConflict:
// the app is enabled or has runs in flight.
func (c *Client) ExportApp(ctx context.Context, name string) (access.Export, error) {
	return get(ctx, c, path("apps", name, "export"), func(e access.Export) bool { return e.App.Name == name })
}

// ImportApp creates an app from the JSON of an Export, which may contain values of secrets.
func (c *Client) ImportApp(ctx context.Context, name string, export json.RawMessage) (access.App, error) {
	return send(ctx, c, request[access.App]{
		method: http.MethodPost, path: path("apps", name, "import"), body: export, is: isApp(name),
	})
}

// Jobs lists the jobs of an app that have page.Labels, by name.
func (c *Client) Jobs(ctx context.Context, app string, page input.Page) (List[dispatcher.Job], error) {
	return list[dispatcher.Job](ctx, c, path("apps", app, "jobs")+params(dispatcher.RunQuery{Page: page}))
}

// PutJob creates or replaces a job with its triggers.
func (c *Client) PutJob(ctx context.Context, job dispatcher.Job, cond Condition) (dispatcher.Job, error) {
	return send(ctx, c, request[dispatcher.Job]{
		method: http.MethodPut, path: path("apps", job.App, "jobs", job.Name), body: target.ForWire(job), cond: cond,
		is: isJob(job.App, job.Name),
	})
}

// Job gets a job with its triggers.
func (c *Client) Job(ctx context.Context, app, name string) (dispatcher.Job, error) {
	return get(ctx, c, path("apps", app, "jobs", name), isJob(app, name))
}

// DeleteJob deletes a job; its runs and misfires stay.
func (c *Client) DeleteJob(ctx context.Context, app, name string, cond Condition) error {
	return c.remove(ctx, path("apps", app, "jobs", name), cond)
}

// RenameJob renames a job, triggers of it, or both, and returns it under its new name. It needs a condition.
// ErrConflict: another job or trigger has a new name, or the history of a deleted job with that name remains.
func (c *Client) RenameJob(
	ctx context.Context, app, job string, rename dispatcher.JobRename, cond Condition,
) (dispatcher.Job, error) {
	return send(ctx, c, request[dispatcher.Job]{
		method: http.MethodPost, path: path("apps", app, "jobs", job, "rename"), body: rename, cond: cond,
		is: isJob(app, cmp.Or(rename.Name, job)),
	})
}

// Calendars lists the calendars of an app by name.
func (c *Client) Calendars(ctx context.Context, app string, page input.Page) (List[dispatcher.Calendar], error) {
	return list[dispatcher.Calendar](ctx, c, path("apps", app, "calendars")+params(dispatcher.RunQuery{Page: page}))
}

// PutCalendar creates or replaces a calendar. Triggers that use it get new fire times.
func (c *Client) PutCalendar(
	ctx context.Context, calendar dispatcher.Calendar, cond Condition,
) (dispatcher.Calendar, error) {
	return send(ctx, c, request[dispatcher.Calendar]{
		method: http.MethodPut, path: path("apps", calendar.App, "calendars", calendar.Name), body: calendar, cond: cond,
		is: isCalendar(calendar.App, calendar.Name),
	})
}

// Calendar gets a calendar.
func (c *Client) Calendar(ctx context.Context, app, name string) (dispatcher.Calendar, error) {
	return get(ctx, c, path("apps", app, "calendars", name), isCalendar(app, name))
}

// DeleteCalendar deletes a calendar; ErrConflict while a trigger or another calendar refers to it.
func (c *Client) DeleteCalendar(ctx context.Context, app, name string, cond Condition) error {
	return c.remove(ctx, path("apps", app, "calendars", name), cond)
}

// DeleteCalendarWhenUnused deletes a calendar. If the calendar is in use, waiting is true, and the
// change that removes its last use deletes it.
func (c *Client) DeleteCalendarWhenUnused(ctx context.Context, app, name string, cond Condition) (waiting bool, err error) {
	marked, err := send(ctx, c, request[dispatcher.Calendar]{
		method: http.MethodDelete, path: path("apps", app, "calendars", name) + "?when_unused=true", cond: cond, is: isCalendar(app, name),
	})
	return err == nil && marked.Name != "", err
}

// Pausable names a job, or one of its triggers if Trigger is not empty.
type Pausable struct{ App, Job, Trigger string }

// String is APP/JOB or APP/JOB/TRIGGER.
func (p Pausable) String() string {
	if p.Trigger == "" {
		return p.App + "/" + p.Job
	}
	return dispatcher.Identity(p.App, p.Job, p.Trigger)
}

// PauseJob pauses a job or a trigger.
func (c *Client) PauseJob(ctx context.Context, of Pausable, why dispatcher.PauseRequest, cond Condition) (dispatcher.Job, error) {
	return send(ctx, c, request[dispatcher.Job]{
		method: http.MethodPost, path: of.to("pause"), body: why, cond: cond, is: isJob(of.App, of.Job),
	})
}

// ResumeJob ends the pause of a job or a trigger.
func (c *Client) ResumeJob(ctx context.Context, of Pausable, cond Condition) (dispatcher.Job, error) {
	return send(ctx, c, request[dispatcher.Job]{method: http.MethodPost, path: of.to("resume"), cond: cond, is: isJob(of.App, of.Job)})
}

func (p Pausable) to(verb string) string {
	if p.Trigger == "" {
		return path("apps", p.App, "jobs", p.Job, verb)
	}
	return path("apps", p.App, "jobs", p.Job, "triggers", p.Trigger, verb)
}

// RunJob queues a run of a job now. Each call queues another run; the client does not retry it.
func (c *Client) RunJob(ctx context.Context, app, job string) (run.Run, error) {
	return c.RunJobWith(ctx, app, job, dispatcher.RunRequest{})
}

// RunJobWith is RunJob with a payload in place of the job's.
func (c *Client) RunJobWith(ctx context.Context, app, job string, asked dispatcher.RunRequest) (run.Run, error) {
	queued := func(run run.Run) bool { return run.App == app && run.Job == job && run.ID != "" }
	return post(ctx, c, path("apps", app, "jobs", job, "run"), asked, queued)
}

// Slots lists the runs that hold a concurrency slot of a job.
func (c *Client) Slots(ctx context.Context, app, job string) (List[dispatcher.Slot], error) {
	return list[dispatcher.Slot](ctx, c, path("apps", app, "jobs", job, "slots"))
}

// ReleaseSlot frees the slots of a run of a job, and returns the run. ErrConflict: it has not ended, and release does not
// cancel it, or it is not clear which run is meant.
func (c *Client) ReleaseSlot(ctx context.Context, app, job string, release run.SlotRelease) (run.Run, error) {
	released := func(r run.Run) bool { return r.App == app && r.Job == job }
	return post(ctx, c, path("apps", app, "jobs", job, "slots", "release"), release, released)
}

// Runs lists runs of an app, latest scheduled time first.
func (c *Client) Runs(ctx context.Context, query dispatcher.RunQuery) (List[run.Run], error) {
	return list[run.Run](ctx, c, path("apps", query.App, "runs")+params(query))
}

// SearchRuns searches runs of query.Apps, or else of all apps that the token may see. A page may be empty although more
// pages follow.
func (c *Client) SearchRuns(ctx context.Context, query dispatcher.RunSearch) (List[run.Run], error) {
	if len(query.Apps) > 1 {
		return List[run.Run]{}, errOneApp
	}
	filters := map[string]string{"app": strings.Join(query.Apps, ""), "job": query.Job, "trigger": query.Trigger,
		"state": string(query.State), "kind": string(query.Kind), "class": string(query.Class), "error": query.Error, "id": query.ID}
	if query.Node != 0 {
		filters["node"] = query.Node.String()
	}
	return list[run.Run](ctx, c, path("runs")+parameters(filters, query.From, query.To, query.Page))
}

// Run gets one run with its attempts.
func (c *Client) Run(ctx context.Context, id string) (run.Run, error) {
	return get(ctx, c, path("runs", id), isRun(id))
}

// RunLog gets the log that an XXL-JOB executor keeps of an attempt, starting at line from, counted
// from 1. Attempt 0 is the latest.
func (c *Client) RunLog(ctx context.Context, id string, attempt, from int) (target.ExecutorLog, error) {
	query := url.Values{"from_line": {strconv.Itoa(from)}}
	if attempt != 0 {
		query.Set("attempt", strconv.Itoa(attempt))
	}
	return get(ctx, c, path("runs", id, "log")+"?"+query.Encode(), func(log target.ExecutorLog) bool { return log.Run == id })
}

// CancelRun cancels a live run; ErrConflict if it is finished.
func (c *Client) CancelRun(ctx context.Context, id string) (run.Run, error) {
	return post(ctx, c, path("runs", id, "cancel"), nil, isRun(id))
}

// CompleteRun ends the attempt of a run that waits for its callback as succeeded. ErrConflict: the
// run does not wait for a callback.
func (c *Client) CompleteRun(ctx context.Context, id, message string) (run.CallbackReply, error) {
	return c.endRun(ctx, id, "complete", message)
}

// FailRun is CompleteRun, but ends the attempt as failed.
func (c *Client) FailRun(ctx context.Context, id, message string) (run.CallbackReply, error) {
	return c.endRun(ctx, id, "fail", message)
}

func (c *Client) endRun(ctx context.Context, id, how, message string) (run.CallbackReply, error) {
	body := map[string]string{"message": message}
	return post(ctx, c, path("runs", id, how), body, func(r run.CallbackReply) bool { return r.Run == id })
}

// RetryRun queues a finished run again as its next attempt; ErrConflict if it is not finished.
func (c *Client) RetryRun(ctx context.Context, id string) (run.Run, error) {
	return post(ctx, c, path("runs", id, "retry"), nil, isRun(id))
}

// DeadLetters lists runs of an app that failed for good, latest scheduled time first.
func (c *Client) DeadLetters(ctx context.Context, query repeat.DeadLetterQuery) (List[run.Run], error) {
	filters := map[string]string{"job": query.Job, "class": string(query.Class), "state": string(query.State)}
	return list[run.Run](ctx, c, path("apps", query.App, "dead-letters")+parameters(filters, query.From, query.To, query.Page))
}

// CountDeadLetters counts the runs that a replay would retry.
func (c *Client) CountDeadLetters(ctx context.Context, app string, replay repeat.DeadLetterReplay) (repeat.DeadLetterCount, error) {
	replay.DryRun = true
	counted := func(n repeat.DeadLetterCount) bool { return n.Count >= 0 }
	return post(ctx, c, path("apps", app, "dead-letters", "replay"), replay, counted)
}

// ReplayDeadLetters retries a batch of dead letters. If the response has Next, continue with it as
// the cursor of another call. The client does not retry a call.
func (c *Client) ReplayDeadLetters(ctx context.Context, app string, replay repeat.DeadLetterReplay) (repeat.Replayed, error) {
	replay.DryRun = false
	did := func(r repeat.Replayed) bool { return r.Replayed >= 0 }
	return post(ctx, c, path("apps", app, "dead-letters", "replay"), replay, did)
}

// Misfires lists the misfire decisions of an app, latest first.
func (c *Client) Misfires(ctx context.Context, query dispatcher.RunQuery) (List[dispatcher.Misfire], error) {
	return list[dispatcher.Misfire](ctx, c, path("apps", query.App, "misfires")+params(query))
}

// Explain reports the outcome of one scheduled time of a trigger, and why.
func (c *Client) Explain(ctx context.Context, app, job, trigger string, at time.Time) (verify.Explanation, error) {
	query := "?at=" + url.QueryEscape(at.Format(time.RFC3339Nano))
	requested := func(e verify.Explanation) bool { // a whole second stands for the fire within it
		return e.App == app && e.Job == job && e.Trigger == trigger && e.At.Truncate(time.Second).Equal(at.Truncate(time.Second))
	}
	return get(ctx, c, path("apps", app, "jobs", job, "triggers", trigger, "explain")+query, requested)
}

// Verify compares the ledger of an app with its schedules, one page of jobs at a time.
func (c *Client) Verify(ctx context.Context, query verify.Query) (verify.Page, error) {
	q := dispatcher.RunQuery{From: query.From, To: query.To, Page: query.Page}
	isPage := func(p verify.Page) bool { return p.Items != nil }
	return get(ctx, c, path("apps", query.App, "verify")+params(q), isPage)
}

// Audit lists entries of the audit log, of one app or of all.
func (c *Client) Audit(ctx context.Context, query access.AuditQuery) (List[access.AuditEntry], error) {
	if len(query.Apps) > 1 {
		return List[access.AuditEntry]{}, errors.New("a request asks for the audit log of one app, or of all that the token may see")
	}
	filters := map[string]string{
		"app": strings.Join(query.Apps, ""), "actor": query.Actor, "action": query.Action, "subject": query.Subject,
	}
	if query.Refused != nil {
		filters["refused"] = strconv.FormatBool(*query.Refused)
	}
	if query.OldestFirst {
		filters["order"] = "oldest"
	}
	return list[access.AuditEntry](ctx, c, path("audit")+parameters(filters, query.From, query.To, query.Page))
}

// Nodes lists the dispatcher nodes.
func (c *Client) Nodes(ctx context.Context) (List[dispatcher.Node], error) {
	return list[dispatcher.Node](ctx, c, path("nodes"))
}

// SetNodeState pauses, resumes (NodeActive) or drains a node; ErrConflict if it is dead.
func (c *Client) SetNodeState(
	ctx context.Context, id run.NodeID, state dispatcher.NodeState,
) (dispatcher.Node, error) {
	verb, ok := map[dispatcher.NodeState]string{
		dispatcher.NodePaused: "pause", dispatcher.NodeActive: "resume", dispatcher.NodeDraining: "drain",
	}[state]
	if !ok {
		return dispatcher.Node{}, fmt.Errorf("set node to state %s: %w", state, dispatcher.ErrConflict)
	}
	isNode := func(node dispatcher.Node) bool { return node.ID == id }
	return post(ctx, c, path("nodes", id.String(), verb), nil, isNode)
}

// Tokens lists API tokens by name, without their secrets.
func (c *Client) Tokens(ctx context.Context, page input.Page) (List[access.APIToken], error) {
	return list[access.APIToken](ctx, c, path("tokens")+params(dispatcher.RunQuery{Page: page}))
}

// OwnToken gets the client's own token, without its secret.
func (c *Client) OwnToken(ctx context.Context) (access.APIToken, error) {
	return get(ctx, c, path("token"), func(token access.APIToken) bool { return token.ID != "" })
}

// Token gets a token, without its secret.
func (c *Client) Token(ctx context.Context, name string) (access.APIToken, error) {
	return get(ctx, c, path("tokens", name), func(token access.APIToken) bool { return token.Name == name })
}

// PutToken creates a token and returns it with its secret, or changes a token and keeps its secret.
func (c *Client) PutToken(ctx context.Context, token access.APIToken, cond Condition) (access.IssuedToken, error) {
	return send(ctx, c, request[access.IssuedToken]{
		method: http.MethodPut, path: path("tokens", token.Name), body: token, cond: cond, is: isToken(token.Name),
	})
}

// RotateToken gives a token a new secret. ErrConflict: it has expired, and the rotation sets no later expiry.
func (c *Client) RotateToken(
	ctx context.Context, name string, rotation access.TokenRotation,
) (access.IssuedToken, error) {
	return post(ctx, c, path("tokens", name, "rotate"), rotation, isToken(name))
}

// DeleteToken revokes a token. ErrConflict: it is the last one that can manage tokens.
func (c *Client) DeleteToken(ctx context.Context, name string, cond Condition) error {
	return c.remove(ctx, path("tokens", name), cond)
}

// Rollback gets the unresolved rollback of the database, or ErrNotFound.
func (c *Client) Rollback(ctx context.Context) (dispatcher.Rollback, error) {
	return get(ctx, c, path("rollback"), isRollback)
}

// ResolveRollback chooses how to resolve the rollback. ErrConflict: no rollback is open, or the
// choice was already made.
func (c *Client) ResolveRollback(ctx context.Context, choice dispatcher.RollbackChoice) (dispatcher.Rollback, error) {
	return post(ctx, c, path("rollback", string(choice)), nil, isRollback)
}

// Preview returns the next fire times of a schedule.
func (c *Client) Preview(ctx context.Context, asked view.PreviewRequest) (view.Preview, error) {
	isPreview := func(preview view.Preview) bool { return preview.FireTimes != nil }
	return post(ctx, c, path("schedules", "preview"), asked, isPreview)
}

func get[T any](ctx context.Context, c *Client, at string, is func(T) bool) (T, error) {
	return send(ctx, c, request[T]{method: http.MethodGet, path: at, is: is})
}

// list gets a page, which may be empty; an object without items is an error.
func list[T any](ctx context.Context, c *Client, at string) (List[T], error) {
	return get(ctx, c, at, func(l List[T]) bool { return l.Items != nil })
}

func post[T any](ctx context.Context, c *Client, at string, body any, is func(T) bool) (T, error) {
	return send(ctx, c, request[T]{method: http.MethodPost, path: at, body: body, is: is})
}

func (c *Client) remove(ctx context.Context, at string, cond Condition) error {
	unfinished := func(struct{}) bool { return false }
	_, err := send(ctx, c, request[struct{}]{method: http.MethodDelete, path: at, cond: cond, is: unfinished})
	return err
}

// Checks that a response is about the requested object.

func isApp(name string) func(access.App) bool {
	return func(app access.App) bool { return app.Name == name }
}

func isJob(app, name string) func(dispatcher.Job) bool {
	return func(job dispatcher.Job) bool { return job.App == app && job.Name == name }
}

func isCalendar(app, name string) func(dispatcher.Calendar) bool {
	return func(calendar dispatcher.Calendar) bool { return calendar.App == app && calendar.Name == name }
}

func isToken(name string) func(access.IssuedToken) bool {
	return func(token access.IssuedToken) bool { return token.Name == name }
}

func isRun(id string) func(run.Run) bool {
	return func(run run.Run) bool { return run.ID == id }
}

func isRollback(rollback dispatcher.Rollback) bool { return !rollback.At.IsZero() }

func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// params returns the query string of q with its question mark, or "".
func params(q dispatcher.RunQuery) string {
	filters := map[string]string{"job": q.Job, "trigger": q.Trigger, "state": string(q.State), "parent": q.Parent}
	return parameters(filters, q.From, q.To, q.Page)
}

// parameters returns a query string with its question mark: the filters that are not empty, the bounds in time, and the
// page. It returns "" for nothing of that.
func parameters(filters map[string]string, from, to time.Time, page input.Page) string {
	values := url.Values{}
	for key, value := range filters {
		if value != "" {
			values.Set(key, value)
		}
	}
	for _, pair := range page.Labels.Pairs() {
		values.Add("label", pair)
	}
	if page.Origin != "" {
		values.Set("origin", page.Origin)
	}
	if page.Cursor != "" {
		values.Set("cursor", page.Cursor)
	}
	if page.Limit > 0 {
		values.Set("limit", strconv.Itoa(page.Limit))
	}
	if !from.IsZero() {
		values.Set("from", from.Format(time.RFC3339Nano))
	}
	if !to.IsZero() {
		values.Set("to", to.Format(time.RFC3339Nano))
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}
