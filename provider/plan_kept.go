package provider

import (
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"

	"github.com/carillon-dev/carillon/dispatcher"
)

// keepMoving leaves in a job that was read what only passes with time, as the state has it: the next fire
// times, and the summary of its triggers. Otherwise every fire would be drift, and a plan with
// -refresh-only and -detailed-exitcode would never be 0. They are read again after a change: of the job,
// which has another revision, or of its calendars and the time zone data, which move a fire that is
// still to come.
func keepMoving(read *jobModel, state jobModel, job dispatcher.Job, now time.Time) {
	if !read.Revision.Equal(state.Revision) || state.NextFireTimes.IsNull() || state.State.IsNull() {
		return
	}
	failed := string(dispatcher.JobError)
	if read.State.ValueString() == failed || state.State.ValueString() == failed {
		return
	}
	kept := state.NextFireTimes.Elements()
	for name, t := range job.Triggers {
		before, known := kept[name].(timetypes.RFC3339)
		switch {
		case !known && t.NextFireTime == nil:
		case !known && !t.IsDelay(): // its calendar allows a fire again; that of a delay depends on its runs
			return
		case known && moved(before, t, now):
			return
		}
	}
	read.NextFireTimes, read.State = state.NextFireTimes, state.State
}

// moved reports whether a next fire time that was read before is no longer one, although it has not passed.
func moved(before timetypes.RFC3339, t dispatcher.Trigger, now time.Time) bool {
	at, diags := before.ValueRFC3339Time()
	if diags.HasError() {
		return true
	}
	// A node claims a fire shortly before it is due, and its clock may be ahead of this one.
	passed := !at.After(now.Add(time.Minute))
	return !passed && (t.NextFireTime == nil || !t.NextFireTime.Equal(at)) || t.NextFireTime != nil && t.NextFireTime.Before(at)
}
