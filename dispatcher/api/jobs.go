package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// listJobs lists the jobs of an app by name. With origin, it lists the job with this origin, or none if that was deleted.
// A rename changes the name of a job, but not its origin.
func (a *API) listJobs(r *request) (response, error) {
	labels, err := r.labels()
	if err != nil {
		return response{}, err
	}
	name := func(job dispatcher.Job) string { return job.Name }
	return pagedByName(r, name, func(page input.Page) ([]dispatcher.Job, error) {
		page.Labels, page.Origin = labels, r.URL.Query().Get("origin")
		return a.store.Jobs(r.Context(), r.PathValue("app"), page)
	})
}

// getJob gets a job with its triggers. The ETag identifies the definition. It does not change when fire times
// or states change.
func (a *API) getJob(r *request) (response, error) {
	job, err := a.store.Job(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{revision: job.Revision, body: a.warned(r.Context(), job)}, err
}

// putJob creates or replaces a job with its triggers, in one transaction. A trigger whose schedule does not change
// keeps its fire times and its pause.
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
		return a.warned(ctx, stored), created, err
	}
	return put(a, r, job, problems, write, func(stored dispatcher.Job) int64 { return stored.Revision })
}

// warned adds the warnings that depend on the nodes.
func (a *API) warned(ctx context.Context, job dispatcher.Job) dispatcher.Job {
	job.Warnings = append(job.Warnings, job.WarnOfNodes(func() ([]dispatcher.Node, *target.Bounds) {
		app, err := a.store.App(ctx, job.App)
		if err != nil { // the job was read or written nevertheless
			return nil, nil
		}
		nodes, _ := a.store.Nodes(ctx)
		return nodes, app.Bounds
	})...)
	job.Warnings = append(job.Warnings, job.WarnOfRegion(a.opts.Region)...)
	if !a.opts.Callbacks {
		job.Warnings = append(job.Warnings, job.WarnOfCallback()...)
	}
	return job
}

// deleteJob deletes a job and stops its fires; its runs and misfires stay. Jobs that it follows warn that nothing follows
// them under its name.
func (a *API) deleteJob(r *request) (response, error) {
	return a.remove(r, func(change input.Change) error {
		return a.store.DeleteJob(r.Context(), r.PathValue("app"), r.PathValue("job"), change)
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

// renameJob renames a job, its triggers, or both at once. Event ids, fire times (including those of H and of jitter),
// secrets, pauses, history and live runs stay; requests that begin afterwards carry the new names. A request that
// changes no name returns 422. Returns 409 with code name_taken if another job or trigger has a new name, or if the
// history of a deleted job of that name is still kept.
//
// renameJob needs a condition, like a DELETE: a client that has read an older revision may mean other names.
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
	return response{revision: job.Revision, body: a.warned(r.Context(), job)}, a.gate.ExplainFailed(r.Request, change, err)
}

// runJob runs a job now. Every call queues a new run, even if the job is paused or disabled. The concurrency_policy
// applies to it too, so the run may wait or be skipped. While the app is disabled or suspended, the call returns 409
// with code app_disabled or bound_suspended, because no node would claim the run. Above the quotas
// manual_runs_per_minute and waiting_runs it returns 429 with code bound_quota. With a payload, every attempt of the
// run sends that payload instead of the job's; the audit log has its sum.
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

// listSlots lists the runs that hold a concurrency slot of a job. Returns all of them in the order of their runs. The
// list is empty if the job has no limit. Runs that wait for a slot are in state queued.
func (a *API) listSlots(r *request) (response, error) {
	slots, err := a.store.Slots(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{body: newList(slots)}, err
}

// releaseSlot frees the slots of a run of a job, and returns the run. Nodes free slots by themselves after they have given
// up the request of an ended run. If the request is still in flight, another run of the job may overlap with it. 409 if
// the run has not ended, unless cancel is true, if several runs have slots and run names none, or if none has.
func (a *API) releaseSlot(r *request) (response, error) {
	var asked run.SlotRelease
	err := r.Decode(&asked).Err()
	if err == nil {
		err = a.stopHolder(r, asked)
	}
	if err != nil {
		return response{}, err
	}
	released, err := a.store.ReleaseSlot(r.Context(), r.PathValue("app"), r.PathValue("job"), asked, r.By())
	return response{body: r.shown(released)}, conflict(err, "list the slots with carillon slot list. To end a run, cancel it: its "+
		"slot is free when its node has given the request up. To free its slot at once, release it with cancel (carillon slot release "+
		"--cancel); its target may go on working")
}

// getCarriedState gets the state that the runs of a job carry. Its ETag is the revision of the state, not
// that of the job.
func (a *API) getCarriedState(r *request) (response, error) {
	state, err := a.store.CarriedState(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{revision: state.Revision, body: state}, err
}

// putCarriedState sets the state that the runs of a job carry. The next run gets it. The state that a run under way
// returns is discarded. A job without carry_state is refused.
func (a *API) putCarriedState(r *request) (response, error) {
	var state run.CarriedState
	problems := r.Decode(&state)
	write := func(ctx context.Context, state run.CarriedState, change input.Change) (run.CarriedState, bool, error) {
		stored, err := a.store.SetCarriedState(ctx, r.PathValue("app"), r.PathValue("job"), state.State, change)
		return stored, false, err
	}
	return put(a, r, state, problems, write, func(stored run.CarriedState) int64 { return stored.Revision })
}

// deleteCarriedState clears the state that the runs of a job carry. The next run gets none. The state that a run under
// way returns is discarded.
func (a *API) deleteCarriedState(r *request) (response, error) {
	return a.remove(r, func(change input.Change) error {
		_, err := a.store.SetCarriedState(r.Context(), r.PathValue("app"), r.PathValue("job"), nil, change)
		return err
	})
}

// getObjective gets the status of a job's objective. 404: the job has no objective.
func (a *API) getObjective(r *request) (response, error) {
	status, err := a.store.ObjectiveStatus(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{body: status}, err
}

// listObjectives lists the status of the objectives of jobs, by app and name. A token that is bound to apps gets those of
// its apps.
func (a *API) listObjectives(r *request) (response, error) {
	var problems input.Problems
	page := r.page(&problems, isJobCursor)
	apps, err := a.overviewApps(r, &problems)
	if err = cmp.Or(err, problems.Err()); err != nil {
		return response{}, err
	}
	last := func(s dispatcher.ObjectiveStatus) string { return dispatcher.JobCursor(s.App, s.Job) }
	return paged(page, last, func(page input.Page) ([]dispatcher.ObjectiveStatus, error) {
		return a.store.ObjectiveStatuses(r.Context(), apps, page)
	})
}

// getJobStatistics shows how long the latest runs of a job waited and took, and what came of them by the hour. It
// examines the latest 10,000 ended runs between from and to, by default those of the last 14 days.
func (a *API) getJobStatistics(r *request) (response, error) {
	var problems input.Problems
	from, to := r.instant(&problems, "from"), r.instant(&problems, "to")
	checkOrder(&problems, from, to)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	if to.IsZero() {
		to = r.Now
	}
	if from.IsZero() {
		from = to.AddDate(0, 0, -14)
	}
	found, err := a.store.JobStatistics(r.Context(), r.PathValue("app"), r.PathValue("job"), from, to)
	return response{body: found}, err
}

// listCalendars lists the calendars of an app by name.
func (a *API) listCalendars(r *request) (response, error) {
	name := func(c dispatcher.Calendar) string { return c.Name }
	return pagedByName(r, name, func(page input.Page) ([]dispatcher.Calendar, error) {
		return a.store.Calendars(r.Context(), r.PathValue("app"), page)
	})
}

// getCalendar gets a calendar.
func (a *API) getCalendar(r *request) (response, error) {
	calendar, err := a.store.Calendar(r.Context(), r.PathValue("app"), r.PathValue("calendar"))
	return response{revision: calendar.Revision, body: calendar}, err
}

// putCalendar creates or replaces a calendar. In the same transaction, all triggers that use the calendar,
// directly or through another calendar, get new fire times. The revisions of their jobs do not change. If a
// fire is due at that moment and the calendar now excludes it, it is recorded as a misfire.
func (a *API) putCalendar(r *request) (response, error) {
	calendar := dispatcher.Calendar{App: r.PathValue("app"), Name: r.PathValue("calendar")}
	problems := r.Decode(&calendar)
	mustMatch(&problems, "/app", calendar.App, r.PathValue("app"))
	mustMatch(&problems, "/name", calendar.Name, r.PathValue("calendar"))
	return put(a, r, calendar, problems, a.store.PutCalendar, func(stored dispatcher.Calendar) int64 { return stored.Revision })
}

// deleteCalendar deletes a calendar. While a trigger or another calendar refers to it, returns 409 with code
// calendar_in_use. With when_unused=true, it returns 202 instead, and the change that removes the last use deletes the
// calendar. A PUT keeps it.
func (a *API) deleteCalendar(r *request) (response, error) {
	app, name := r.PathValue("app"), r.PathValue("calendar")
	return removeUnused(a, r, deletion[dispatcher.Calendar]{
		now: func(by input.Change) error {
			return withRemedy(a.store.DeleteCalendar(r.Context(), app, name, by), dispatcher.ErrInUse, input.CodeCalendarInUse,
				"remove it there first, or delete it with ?when_unused=true")
		},
		whenUnused: func(by input.Change) (*dispatcher.Calendar, error) {
			return a.store.DeleteCalendarWhenUnused(r.Context(), app, name, by)
		},
		revision: func(c dispatcher.Calendar) int64 { return c.Revision },
	})
}
