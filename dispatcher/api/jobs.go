package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func (a *API) listJobs(r *request) (response, error) {
	labels, err := r.labels()
	if err != nil {
		return response{}, err
	}
	name := func(job dispatcher.Job) string { return job.Name }
	return pagedByName(r, name, func(page input.Page) ([]dispatcher.Job, error) {
		page.Labels = labels
		return a.store.Jobs(r.Context(), r.PathValue("app"), page)
	})
}

func (a *API) getJob(r *request) (response, error) {
	job, err := a.store.Job(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{revision: job.Revision, body: a.warned(job)}, err
}

func (a *API) putJob(r *request) (response, error) {
	job := dispatcher.Job{App: r.PathValue("app"), Name: r.PathValue("job")}
	problems := r.Decode(&job)
	mustMatch(&problems, "/app", job.App, r.PathValue("app"))
	mustMatch(&problems, "/name", job.Name, r.PathValue("job"))
	defaults, err := a.store.JobDefaults(r.Context(), r.PathValue("app"))
	if err != nil && len(problems) == 0 {
		return response{}, err
	}
	defaults.Fill(&job)
	decode.AddInvalid(&problems, job.CheckTimezones())
	write := func(ctx context.Context, job dispatcher.Job, change input.Change) (dispatcher.Job, bool, error) {
		stored, created, err := a.store.PutJob(ctx, job, change)
		return a.warned(stored), created, err
	}
	return put(a, r, job, problems, write, func(stored dispatcher.Job) int64 { return stored.Revision })
}

// warned adds the warnings that depend on the node.
func (a *API) warned(job dispatcher.Job) dispatcher.Job {
	job.Warnings = append(job.Warnings, job.WarnOfRegion(a.opts.Region)...)
	if !a.opts.Callbacks {
		job.Warnings = append(job.Warnings, job.WarnOfCallback()...)
	}
	return job
}

func (a *API) deleteJob(r *request) (response, error) {
	return a.remove(r, func(change input.Change) error {
		err := a.store.DeleteJob(r.Context(), r.PathValue("app"), r.PathValue("job"), change)
		if errors.Is(err, dispatcher.ErrInUse) {
			use := strings.TrimSuffix(err.Error(), ": "+dispatcher.ErrInUse.Error())
			return input.Refuse(input.CodeJobInUse, "%s; take its name out of these jobs first", use)
		}
		return err
	})
}

// pause serves pause and resume, of jobs and of single triggers. Only a pause has a reason and an end.
func pause(paused bool) func(*API, *request) (response, error) {
	return func(a *API, r *request) (response, error) {
		var asked dispatcher.PauseRequest
		if paused {
			problems := r.DecodeIfAny(&asked)
			decode.AddInvalid(&problems, asked.Validate())
			if err := problems.Err(); err != nil {
				return response{}, err
			}
		}
		change, err := a.gate.Change(r.Request)
		if err != nil {
			return response{}, err
		}
		change.Reason, change.Until = asked.Reason, asked.Until
		app, name, trigger := r.PathValue("app"), r.PathValue("job"), r.PathValue("trigger")
		job, err := a.store.PauseJob(r.Context(), app, name, trigger, paused, change)
		return response{revision: job.Revision, body: job}, a.gate.ExplainFailed(r.Request, change, err)
	}
}

// renameJob needs a condition, as a DELETE does: a client that has read an older revision may mean other names.
func (a *API) renameJob(r *request) (response, error) {
	var rename dispatcher.JobRename
	problems := r.Decode(&rename)
	decode.AddInvalid(&problems, rename.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	if len(r.Header.Values("If-Match")) == 0 {
		revision, err := a.gate.Revision(r.Request)
		if err != nil {
			return response{}, err
		}
		return response{}, r.NeedsCondition(revision)
	}
	change, err := a.gate.Change(r.Request)
	if err != nil {
		return response{}, err
	}
	job, err := a.store.RenameJob(r.Context(), r.PathValue("app"), r.PathValue("job"), rename, change)
	return response{revision: job.Revision, body: a.warned(job)}, a.gate.ExplainFailed(r.Request, change, err)
}

func (a *API) runJob(r *request) (response, error) {
	if _, err := a.gate.Revision(r.Request); err != nil { // a missing job comes before a disabled app
		return response{}, err
	}
	if err := a.checkEnabled(r, r.PathValue("app")); err != nil {
		return response{}, err
	}
	var asked dispatcher.RunRequest
	if err := r.DecodeIfAny(&asked).Err(); err != nil {
		return response{}, err
	}
	change := r.By()
	run, err := a.store.RequestRun(r.Context(), r.PathValue("app"), r.PathValue("job"), asked.Payload, change)
	if err != nil {
		return response{}, conflict(err, "wait until some of them end")
	}
	header := map[string]string{"Location": "/v1/runs/" + run.ID}
	return response{status: http.StatusAccepted, body: run, header: header}, nil
}

func (a *API) listSlots(r *request) (response, error) {
	slots, err := a.store.Slots(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{body: newList(slots)}, err
}

func (a *API) getState(r *request) (response, error) {
	state, err := a.store.CarriedState(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{revision: state.Revision, body: state}, err
}

func (a *API) putState(r *request) (response, error) {
	var state run.CarriedState
	problems := r.Decode(&state)
	write := func(ctx context.Context, state run.CarriedState, change input.Change) (run.CarriedState, bool, error) {
		stored, err := a.store.SetCarriedState(ctx, r.PathValue("app"), r.PathValue("job"), state.State, change)
		return stored, false, err
	}
	return put(a, r, state, problems, write, func(stored run.CarriedState) int64 { return stored.Revision })
}

func (a *API) deleteState(r *request) (response, error) {
	return a.remove(r, func(change input.Change) error {
		_, err := a.store.SetCarriedState(r.Context(), r.PathValue("app"), r.PathValue("job"), nil, change)
		return err
	})
}

func (a *API) getObjective(r *request) (response, error) {
	status, err := a.store.ObjectiveStatus(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{body: status}, err
}

func (a *API) listObjectives(r *request) (response, error) {
	name := func(s dispatcher.ObjectiveStatus) string { return s.Job }
	return pagedByName(r, name, func(page input.Page) ([]dispatcher.ObjectiveStatus, error) {
		return a.store.ObjectiveStatuses(r.Context(), r.PathValue("app"), page)
	})
}
