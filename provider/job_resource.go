package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
)

// jobResource is carillon_job.
type jobResource struct {
	definition[dispatcher.Job]
	now func() time.Time // decides whether a time is past
}

func jobs(c *connection) *jobResource {
	if c == nil {
		c = unconfigured()
	}
	return &jobResource{now: clock, definition: definition[dispatcher.Job]{
		heading: heading{"job", jobRows, importNested("job", "billing/nightly-report"),
			"A job: a target to call, a payload to send, and named triggers that say when. " +
				"Import it by `app/job`.\n\n" +
				"Expressions, time zones, durations, URLs and headers are checked at plan by the rules of the API. " +
				"An apply is refused if someone else changed the job after the plan was made."},
		conn: c, check: dispatcher.Job.Validate,
		api: requests[dispatcher.Job]{
			(*client.Client).PutJob, (*client.Client).Job, (*client.Client).DeleteJob,
			func(j dispatcher.Job) int64 { return j.Revision },
		},
		secrets: secretsOf[dispatcher.Job]{dispatcher.Job.CheckKept, webhookKnown},
		bounds:  func(bounds *target.Bounds, j dispatcher.Job) error { return j.CheckBounds(bounds) },
	}}
}

// clock returns the time of a plan; tests replace it.
func clock() time.Time { return time.Now() } //nolint:forbidigo // see above

// read returns a job as the API has it, also under another name. found is false if it was deleted outside of Terraform.
func (r *jobResource) read(
	ctx context.Context, diags *diag.Diagnostics, state binding.Values, kept *private,
) (model binding.Values, found bool) {
	if !r.conn.ready(diags) {
		return nil, false
	}
	id := identityOf(state)
	job, found, err := r.find(ctx, diags, id, kept.Origin)
	if err != nil {
		r.conn.report(diags, fmt.Sprintf("read job %q", id.importID), err)
		return nil, false
	}
	if !found { // so the plan creates it again
		warnOfDeletion(diags, state)
		return nil, false
	}
	kept.Origin = job.CreatedAs()
	r.conn.WarnOfStops(ctx, diags, job)
	model = r.conn.shownJob(ctx, diags, job, state)
	plan.KeepMoving(model, state, job, r.now())
	return model, !diags.HasError()
}

// find returns the job with an origin, which may have been renamed outside of Terraform and its name given to another job.
// Without an origin, as after an import, it returns the job with the name.
func (r *jobResource) find(
	ctx context.Context, diags *diag.Diagnostics, id identity, origin string,
) (job dispatcher.Job, found bool, err error) {
	job, err = r.conn.Job(ctx, id.app, id.name)
	found = err == nil && (origin == "" || job.CreatedAs() == origin)
	if found || err != nil && !client.IsNotFound(err) {
		return job, found, err
	}
	if origin == "" {
		return job, false, nil
	}
	renamed, err := r.conn.Jobs(ctx, id.app, input.Page{Origin: origin})
	if client.IsNotFound(err) || err == nil && len(renamed.Items) == 0 {
		return job, false, nil
	}
	if err == nil {
		r.conn.WarnOfRenameOutside(ctx, diags, id.app, id.name, renamed.Items[0].Name)
		job, err = r.conn.Job(ctx, id.app, renamed.Items[0].Name)
	}
	return job, err == nil, err
}

// written creates or updates a job as planned, and returns the API's result, unless that failed.
// After a successful rename it always returns the job, because the state must have the new names.
func (r *jobResource) written(ctx context.Context, diags *diag.Diagnostics, change change) (model binding.Values, done bool) {
	if !r.conn.ready(diags) {
		return nil, false
	}
	if !change.isNew && !change.plan.Revision().IsUnknown() { // only renamed_from differs, which the API does not store
		return change.plan, true
	}
	var state *binding.Values
	if !change.isNew {
		state = &change.state
	}
	// An invalid job is reported before any request.
	job, problems := r.toWrite(change.plan, change.config, state)
	if reportProblems(diags, problems); diags.HasError() {
		return nil, false
	}
	leaveToApp(&job, change.plan, change.config)
	job.Labels = r.conn.withDefaultLabels(job.Labels)
	condition, renamed := client.Condition{Absent: true}, false
	if !change.isNew {
		if change.state, renamed = r.rename(ctx, diags, change.config, change.state); diags.HasError() {
			return change.state, renamed
		}
		condition = client.Condition{Revision: change.state.Revision().ValueInt64()}
	}
	job, err := r.conn.PutJob(ctx, job, condition)
	if err != nil {
		r.reportWrite(ctx, diags, change, err)
		return change.state, renamed
	}
	change.kept.Origin = job.CreatedAs()
	given := &dispatcher.JobDefaults{Retry: &job.Retry} // the app provided what the plan omits
	given.Headers, _ = job.Target.Headers()
	model = r.conn.flattenJob(diags, job, change.plan, given)
	if times := change.plan["next_fire_times"]; !times.IsUnknown() {
		model["next_fire_times"] = times // the schedules did not change; see KeepMoving
	}
	done = !diags.HasError()
	// The API also knows what calendars exclude. The plan has warned of jobs that may exist only a moment later.
	warnings := slices.DeleteFunc(job.Warnings, func(w input.Problem) bool { return w.Code == input.CodeFollowUnknown })
	r.conn.WarnOfMistakes(diags, job.App, job.Name, warnings, "more jobs")
	return model, done
}

// deleted deletes a job. Terraform plans that with the state of before the refresh. If the job was renamed outside of
// Terraform, that has neither its name nor its revision, but the plan has warned of the rename.
func (r *jobResource) deleted(ctx context.Context, diags *diag.Diagnostics, state binding.Values, kept private) {
	if !r.conn.ready(diags) {
		return
	}
	id := identityOf(state)
	job, found, err := r.find(ctx, diags, id, kept.Origin)
	if err != nil {
		r.conn.report(diags, fmt.Sprintf("read job %q", id.importID), err)
	}
	if found && job.Name != id.name {
		state = state.With("name", types.StringValue(job.Name)).With("revision", types.Int64Value(job.Revision))
	}
	if found {
		r.definition.deleted(ctx, diags, state, kept)
	}
}

// warnOfDeletion reports why a missing job was probably deleted, and what Terraform will plan.
func warnOfDeletion(diags *diag.Diagnostics, m binding.Values) {
	if m.Text("delete_after_completion").IsNull() {
		return
	}
	diags.AddWarning("The job no longer exists",
		fmt.Sprintf("Carillon probably deleted job %q after its last fire, because it has delete_after_completion = %q. Terraform "+
			"will plan to create it again, and its triggers would start over. If the job is done, remove the resource.",
			identityOf(m).importID, m.Text("delete_after_completion").ValueString()))
}

// rename gives the job in a state and its triggers the configured names, and returns the resulting state.
func (r *jobResource) rename(ctx context.Context, diags *diag.Diagnostics, config, state binding.Values) (after binding.Values,
	renamed bool) {
	stored := r.expand(&binding.Expander{}, state)
	renames, problems := plan.RenamingOf(config, state, stored)
	if reportProblems(diags, problems); len(problems) > 0 || !renames.Any() {
		return state, false
	}
	id := identityOf(state)
	job, err := r.conn.RenameJob(ctx, id.app, id.name, renames.JobRename, client.Condition{Revision: id.revision})
	if isConflict(err) {
		r.reportConflict(ctx, diags, id, err)
		return state, false
	}
	var refused *client.Error
	if errors.As(err, &refused) {
		refused.Problems = renames.InFiles(refused.Problems)
	}
	if err != nil {
		r.conn.report(diags, fmt.Sprintf("rename job %q", id.importID), err)
		return state, false
	}
	state = state.With("trigger", renames.Renamed(ctx, state.Map("trigger")))
	return r.conn.shownJob(ctx, diags, job, state), true
}

// validate adds the domain's problems with the known values of a configuration.
func (r *jobResource) validate(ctx context.Context, diags *diag.Diagnostics, config binding.Values) {
	var e binding.Expander
	// Only the plan knows the app's defaults.
	job := r.expand(&e, jobs(nil).filled(ctx, config))
	var problems input.Problems
	input.CheckName(&problems, "/app", job.App) // Validate omits it: the API has it in the URL
	// ModifyPlan knows whether a stored value exists.
	problems.AddError("", target.WithSecrets(job, withOmitted(target.Secrets(job))).Validate())
	if from, known := plan.RenamedFrom(config); known {
		problems.AddError("", from.Check(job.Triggers))
	}
	if text, err := json.Marshal(target.ForWire(job)); err == nil {
		const most = 10
		problems.AddError("", input.CheckJSONText(text, most))
	}
	reportProblems(diags, e.ProblemsWith(problems.Err()))
}

// planned fills in the values that the API will resolve, refuses past times, and marks the computed
// attributes as unknown only if something else changes. After an error it returns the plan unchanged.
func (r *jobResource) planned(ctx context.Context, diags *diag.Diagnostics, change change) binding.Values {
	if r.conn.meet(ctx, diags); diags.HasError() {
		return change.plan
	}
	shown, state := maps.Clone(change.plan), change.state
	var old *dispatcher.Job
	var renames plan.Renaming
	if !change.isNew {
		stored := r.expand(&binding.Expander{}, state)
		renames = r.conn.Rename(ctx, diags, change.config, state, stored)
		old = new(renames.Of(stored))
	}
	config := r.filled(ctx, change.config)
	var e binding.Expander
	job := r.expand(&e, config)
	reportProblems(diags, r.missingSecrets(&e, job, change.config, r.before(change)))
	checkTimezones(diags, &e, job)
	r.checkBounds(ctx, diags, &e, config, job)
	r.conn.WarnOfMissingApp(ctx, diags, job.App)
	r.conn.CheckReferences(ctx, diags, &e, job)
	r.resolveTriggers(diags, old, declared{config, job, &e}, shown)
	if diags.HasError() {
		return change.plan
	}
	shown["id"] = plannedID(shown.Text("app"), shown.Text("name"))
	shown["concurrency_policy"] = config["concurrency_policy"]
	shown["labels_all"] = r.conn.plannedLabels(ctx, diags, shown.Map("labels"))
	r.conn.WarnOfJob(ctx, diags, &e, job, r.now())
	var kept bool
	if old != nil {
		replaced := !shown["app"].Equal(state["app"])
		if !replaced && leadsElsewhere(shown, state) {
			reportProblems(diags, r.keptSecrets(shown, config, state))
		}
		shown["state"], shown["revision"] = state["state"], state["revision"]
		shown["next_fire_times"] = renames.Keys(ctx, state.Map("next_fire_times"))
		if !replaced {
			change := plan.JobChange{Before: *old, E: &binding.Expander{}, Renames: renames, Now: r.now()}
			change.After = r.expand(change.E, shown)
			kept = r.conn.KeepsFires(ctx, diags, change)
		}
		if !renames.Any() && plan.SameButRenamedFrom(ctx, shown, state) {
			return shown // no change, or only another spelling
		}
	}
	shown["state"], shown["revision"] = types.StringUnknown(), types.Int64Unknown()
	if !kept {
		// The next fires of a new schedule may pass before the apply, and Terraform would then not
		// accept other values. The warning about fires shows them.
		shown["next_fire_times"] = types.MapUnknown(timetypes.RFC3339Type{})
	}
	return shown
}

// leadsElsewhere reports whether a job may send its secrets to another destination. Most plans change none.
func leadsElsewhere(plan, state binding.Values) bool {
	return slices.ContainsFunc([]string{"target", "on_success", "on_failure", "on_misfire"}, func(name string) bool {
		return !plan[name].Equal(state[name])
	})
}

// checkTimezones refuses triggers that need a time zone and have none, once the app's default is known.
func checkTimezones(diags *diag.Diagnostics, e *binding.Expander, job dispatcher.Job) {
	if e.IsUnknown("/app") {
		return
	}
	var problems input.Problems
	problems.AddError("", job.CheckTimezones())
	for i := range problems {
		problems[i].Message += "; or give the app a default_timezone"
	}
	reportProblems(diags, e.AboutKnown(problems))
}

// declared is a job with its configuration and the defaults of its app.
type declared struct {
	config binding.Values
	job    dispatcher.Job    // expanded from config,
	e      *binding.Expander // by this
}

// resolveTriggers plans the values that the API will resolve for each completely known trigger. It
// resolves omitted attributes again, so the plan also undoes a change to them outside of Terraform.
// old is the job in the state, nil for a new one.
func (r *jobResource) resolveTriggers(diags *diag.Diagnostics, old *dispatcher.Job, of declared, plan binding.Values) {
	job := of.job
	job.Enabled = job.Enabled && of.e.AllKnown("/enabled") // a disabled job may have past times
	triggers, configured := plan.Map("trigger").Elements(), of.config.Map("trigger").Elements()
	for name := range job.Triggers {
		m, filled := binding.In(triggers[name]), binding.In(configured[name])
		if len(m) == 0 || len(filled) == 0 {
			continue
		}
		m["misfire_policy"] = filled["misfire_policy"]
		if !filled["timezone"].IsNull() {
			m["timezone"] = filled["timezone"]
		}
		if of.e.AllKnown(input.Pointer("triggers", name)) {
			t, err := r.resolve(old, job, name)
			var problems input.Problems
			problems.AddError("", err)
			reportProblems(diags, problems)
			m["dialect"], m["timezone"] = binding.OrNull(t.Dialect), binding.OrNull(t.Timezone)
			m["gap"], m["overlap"] = binding.OrNull(t.Gap), binding.OrNull(t.Overlap)
		}
		triggers[name] = triggerRows.ObjectOf(m)
	}
	if !plan["trigger"].IsUnknown() && !diags.HasError() {
		plan["trigger"] = types.MapValueMust(triggerRows.Type, triggers)
	}
}

// resolve returns a trigger as the API will store it. It applies a job with only this trigger,
// because the rest may be unknown. It also replaces unknown names of app and job: only the hash of
// H depends on them, and an expression with H then counts as unknown.
func (r *jobResource) resolve(old *dispatcher.Job, job dispatcher.Job, name string) (dispatcher.Trigger, error) {
	alone := dispatcher.Job{
		App: cmp.Or(job.App, "app"), Name: cmp.Or(job.Name, "job"), JobSpec: dispatcher.JobSpec{Enabled: job.Enabled,
			Target: target.Target{Webhook: &target.Webhook{
				URL: "https://example.com/", Method: target.Methods[0], Timeout: target.DefaultTimeout,
			}},
			Triggers: map[string]dispatcher.Trigger{name: job.Triggers[name]}},
	}
	applied, _, err := dispatcher.Apply(old, alone, dispatcher.Prior{}, nil, r.now())
	return applied.Triggers[name], err
}
