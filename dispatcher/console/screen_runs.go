package console

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// runsPage is a page of the runs of an app.
type runsPage struct {
	runTable
	App, Job, Trigger, State, From, To string
	// Problems are what is wrong with the filter; nothing is listed then.
	Problems []string
	Runs     []run.Run
	Next     string
	First    string
	States   []run.State
}

// pageOfRuns is how many runs a page of the list has.
const pageOfRuns = 50

// showRuns lists runs of an app, the latest scheduled first.
func showRuns(v *visit) (content, error) {
	page := runsPage{
		App: v.PathValue("app"), Job: v.query("job"), Trigger: v.query("trigger"), State: v.query("state"), From: v.query("from"),
		To:     v.query("to"),
		States: run.States,
	}
	query := dispatcher.RunQuery{
		App: page.App, Job: page.Job, Trigger: page.Trigger, State: run.State(page.State),
		Page: input.Page{Limit: pageOfRuns, Cursor: v.query("cursor")},
	}
	for _, bound := range []struct {
		field, given string
		at           *time.Time
	}{{"from", page.From, &query.From}, {"to", page.To, &query.To}} {
		if bound.given == "" {
			continue
		}
		at, err := input.ParseInstant(bound.given)
		if err != nil {
			page.Problems = append(page.Problems, bound.field+": "+err.Error())
		}
		*bound.at = at
	}
	result := content{Title: v.Texts.Text("runs.of", "app", page.App), Refresh: true}
	if len(page.Problems) == 0 {
		found, err := v.client.Runs(v.Context(), query)
		if err != nil {
			return content{}, err
		}
		page.Runs = found.Items
		page.Next, page.First = v.more(found.Next), v.first()
	}
	result.Data = page
	return result, nil
}

// runTable is what the table of runs needs of its page.
type runTable struct{ zones map[string]string }

// Zone returns the zone of a trigger; empty: it is not known.
func (t runTable) Zone(trigger string) string { return t.zones[trigger] }

// Took returns how long the latest attempt of a run took, nil if it is not over.
func (runTable) Took(run run.Run) *time.Duration {
	if run.StartedAt == nil || run.EndedAt == nil {
		return nil
	}
	took := run.EndedAt.Sub(*run.StartedAt)
	return &took
}
