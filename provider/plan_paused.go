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
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// warnOfPauses says that a job that was read, or triggers of it, are paused. Terraform manages no pauses,
// so a plan without changes would hide that the job does not run.
func (c *connection) warnOfPauses(diags *diag.Diagnostics, job dispatcher.Job) {
	c.warnOfAppPauses(diags, job.Pauses)
	if w, paused := pauseWarning(job); paused {
		c.warn(diags, w, "more jobs")
	}
}

// warnOfAppPauses says that pauses of an app hold jobs. Each is said once, however many jobs it holds.
func (c *connection) warnOfAppPauses(diags *diag.Diagnostics, pauses []dispatcher.AppPause) {
	for _, p := range pauses {
		thing := p.App
		if len(p.Labels) > 0 {
			thing += " " + p.Labels.String()
		}
		what := p.What()
		c.warn(diags, warning{
			kind: "app paused", title: "Paused", thing: thing, key: p.ID, inFull: warningsInFull,
			detail: fmt.Sprintf("%s are paused%s. None of their triggers runs until %s; Terraform does not.",
				strings.ToUpper(what[:1])+what[1:], by(p.PausedBy, &p.PausedAt, p.Until, p.Reason), endOf(p.Until)),
		}, "more pauses")
	}
}

// endOf says who ends a pause.
func endOf(until *time.Time) string {
	if until == nil {
		return "somebody ends the pause"
	}
	return "then, unless somebody ends the pause before"
}

// pauseWarning says by whom, since when and why a job, or triggers of it, are paused.
func pauseWarning(job dispatcher.Job) (w warning, paused bool) {
	name := job.App + "/" + job.Name
	w = warning{kind: "paused", title: "Paused", thing: name, at: path.Root("name"), inFull: warningsInFull}
	if job.Paused {
		w.detail = fmt.Sprintf("Job %s is paused%s. None of its triggers runs until somebody resumes it; Terraform does not.",
			name, by(job.PausedBy, job.PausedAt, job.PausedUntil, job.PauseReason))
		return w, true
	}
	var lines []string
	for _, trigger := range slices.Sorted(maps.Keys(job.Triggers)) {
		if t := job.Triggers[trigger]; t.Paused {
			why := by(t.PausedBy, t.PausedAt, t.PausedUntil, t.PauseReason)
			lines = append(lines, fmt.Sprintf("Trigger %s of job %s is paused%s.", trigger, name, why))
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

// by says who did something, since and until when it is so, and why, as far as it is known.
func by(who string, since, until *time.Time, reason string) string {
	text := ""
	if who != "" {
		text += " by " + who
	}
	if since != nil {
		text += " since " + since.UTC().Format(time.RFC3339)
	}
	if until != nil {
		text += " until " + until.UTC().Format(time.RFC3339)
	}
	if reason != "" {
		text += ": " + input.Echo(reason)
	}
	return text
}

// warnOfApp says that no job of an app runs, and why.
func (c *connection) warnOfApp(diags *diag.Diagnostics, app *access.App) {
	if app == nil {
		return
	}
	w := warning{kind: "stopped", thing: app.Name, at: path.Root("app"), inFull: warningsInFull}
	switch bounds := cmp.Or(app.Bounds, &target.Bounds{}); {
	case bounds.Suspended:
		w.title = "Suspended"
		w.detail = fmt.Sprintf("App %s is suspended%s. None of its jobs runs until an operator lifts the suspension.",
			app.Name, by(bounds.SuspendedBy, bounds.SuspendedAt, nil, bounds.SuspendedReason))
	case !app.Enabled:
		w.title = "Disabled"
		w.detail = fmt.Sprintf("App %s is disabled. None of its jobs runs until it is enabled.", app.Name)
	default:
		return
	}
	c.warn(diags, w, "more apps")
}
