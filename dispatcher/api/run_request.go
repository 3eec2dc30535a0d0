package api

import (
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// requestOfRun shows the request of a run as its job would send it now.
func (a *API) requestOfRun(r *request) (response, error) {
	run, err := a.visibleRun(r)
	if err != nil {
		return response{}, err
	}
	job, err := a.store.Job(r.Context(), run.App, run.Job)
	if err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
		return response{}, err
	}
	if err != nil {
		return response{}, input.Refuse(input.CodeStateConflict,
			"job %s of run %s is not there any more, or delivers for another one, so nobody can tell its request", input.Echo(run.Job), run.ID)
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

// callOfRun returns the call of the latest attempt of a run by its job as it is now, without the values of secrets, and the
// member of its group that it went to, if that is known.
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

// addFires adds to a call the fires before and after its own. What cannot be evaluated is left out.
func (a *API) addFires(r *request, call *target.Call, job dispatcher.Job) error {
	ctx, done, err := a.gate.Evaluate(r.Request, gate.EvaluationTimeout)
	if err != nil {
		return err
	}
	defer done()
	call.PreviousFire, call.NextFire, err = dispatcher.FiresAroundInForce(ctx, a.store, call.App, job.Key(), call.Key.TriggerID,
		call.Key.ScheduledAt)
	var unreadable *target.TemplateError
	if errors.As(err, &unreadable) {
		return nil
	}
	return err
}

// addGroup adds to a call the group that its target names, and returns the member that its attempt went to.
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
