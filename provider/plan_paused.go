package provider

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/carillon-dev/carillon/dispatcher"
)

// warnOfPauses says that a job that was read, or triggers of it, are paused. Terraform manages no pauses,
// so a plan without changes would hide that the job does not run.
func (c *connection) warnOfPauses(diags *diag.Diagnostics, job dispatcher.Job) {
	if w, paused := pauseWarning(job); paused {
		c.warn(diags, w, "more jobs")
	}
}

// pauseWarning says by whom, since when and why a job, or triggers of it, are paused.
func pauseWarning(job dispatcher.Job) (w warning, paused bool) {
	name := job.App + "/" + job.Name
	w = warning{kind: "paused", title: "Paused", thing: name, at: path.Root("name"), inFull: warningsInFull}
	if job.Paused {
		w.detail = fmt.Sprintf("Job %s is paused%s. None of its triggers runs until somebody resumes it; Terraform does not.",
			name, by(job.PausedBy, job.PausedAt, job.PauseReason))
		return w, true
	}
	var lines []string
	for _, trigger := range slices.Sorted(maps.Keys(job.Triggers)) {
		if t := job.Triggers[trigger]; t.Paused {
			lines = append(lines, fmt.Sprintf("Trigger %s of job %s is paused%s.", trigger, name, by(t.PausedBy, t.PausedAt, t.PauseReason)))
		}
	}
	if len(lines) == 0 {
		return w, false
	}
	more := ""
	if n := len(lines) - detailsInFull; n > 0 {
		lines, more = lines[:detailsInFull], fmt.Sprintf(" So are %d more.", n)
	}
	w.detail = strings.Join(lines, "\n") + more + " It does not run until somebody resumes it; Terraform does not."
	return w, true
}

// by says who did something, since when it is so, and why, as far as it is known.
func by(who string, since *time.Time, reason string) string {
	text := ""
	if who != "" {
		text += " by " + who
	}
	if since != nil {
		text += " since " + since.UTC().Format(time.RFC3339)
	}
	if reason != "" {
		text += ": " + dispatcher.Echo(reason)
	}
	return text
}

// warnOfApp says that no job of an app runs, and why.
func (c *connection) warnOfApp(diags *diag.Diagnostics, app *dispatcher.App) {
	if app == nil {
		return
	}
	w := warning{kind: "stopped", thing: app.Name, at: path.Root("app"), inFull: warningsInFull}
	switch bounds := cmp.Or(app.Bounds, &dispatcher.Bounds{}); {
	case bounds.Suspended:
		w.title = "Suspended"
		w.detail = fmt.Sprintf("App %s is suspended%s. None of its jobs runs until an operator lifts the suspension.",
			app.Name, by(bounds.SuspendedBy, bounds.SuspendedAt, bounds.SuspendedReason))
	case !app.Enabled:
		w.title = "Disabled"
		w.detail = fmt.Sprintf("App %s is disabled. None of its jobs runs until it is enabled.", app.Name)
	default:
		return
	}
	c.warn(diags, w, "more apps")
}
