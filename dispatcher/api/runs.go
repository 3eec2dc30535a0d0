package api

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// listRuns lists runs, latest scheduled time first.
func (a *API) listRuns(r *request) (response, error) {
	query, err := r.runQuery()
	if err != nil {
		return response{}, err
	}
	query.Parent = r.URL.Query().Get("parent")
	key := func(run run.Run) string { return run.ID }
	return paged(query.Page, key, func(page input.Page) ([]run.Run, error) {
		query.Page = page
		return a.store.Runs(r.Context(), query)
	})
}

// searchRuns searches runs of all apps, latest scheduled time first. A token that is bound to apps gets the runs of those
// apps. error is a part of the error, and id a webhook-id or the id of a trace. class and error select runs that failed
// or are live, unless state is given. A page examines a bounded number of runs, so it may contain fewer runs than you
// asked for, or none; continue as long as the response has next.
func (a *API) searchRuns(r *request) (response, error) {
	list, err := r.runQuery()
	if err != nil {
		return response{}, err
	}
	values, problems := r.URL.Query(), input.Problems{}
	query := dispatcher.RunSearch{Job: list.Job, Trigger: list.Trigger, State: list.State, Kind: run.Kind(values.Get("kind")),
		Class: run.Class(values.Get("class")), Error: values.Get("error"), ID: values.Get("id"), From: list.From, To: list.To, Page: list.Page}
	if values.Has("kind") {
		input.CheckEnum(&problems, "/kind", "kind", query.Kind, run.Kinds())
	}
	repeat.CheckClass(&problems, "/class", query.Class)
	if values.Has("node") {
		if query.Node, err = run.ParseNodeID(values.Get("node")); err != nil {
			problems.Add("/node", input.CodeQuerySyntax, "node %s is not an id of 16 hexadecimal digits, such as carillon node list shows",
				input.Echo(values.Get("node")))
		}
	}
	r.checkFilters(&problems, "error", "id")
	query.Page.Labels, err = r.labels()
	problems.AddError("", err)
	if query.Apps, err = a.overviewApps(r, &problems); err != nil {
		return response{}, err
	}
	found, next, err := a.store.SearchRuns(r.Context(), query)
	body := newList(found)
	body.Next = next
	return response{body: body}, err
}

// listMisfires lists misfire decisions, latest first.
func (a *API) listMisfires(r *request) (response, error) {
	query, err := r.runQuery()
	if err != nil {
		return response{}, err
	}
	return paged(query.Page, dispatcher.Misfire.Cursor, func(page input.Page) ([]dispatcher.Misfire, error) {
		query.Page = page
		found, err := a.store.Misfires(r.Context(), query)
		if err != nil {
			return nil, err
		}
		return found, verify.AddHolds(r.Context(), a.store, found)
	})
}

// getRun gets a run with its attempts.
func (a *API) getRun(r *request) (response, error) {
	run, err := a.visibleRun(r)
	return response{body: run}, err
}

// visibleRun reads the run in the path. The error is the same for an unknown run, a malformed id and a run of an app
// that the token does not permit.
func (a *API) visibleRun(r *request) (run.Run, error) {
	id := r.PathValue("run")
	missing := dispatcher.NotFound("run", id)
	if !run.IsID(id) {
		return run.Run{}, missing
	}
	one, err := a.store.Run(r.Context(), id)
	if errors.Is(err, dispatcher.ErrNotFound) || err == nil && !r.MaySee(one.App) {
		return run.Run{}, missing
	}
	r.App = one.App
	return r.shown(one), err
}

// shown returns the part of a run that the token of r may see.
func (r *request) shown(run run.Run) run.Run {
	if r.IsBound() {
		return run.WithoutAddresses()
	}
	return run
}

// cancelRun cancels a live run; 409 if it is finished.
func (a *API) cancelRun(r *request) (response, error) {
	var accepted []run.Run
	res, err := a.changeRun(r, a.store.CancelRun, func(run run.Run) (err error) {
		accepted, err = a.acceptedRuns(r, run)
		return err
	}, "its outcome is final; retry it to run it again")
	if err == nil && len(accepted) > 0 {
		a.stopExecutors(r, accepted)
	}
	return res, err
}

// retryRun retries a finished run as its next attempt; 409 if it is not finished, or if its app is disabled
// or suspended.
func (a *API) retryRun(r *request) (response, error) {
	return a.changeRun(r, a.store.RetryRun, func(one run.Run) error {
		if one.State == run.Queued || one.State == run.Claimed {
			return nil // the store refuses it, with a better reason
		}
		return a.checkEnabled(r, one.App)
	}, "wait until it ends, or cancel it first")
}

// changeRun writes to the run in the path, unless check, which may be nil, refuses it. remedy is the advice if the
// state of the run does not permit the change.
func (a *API) changeRun(r *request, write func(context.Context, string, input.Change) (run.Run, error),
	check func(run.Run) error, remedy string,
) (response, error) {
	run, err := a.visibleRun(r)
	if err != nil {
		return response{}, err
	}
	if check != nil {
		if err := check(run); err != nil {
			return response{}, err
		}
	}
	run, err = write(r.Context(), run.ID, r.By())
	return response{body: r.shown(run)}, conflict(err, remedy)
}

// checkEnabled refuses to queue a run that no node would claim, because its app is disabled. The store reports an app
// that does not exist.
func (a *API) checkEnabled(r *request, name string) error {
	app, err := a.store.App(r.Context(), name)
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		return nil
	case err != nil:
		return err
	case app.Bounds.Suspended:
		return input.Refuse(input.CodeBoundSuspended, "%s, so no node would claim the run", app.SuspendedMessage())
	case app.Enabled:
		return nil
	}
	return input.Refuse(input.CodeAppDisabled, "app %s is disabled, so no node would claim the run; "+
		"enable it first, in Terraform or with PATCH /v1/apps/%s", input.Echo(name), name)
}

// getRunRequest shows the request of a run as its job would send it now; 409 if its job is deleted. Every secret is
// masked, and so are values that were made with one. No secret is read, and nothing is sent.
func (a *API) getRunRequest(r *request) (response, error) {
	run, err := a.visibleRun(r)
	if err != nil {
		return response{}, err
	}
	job, err := a.jobOfRun(r.Context(), run)
	if err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
		return response{}, err
	}
	if err != nil || job.Target.Kind() == "" {
		return response{}, input.Refuse(input.CodeStateConflict,
			"job %s of run %s was deleted, so its request is unknown", input.Echo(run.Job), run.ID)
	}
	if a.opts.Requests == nil {
		return response{}, input.Refuse(input.CodeUnavailable, "this process makes no requests, so it cannot show them; ask a node")
	}
	call, endpoint, err := a.callOfRun(r, run, job)
	if err != nil {
		return response{}, err
	}
	shown := a.opts.Requests.Show(call, endpoint, r.Now)
	shown.Run, shown.Revision, shown.RunRevision = run.ID, job.Revision, run.Revision
	return response{body: shown}, nil
}

// jobOfRun returns the job of a run. A run that delivers for an alert or another job has an attached job, by their
// current definition. Its own revision is unknown, so it gets that of the run.
func (a *API) jobOfRun(ctx context.Context, one run.Run) (job dispatcher.Job, err error) {
	owner, part, isAttached := strings.Cut(one.Job, ".")
	switch {
	case !isAttached:
		return a.store.Job(ctx, one.App, one.Job)
	case "."+part == dispatcher.AlertSuffix:
		found, err := a.store.Alert(ctx, one.App, owner)
		if err != nil {
			return job, err
		}
		job = found.Attached()
	default:
		if job, err = a.store.Job(ctx, one.App, owner); err != nil {
			return job, err
		}
		job = job.Attached(run.FollowEvent(part))
	}
	job.Revision = one.Revision
	return job, nil
}

// callOfRun returns the call of the latest attempt of a run by its current job, without the values of secrets, and the
// member of its group that it called, if that is known.
func (a *API) callOfRun(r *request, one run.Run, job dispatcher.Job) (
	call target.Call, endpoint *target.Endpoint, err error,
) {
	key, err := run.ParseKey(one.ID)
	if err != nil {
		return call, nil, err
	}
	call = target.Call{
		App: one.App, Job: one.Job, Trigger: one.Trigger, Key: key, EventID: one.EventID, Attempt: max(one.Attempt, 1),
		Missed: one.Missed, Cause: one.Cause, Target: job.Target, Shard: one.Shard, Payload: job.Payload,
	}
	if one.Payload != nil {
		call.Payload = one.Payload
	}
	if call.Templates, err = job.Target.Templates(); err != nil {
		return call, nil, err
	}
	if call.Templates.UseFires() && one.Trigger != "" {
		if err := a.addFires(r, &call, job); err != nil {
			return call, nil, err
		}
	}
	if job.CarryState {
		state, err := a.store.CarriedState(r.Context(), one.App, one.Job)
		if err != nil {
			return call, nil, err
		}
		call.Carried = &state
	}
	if job.Target.Group != nil {
		endpoint, err = a.addGroup(r, &call, one)
	}
	return call, endpoint, err
}

// addFires adds to a call the fires before and after its own. Fires that cannot be evaluated are left out.
func (a *API) addFires(r *request, call *target.Call, job dispatcher.Job) error {
	ctx, done, err := a.gate.Evaluate(r.Request, gate.EvaluationTimeout)
	if err != nil {
		return err
	}
	defer done()
	call.PreviousFire, call.NextFire, err = dispatcher.NewPastSchedules(a.store, call.App).Around(ctx, job.Key(),
		call.Key.TriggerID, call.Key.ScheduledAt)
	if _, is := errors.AsType[*target.TemplateError](err); is {
		return nil
	}
	return err
}

// addGroup adds to a call the group that its target names, and returns the member that its attempt called.
func (a *API) addGroup(r *request, call *target.Call, run run.Run) (*target.Endpoint, error) {
	name := call.Target.Group.Name
	group, err := a.store.Group(r.Context(), run.App, name)
	if errors.Is(err, dispatcher.ErrNotFound) {
		return nil, input.Refuse(input.CodeStateConflict, "group %s, which the target of the job names, is not there", input.Echo(name))
	}
	if err != nil {
		return nil, err
	}
	call.Group = &target.GroupVersion{EndpointGroup: group}
	id := run.EndpointOf(call.Attempt)
	if id == "" {
		return nil, nil
	}
	members, err := a.store.Endpoints(r.Context(), run.App, name, time.Time{}, input.Page{Limit: target.MaxEndpoints})
	if err != nil {
		return nil, err
	}
	for i := range members {
		if members[i].ID == id {
			return &members[i], nil
		}
	}
	return nil, nil
}

// logMemory is the memory of a log while it is read and sent, by estimate.
const logMemory = 16 << 20

// getRunLog reads the log that an executor of XXL-JOB keeps of a run; 409 if no executor is known to have it.
func (a *API) getRunLog(r *request) (response, error) {
	run, err := a.visibleRun(r)
	if err != nil {
		return response{}, err
	}
	attempt, err := r.number("attempt", run.Attempt)
	if err != nil {
		return response{}, err
	}
	from, err := r.number("from_line", 1)
	if err != nil {
		return response{}, err
	}
	call, err := a.executorsOf(r, run)
	if err == nil {
		call, err = callOf(call, run, attempt)
	}
	if err != nil {
		return response{}, err
	}
	log, err := a.opts.Executors.ExecutorLog(r.Context(), call, from)
	if err != nil {
		return response{}, input.Refuse(input.CodeUnavailable, "executor %s gave no log: %v", call.Endpoint.ID, err)
	}
	log.Run, log.Attempt = run.ID, attempt
	return response{body: log}, nil
}

// number returns a query parameter that is a whole number from 1 on.
func (r *request) number(name string, otherwise int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, &input.Problem{Path: "/" + name, Code: input.CodeQuerySyntax,
			Message: name + " " + input.Echo(text) + " is not a whole number from 1 on"}
	}
	return n, nil
}

// executorsOf returns the call to the executors of a run, without the executor, or an error if there are none.
func (a *API) executorsOf(r *request, run run.Run) (call target.ExecutorCall, err error) {
	job, err := a.store.Job(r.Context(), run.App, run.Job)
	if err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
		return call, err
	}
	if err != nil || a.opts.Executors == nil || job.Target.Group == nil || job.Target.Group.XXLJob == nil {
		return call, input.Refuse(input.CodeStateConflict, "run %s is not one of a group of kind xxl_job, so no executor keeps a log of it",
			run.ID)
	}
	call, err = a.gate.Group(r.Context(), run.App, job.Target.Group.Name)
	if err == nil && len(call.Group.DNS) > 0 && a.opts.Fleet != nil {
		members, _ := a.opts.Fleet.Members(r.Context(), call.Group.EndpointGroup, call.Bounds.Egress)
		call.Group = new(call.Group.With(members))
	}
	return call, err
}

// callOf adds the executor that has an attempt of a run to a call.
func callOf(call target.ExecutorCall, run run.Run, attempt int) (target.ExecutorCall, error) {
	id := run.EndpointOf(attempt)
	if id == "" {
		return call, input.Refuse(input.CodeStateConflict, "no executor is known to have attempt %d of run %s", attempt, run.ID)
	}
	for _, endpoint := range call.Group.Live {
		if endpoint.ID == id {
			call.Endpoint, call.Run = endpoint, run.ExecutorRun(attempt)
			return call, nil
		}
	}
	return call, input.Refuse(input.CodeStateConflict, "executor %s, which had attempt %d of run %s, is not in group %s any more",
		id, attempt, run.ID, call.Group.Name)
}
