package api

import (
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// listBackfills lists the backfills of an app, latest first.
func (a *API) listBackfills(r *request) (response, error) {
	var problems input.Problems
	page := r.page(&problems, func(cursor string) bool {
		_, err := repeat.ParseBackfillID(cursor)
		return err == nil
	})
	query := repeat.BackfillQuery{App: r.PathValue("app"), Job: r.URL.Query().Get("job")}
	if query.Job != "" {
		input.CheckName(&problems, "/job", query.Job)
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	return paged(page, func(b repeat.Backfill) string { return b.ID }, func(page input.Page) ([]repeat.Backfill, error) {
		query.Page = page
		return a.store.Backfills(r.Context(), query)
	})
}

// getBackfill gets a backfill with its progress.
func (a *API) getBackfill(r *request) (response, error) {
	found, err := a.store.Backfill(r.Context(), r.PathValue("app"), r.PathValue("backfill"))
	return response{body: found}, err
}

// createBackfill runs the instants of a range, or counts them. Begins a backfill: a run of kind backfill for each
// instant at which the triggers would have fired, by their current definitions; later edits do not change these runs.
// With dry_run it only counts the instants. A job has one backfill at a time; another one is refused with code
// state_conflict. It counts as one manual run in the quotas of the app.
func (a *API) createBackfill(r *request) (response, error) {
	app, name := r.PathValue("app"), r.PathValue("job")
	asked := repeat.BackfillRequest{}
	asked.SetDefaults()
	problems := r.Decode(&asked)
	asked.From, asked.To = asked.From.UTC().Truncate(time.Millisecond), asked.To.UTC().Truncate(time.Millisecond)
	now, err := a.store.Clock(r.Context())
	if err != nil {
		return response{}, err
	}
	decode.AddInvalid(&problems, asked.Validate(now))
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	job, err := a.store.Job(r.Context(), app, name)
	if err != nil {
		return response{}, err
	}
	if err := a.checkEnabled(r, app); err != nil {
		return response{}, err
	}
	plan, err := a.planBackfill(r, job, asked.BackfillSpec)
	if err != nil {
		return response{}, err
	}
	if asked.DryRun {
		if err := job.CheckPayloadOf(asked.Payload); err != nil {
			return response{}, err
		}
		plan.Skipped, err = a.store.BackfillSkips(r.Context(), plan)
		return response{body: plan.BackfillCount}, err
	}
	created, err := a.store.CreateBackfill(r.Context(), app, name, plan, r.By())
	if err != nil {
		return response{}, conflict(err, "wait until it ends, or cancel it")
	}
	header := map[string]string{"Location": "/v1/apps/" + app + "/backfills/" + created.ID}
	return response{status: http.StatusAccepted, body: created, header: header}, nil
}

// planBackfill counts the instants of the range by the current schedules of the job.
func (a *API) planBackfill(r *request, job dispatcher.Job, spec repeat.BackfillSpec) (plan repeat.BackfillPlan, err error) {
	_, calendars, err := a.store.AppCalendars(r.Context(), job.App)
	if err != nil {
		return plan, err
	}
	ctx, done, err := a.gate.Evaluate(r.Request, gate.EvaluationTimeout)
	if err != nil {
		return plan, err
	}
	defer done()
	return spec.Plan(ctx, job, calendars)
}

// changeBackfill serves pause, resume and cancel.
func changeBackfill(action repeat.BackfillAction) func(*API, *request) (response, error) {
	return func(a *API, r *request) (response, error) {
		changed, err := a.store.ChangeBackfill(r.Context(), r.PathValue("app"), r.PathValue("backfill"), action, r.By())
		if err != nil {
			return response{}, conflict(err, "it changes no more; begin another one for what is left")
		}
		return response{body: changed}, nil
	}
}

// listBulkActions lists the bulk actions of an app, latest first.
func (a *API) listBulkActions(r *request) (response, error) {
	var problems input.Problems
	page := r.page(&problems, func(cursor string) bool {
		_, err := repeat.ParseBulkActionID(cursor)
		return err == nil
	})
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	key := func(b repeat.BulkAction) string { return b.ID }
	return paged(page, key, func(page input.Page) ([]repeat.BulkAction, error) {
		return a.store.BulkActions(r.Context(), r.PathValue("app"), page)
	})
}

// getBulkAction gets a bulk action with its progress.
func (a *API) getBulkAction(r *request) (response, error) {
	found, err := a.store.BulkAction(r.Context(), r.PathValue("app"), r.PathValue("bulk"))
	return response{body: found}, err
}

// createBulkAction applies one action to all jobs or runs that a filter selects, or counts them. Begins a bulk action.
// Nodes carry it out, some jobs or runs at a time, and continue after a node dies; each change is in the audit log
// under the caller of this request. It selects as it goes: jobs and runs that match only later may be left out. Those
// that are already in the wanted state, or changed meanwhile, are skipped. Runs that it requests count as manual runs
// in the quotas of the app, and it waits while a quota is used up. It needs the scope of the same request about a
// single job or run: write to pause and resume jobs, run for the others. With dry_run it only counts.
func (a *API) createBulkAction(r *request) (response, error) {
	var asked repeat.BulkRequest
	problems := r.Decode(&asked)
	asked.Filter.From, asked.Filter.To = asked.Filter.From.UTC().Truncate(time.Millisecond), asked.Filter.To.UTC().Truncate(time.Millisecond)
	decode.AddInvalid(&problems, asked.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	if err := mayBulk(r, asked.Action); err != nil {
		return response{}, err
	}
	app := r.PathValue("app")
	if asked.Action == repeat.BulkRunJobs || asked.Action == repeat.BulkRetryRuns {
		if err := a.checkEnabled(r, app); err != nil {
			return response{}, err
		}
	}
	count, err := a.store.CountBulk(r.Context(), app, asked.BulkSpec)
	if err != nil || asked.DryRun {
		return response{body: count}, err
	}
	if err := asked.Agreed(count); err != nil {
		return response{}, conflict(err, "look at what it selects, and ask again with expected as it is now")
	}
	created, err := a.store.CreateBulkAction(r.Context(), app, asked.BulkSpec, count, r.By())
	header := map[string]string{"Location": "/v1/apps/" + app + "/bulk/" + created.ID}
	return response{status: http.StatusAccepted, body: created, header: header}, err
}

// mayBulk refuses a token without the scope that the same request about a single job or run needs.
func mayBulk(r *request, action repeat.BulkVerb) error {
	if r.Token.May(action.Scope()) {
		return nil
	}
	return input.Refuse(input.CodeForbidden, "token %s does not have the scope %s, which action %s needs", input.Echo(r.Token.Name),
		string(action.Scope()), string(action))
}

// cancelBulkAction ends a bulk action. Finished changes stay. It needs the same scope as the action.
func (a *API) cancelBulkAction(r *request) (response, error) {
	app, id := r.PathValue("app"), r.PathValue("bulk")
	found, err := a.store.BulkAction(r.Context(), app, id)
	if err != nil {
		return response{}, err
	}
	if err := mayBulk(r, found.Action); err != nil {
		return response{}, err
	}
	cancelled, err := a.store.CancelBulkAction(r.Context(), app, id, r.By())
	if err != nil {
		return response{}, conflict(err, "it is over; begin another one to undo what it did")
	}
	return response{body: cancelled}, nil
}

// listDeadLetters lists runs that failed, timed out or were lost, latest scheduled time first. A retried run is not a
// dead letter until it fails again. Deliveries to targets of alerts and follows are runs, too.
func (a *API) listDeadLetters(r *request) (response, error) {
	var problems input.Problems
	values := r.URL.Query()
	query := repeat.DeadLetterQuery{
		App: r.PathValue("app"), Job: values.Get("job"), Class: run.Class(values.Get("class")),
		State: run.State(values.Get("state")),
		From:  r.instant(&problems, "from"), To: r.instant(&problems, "to"), Page: r.page(&problems, run.IsID),
	}
	for _, name := range []string{"job", "class", "state"} {
		if values.Has(name) && values.Get(name) == "" {
			problems.Add("/"+name, input.CodeRequired, "%s is empty; leave it out to select all", name)
		}
	}
	problems.AddError("", query.Validate())
	checkOrder(&problems, query.From, query.To)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	key := func(run run.Run) string { return run.ID }
	return paged(query.Page, key, func(page input.Page) ([]run.Run, error) {
		query.Page = page
		return a.store.DeadLetters(r.Context(), query)
	})
}

// replayDeadLetters retries dead letters, a portion at a time, or counts them. Each run is retried like POST
// /v1/runs/{run}/retry: at once, under the same event id, with the current job. If the response has next, send another
// request with it as cursor. Returns 409 while the app is disabled or suspended, unless dry_run is set.
//
// replayDeadLetters retries a portion, so that a request ends soon however many dead letters there are.
func (a *API) replayDeadLetters(r *request) (response, error) {
	var replay repeat.DeadLetterReplay
	replay.SetDefaults()
	problems := r.DecodeIfAny(&replay)
	decode.AddInvalid(&problems, replay.Validate())
	if replay.Cursor != "" && !run.IsID(replay.Cursor) {
		problems.Add("/cursor", input.CodePageCursor, "cursor %s is not from a replay; leave it out to begin with the first",
			input.Echo(replay.Cursor))
	}
	checkOrder(&problems, replay.From, replay.To)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	query := replay.Query(r.PathValue("app"))
	if replay.DryRun {
		count, err := a.store.CountDeadLetters(r.Context(), query, repeat.MostDeadLettersCounted)
		return response{body: count}, err
	}
	if err := a.checkEnabled(r, query.App); err != nil {
		return response{}, err
	}
	replayed, err := a.store.ReplayDeadLetters(r.Context(), query, r.By())
	return response{body: replayed}, err
}
