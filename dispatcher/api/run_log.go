package api

import (
	"errors"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// logMemory is what a log takes while it is read and sent, by estimate.
const logMemory = 16 << 20

// runLog reads the log of an attempt from the executor that has it.
func (a *API) runLog(r *request) (response, error) {
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
	call, err := a.executorCall(r, run, attempt)
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

// executorCall returns how to ask the executor that has an attempt of a run. The error says why there is none to ask.
func (a *API) executorCall(r *request, run run.Run, attempt int) (call target.ExecutorCall, err error) {
	if call, err = a.executorsOf(r, run); err != nil {
		return call, err
	}
	return callOf(call, run, attempt)
}

// executorsOf returns how to ask the executors of a run, but for which one. The error says why there is none to ask.
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

// callOf completes a call by the executor that has an attempt of a run.
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
