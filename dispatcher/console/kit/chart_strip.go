package kit

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// StripChart is the row of the latest and next scheduled times of a trigger.
type StripChart struct {
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
	ShapeOK       = "ok"
	ShapeFailed   = "failed"
	ShapeLive     = "live"     // a run that is under way
	ShapeRetrying = "retrying" // a run that is attempted again later, or waits for its host
	ShapeMisfire  = "misfire"
	ShapeSkipped  = "skipped"
	shapeExcluded = "excluded"
	ShapePlanned  = "planned"
	shapeWaiting  = "waiting"
	shapeNone     = "none"
	shapeMissing  = "missing"
)

// Shapes are all of them, in the order of legends.
func Shapes() []string {
	return []string{
		ShapeOK, ShapeFailed, ShapeRetrying, ShapeLive, ShapeMisfire, ShapeSkipped, shapeExcluded, shapeWaiting, ShapePlanned, shapeNone,
		shapeMissing,
	}
}

// ShapeOfRun returns the shape of a run in a state.
func ShapeOfRun(state run.State) string {
	switch state {
	case run.Succeeded:
		return ShapeOK
	case run.Failed, run.TimedOut, run.Lost:
		return ShapeFailed
	case run.Skipped, run.Cancelled, run.Superseded:
		return ShapeSkipped
	case run.Retrying:
		return ShapeRetrying
	}
	return ShapeLive
}

// shapeOfCell returns the shape of a cell of a strip.
func shapeOfCell(cell view.StripCell) string {
	switch cell.What {
	case view.CellRun:
		return ShapeOfRun(cell.State)
	case view.CellSkipped:
		return ShapeSkipped
	case view.CellMisfire:
		return ShapeMisfire
	case view.CellExcluded:
		return shapeExcluded
	case view.CellPlanned:
		return ShapePlanned
	case view.CellWaiting:
		return shapeWaiting
	case view.CellNone:
		return shapeNone
	}
	return shapeMissing
}

// NewStrip draws a strip. link returns the page that explains a scheduled time.
func NewStrip(r Reader, strip view.Strip, link func(at time.Time) string) StripChart {
	chart := StripChart{Trigger: strip.Trigger, Timezone: strip.Timezone, Incomplete: strip.Incomplete}
	zone := r.Zone.In(r.Now, strip.Timezone).Location()
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
	return slices.DeleteFunc(Shapes(), func(shape string) bool { return !seen[shape] })
}

// titleOfCell says in words what a cell shows: when, what, and how late and how long it was.
func titleOfCell(r Reader, cell view.StripCell, shape string, zone *time.Location) string {
	title := cell.ScheduledAt.In(zone).Format(TitleTime)
	if cell.Until != nil {
		title = r.Texts.Text("strip.range", "from", title, "to", cell.Until.In(zone).Format(TitleTime))
	}
	word := r.Texts.Text("strip." + shape)
	if cell.What == view.CellRun && cell.State != "" {
		word = r.Texts.Text("state." + string(cell.State))
	}
	title += ": " + word
	if cell.Class != "" {
		title += ", " + r.Texts.Word("class.", string(cell.Class))
	}
	if cell.Decision != "" {
		title += ", " + r.Texts.Word("state.", string(cell.Decision))
	}
	if cell.Late > 0 {
		title += ", " + r.Texts.Text("strip.late", "duration", r.Texts.Duration(cell.Late))
	}
	if cell.Took > 0 {
		title += ", " + r.Texts.Text("strip.took", "duration", r.Texts.Duration(cell.Took))
	}
	return title
}

// TitleTime is how marks of charts write times: in the zone of the page, with its offset.
const TitleTime = "2006-01-02 15:04:05 Z07:00"
