package console

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// statisticsPage is what the runs of each day came to.
type statisticsPage struct {
	App    string
	Days   []kit.DayRow
	Spans  []int
	Span   int
	Until  time.Time
	Chart  kit.DayChart
	States []run.State
}

// statisticsSpans are the numbers of days that a person can choose.
func statisticsSpans() []int { return []int{7, 30, 90} }

func showStatistics(v *visit) (content, error) {
	f := v.fields()
	page := statisticsPage{App: f.Text("app"), Spans: statisticsSpans(), Span: f.Number("days", 30), States: countedStates()}
	page.Span = min(max(page.Span, 1), 90)
	err := f.Err()
	var found view.Statistics
	if err == nil {
		found, err = v.client.Statistics(v.Context(), page.App, v.Now.AddDate(0, 0, 1-page.Span), v.Now)
	}
	page.Until = found.CountedTo
	for _, day := range found.Days {
		row := kit.DayRow{DayStatistics: day}
		for _, n := range day.Runs {
			row.Total += n
		}
		page.Days = append(page.Days, row)
	}
	page.Chart = kit.ChartOfDays(page.Days, v.Now, page.Span)
	return v.filtered(content{Data: page}, err)
}

// countedStates are the states that runs end in.
func countedStates() []run.State {
	return []run.State{run.Succeeded, run.Failed, run.TimedOut, run.Lost,
		run.Cancelled, run.Skipped, run.Superseded}
}
