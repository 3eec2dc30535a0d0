package api

import (
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

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

func (a *API) getBackfill(r *request) (response, error) {
	found, err := a.store.Backfill(r.Context(), r.PathValue("app"), r.PathValue("backfill"))
	return response{body: found}, err
}

// createBackfill counts the instants of the range, and begins the backfill unless that is all that is wanted.
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

// planBackfill counts the instants of the range by the schedules of the job as it is now.
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
