package provider

import (
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/provider/binding"
)

// keepMoving leaves in a job that was read what only passes with time, as the state has it: the next fire
// times, and the summary of its triggers. Otherwise every fire would be drift, and a plan with
// -refresh-only and -detailed-exitcode would never be 0. They are read again when the job has another
// revision, when a trigger fails or works again, and when newer time zone data move its fires.
func keepMoving(read, state binding.Values, job dispatcher.Job, now time.Time) {
	if !read["revision"].Equal(state["revision"]) || state["next_fire_times"].IsNull() || state["state"].IsNull() {
		return
	}
	failed := string(dispatcher.JobError)
	if (read.Text("state").ValueString() == failed) != (state.Text("state").ValueString() == failed) {
		return
	}
	kept := state.Map("next_fire_times").Elements()
	for name, t := range job.Triggers {
		before, known := kept[name].(timetypes.RFC3339)
		if known && t.Calendar == "" && moved(before, t, now) {
			return
		}
	}
	read["next_fire_times"], read["state"] = state["next_fire_times"], state["state"]
}

// moved reports whether a next fire time that was read before is no longer one, although it has not
// passed. Without a change of the trigger or of a calendar, which is a resource of its own, this comes
// from time zone data.
func moved(before timetypes.RFC3339, t dispatcher.Trigger, now time.Time) bool {
	at, diags := before.ValueRFC3339Time()
	if diags.HasError() {
		return true
	}
	// A node claims a fire shortly before it is due, and its clock may be ahead of this one.
	passed := !at.After(now.Add(time.Minute))
	if t.NextFireTime == nil {
		return !passed
	}
	return t.NextFireTime.Before(at) || !passed && !t.NextFireTime.Equal(at)
}
