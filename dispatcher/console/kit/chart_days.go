package kit

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/view"
)

// DayChart is a drawing with a column for each day.
type DayChart struct {
	Width, Height int
	// Most is what the highest column stands for.
	Most    int64
	Columns []dayColumn
}

// dayColumn is a day. Its parts lie on one another, those that did not succeed on top.
type dayColumn struct {
	Day      string
	X, Width float64
	Total    int64
	Bad      int64
	Parts    []columnPart
}

// First and Last are the days at the ends of the drawing.
func (c DayChart) First() string { return c.Columns[0].Day }

// Last is the last day; see First.
func (c DayChart) Last() string { return c.Columns[len(c.Columns)-1].Day }

type columnPart struct {
	Tone      string // see tone
	Y, Height float64
}

// The size of a chart in units of its drawing.
const (
	chartWidth  = 720
	chartHeight = 160
)

// ChartOfDays returns the chart of the days up to now. A day without runs has an empty column.
func ChartOfDays(rows []DayRow, now time.Time, days int) DayChart {
	chart := DayChart{Width: chartWidth, Height: chartHeight}
	of := map[string]DayRow{}
	for _, row := range rows {
		of[row.Day] = row
		chart.Most = max(chart.Most, row.Total)
	}
	step := float64(chartWidth) / float64(days)
	for i := range days {
		name := now.UTC().AddDate(0, 0, i+1-days).Format(time.DateOnly)
		row := of[name]
		column := dayColumn{Day: name, X: float64(i) * step, Width: step * 0.8, Total: row.Total}
		good, off := row.Runs["succeeded"], row.Runs["cancelled"]+row.Runs["skipped"]+row.Runs["superseded"]
		column.Bad = row.Total - good - off
		at := float64(chartHeight)
		for _, one := range []struct {
			tone  string
			count int64
		}{{"good", good}, {"off", off}, {"bad", column.Bad}} {
			if one.count > 0 {
				height := float64(one.count) * chartHeight / float64(chart.Most)
				at -= height
				column.Parts = append(column.Parts, columnPart{one.tone, at, height})
			}
		}
		chart.Columns = append(chart.Columns, column)
	}
	return chart
}

// DayRow is one day of the table.
type DayRow struct {
	view.DayStatistics
	Total int64
}
