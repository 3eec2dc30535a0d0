package console

import (
	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// explainPage says what became of one scheduled time of a trigger, and why.
type explainPage struct {
	App, Job, Trigger string
	// Zone is that of the trigger, if times are shown in it.
	Zone string
	// At is what the form has.
	At string
	// Problem says what is wrong with At.
	Problem string
	// Found is the explanation as the command line prints it, nil if no time is given. Its type belongs to a package that the
	// console does not know.
	Found any
}

// showExplain explains the time that the query names.
func showExplain(v *visit) (content, error) {
	page := explainPage{App: v.PathValue("app"), Job: v.PathValue("job"), Trigger: v.PathValue("trigger"), At: v.query("at")}
	result := content{Title: v.Texts.Text("explain.title", "trigger", dispatcher.Identity(page.App, page.Job, page.Trigger))}
	if page.At == "" {
		result.Data = page
		return result, nil
	}
	at, err := input.ParseInstant(page.At)
	if err != nil {
		page.Problem = err.Error()
		result.Data = page
		return result, nil
	}
	found, err := v.client.Explain(v.Context(), page.App, page.Job, page.Trigger, at)
	if err != nil {
		return content{}, err
	}
	page.Zone = v.zoneOf(page.App, page.Job, page.Trigger)
	page.Found = found
	result.Data, result.Zone = page, page.Zone
	return result, nil
}

// zoneOf returns the zone of a trigger if times are to be shown in it; empty: they are not, or the trigger was deleted. Only that
// costs a request, because runs and explanations do not say their zone.
func (v *visit) zoneOf(app, job, trigger string) string {
	if v.Zone.Choice != kit.ZoneTrigger || trigger == "" {
		return ""
	}
	found, err := v.client.Job(v.Context(), app, job)
	if err != nil {
		return ""
	}
	return found.Triggers[trigger].Timezone
}
