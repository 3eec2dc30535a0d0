package console

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// stripChart is the row of the latest and next scheduled times of a trigger.
type stripChart struct {
	Trigger  string
	Timezone string
	Cells    []stripMark
	// From and To are the first and the last time.
	From, To time.Time
	// Incomplete says why there are fewer cells than usual.
	Incomplete string
	// Problem says why there is no strip.
	Problem string
	// Legend are the shapes that occur, in the order of view.CellKinds.
	Legend []string
}

// stripMark is one cell: a shape, a word and a link to its explanation.
type stripMark struct {
	Shape, Title, Link string
	// Now tells that the present is just before the cell.
	Now bool
}

// Shapes of what became of a scheduled time. Each has a word, a form and a color of its own.
const (
	shapeOK       = "ok"
	shapeFailed   = "failed"
	shapeLive     = "live"     // a run that is under way
	shapeRetrying = "retrying" // a run that is attempted again later, or waits for its host
	shapeMisfire  = "misfire"
	shapeSkipped  = "skipped"
	shapeExcluded = "excluded"
	shapePlanned  = "planned"
	shapeWaiting  = "waiting"
	shapeNone     = "none"
	shapeMissing  = "missing"
)

// shapes are all of them, in the order of legends.
func shapes() []string {
	return []string{
		shapeOK, shapeFailed, shapeRetrying, shapeLive, shapeMisfire, shapeSkipped, shapeExcluded, shapeWaiting, shapePlanned, shapeNone,
		shapeMissing,
	}
}

// shapeOfRun returns the shape of a run in a state.
func shapeOfRun(state run.State) string {
	switch state {
	case run.Succeeded:
		return shapeOK
	case run.Failed, run.TimedOut, run.Lost:
		return shapeFailed
	case run.Skipped, run.Cancelled, run.Superseded:
		return shapeSkipped
	case run.Retrying:
		return shapeRetrying
	}
	return shapeLive
}

// shapeOfCell returns the shape of a cell of a strip.
func shapeOfCell(cell view.StripCell) string {
	switch cell.What {
	case view.CellRun:
		return shapeOfRun(cell.State)
	case view.CellSkipped:
		return shapeSkipped
	case view.CellMisfire:
		return shapeMisfire
	case view.CellExcluded:
		return shapeExcluded
	case view.CellPlanned:
		return shapePlanned
	case view.CellWaiting:
		return shapeWaiting
	case view.CellNone:
		return shapeNone
	}
	return shapeMissing
}

// newStrip draws a strip. link returns the page that explains a scheduled time.
func newStrip(r reader, strip view.Strip, link func(at time.Time) string) stripChart {
	chart := stripChart{Trigger: strip.Trigger, Timezone: strip.Timezone, Incomplete: strip.Incomplete}
	zone := r.zone.in(r.now, strip.Timezone).Location()
	seen := map[string]bool{}
	after := false
	for _, cell := range strip.Cells {
		shape := shapeOfCell(cell)
		seen[shape] = true
		mark := stripMark{
			Shape: shape, Title: titleOfCell(r, cell, shape, zone),
			Link: link(cell.ScheduledAt),
		}
		if future := cell.ScheduledAt.After(strip.Now); future && !after {
			mark.Now, after = true, true
		}
		chart.Cells = append(chart.Cells, mark)
	}
	if n := len(strip.Cells); n > 0 {
		chart.From, chart.To = strip.Cells[0].ScheduledAt, strip.Cells[n-1].ScheduledAt
	}
	chart.Legend = occurring(seen)
	return chart
}

// occurring returns those of the shapes that were seen, in the order of legends.
func occurring(seen map[string]bool) []string {
	return slices.DeleteFunc(shapes(), func(shape string) bool { return !seen[shape] })
}

// titleOfCell says in words what a cell shows: when, what, and how late and how long it was.
func titleOfCell(r reader, cell view.StripCell, shape string, zone *time.Location) string {
	title := cell.ScheduledAt.In(zone).Format(titleTime)
	if cell.Until != nil {
		title = r.texts.text("strip.range", "from", title, "to", cell.Until.In(zone).Format(titleTime))
	}
	word := r.texts.text("strip." + shape)
	if cell.What == view.CellRun && cell.State != "" {
		word = r.texts.text("state." + string(cell.State))
	}
	title += ": " + word
	if cell.Class != "" {
		title += ", " + r.texts.word("class.", string(cell.Class))
	}
	if cell.Decision != "" {
		title += ", " + r.texts.word("state.", string(cell.Decision))
	}
	if cell.Late > 0 {
		title += ", " + r.texts.text("strip.late", "duration", r.texts.duration(cell.Late))
	}
	if cell.Took > 0 {
		title += ", " + r.texts.text("strip.took", "duration", r.texts.duration(cell.Took))
	}
	return title
}

// titleTime is how marks of charts write times: in the zone of the page, with its offset.
const titleTime = "2006-01-02 15:04:05 Z07:00"
