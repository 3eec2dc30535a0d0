package provider

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
)

// warnOfPauses says that a job, or triggers of it, are paused. Terraform manages no pauses, so a plan
// without changes would hide that the job does not run.
func (c *connection) warnOfPauses(diags *diag.Diagnostics, job dispatcher.Job) {
	name := job.App + "/" + job.Name
	w := warning{kind: "paused", title: "Paused", thing: name, inFull: warningsInFull}
	if job.Paused {
		w.detail = fmt.Sprintf("Job %s is paused. None of its triggers runs until somebody resumes it. Terraform does not.", name)
		c.warn(diags, w, "more jobs")
		return
	}
	var paused []string
	for _, trigger := range slices.Sorted(maps.Keys(job.Triggers)) {
		if job.Triggers[trigger].Paused {
			paused = append(paused, trigger)
		}
	}
	if len(paused) == 0 {
		return
	}
	w.detail = fmt.Sprintf("Of job %s, %d of %d triggers are paused: %s. They do not run until somebody resumes them. Terraform does not.",
		name, len(paused), len(job.Triggers), strings.Join(paused, ", "))
	c.warn(diags, w, "more jobs")
}

// warnOfApp says that no job of an app runs, and why.
func (c *connection) warnOfApp(diags *diag.Diagnostics, app *dispatcher.App) {
	switch {
	case app == nil:
	case app.Bounds != nil && app.Bounds.Suspended:
		c.warn(diags, warning{kind: "suspended", title: "Suspended", thing: app.Name, inFull: warningsInFull,
			detail: upperFirst(app.SuspendedMessage()) + ". None of its jobs runs."}, "more apps")
	case !app.Enabled:
		c.warn(diags, warning{kind: "disabled", title: "Disabled", thing: app.Name, inFull: warningsInFull,
			detail: fmt.Sprintf("App %s is disabled: none of its jobs runs.", app.Name)}, "more apps")
	}
}

func upperFirst(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
