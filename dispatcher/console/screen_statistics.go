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
	Spans  []int // the numbers of days that a person can choose
	Span   int
	Until  time.Time
	Chart  kit.DayChart
	States []run.State
}

func showStatistics(v *visit) (content, error) {
	f := v.fields()
	page := statisticsPage{App: f.Text("app"), Spans: []int{7, 30, 90}, Span: f.Number("days", 30), States: kit.FinalStates()}
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
